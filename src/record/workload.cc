#include "record/workload.h"

#include <alloca.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "channel/layout.h"
#include "record/machine.h"

namespace auxtrail::record {
namespace {

constexpr std::string_view kPreload = "LD_PRELOAD=";

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

struct Pipe {
  UniqueFd read_end;
  UniqueFd write_end;
};

Result<Pipe> make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return fail_errno("make a pipe", "", errno);
  return Pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

// Runs in the child: only async-signal-safe calls.
[[noreturn]] void run_child(const char* path, char* const* arguments, char* const* environment,
                            const sigset_t& mask, int gate, int exec_result) {
  char go = 0;
  ssize_t got = 0;
  do {
    got = ::read(gate, &go, 1);
  } while (got < 0 && errno == EINTR);
  if (got != 1) ::_exit(1);  // the recorder gave up before the start
  ::pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  ::execve(path, arguments, environment);
  int sys_errno = errno;
  if (sys_errno == ENOEXEC) {  // a script without "#!": as execvp does
    std::array<char*, 3> shell = {const_cast<char*>("/bin/sh"), const_cast<char*>(path), nullptr};
    char* const* rest = arguments[0] != nullptr ? arguments + 1 : arguments;
    size_t count = 0;
    while (rest[count] != nullptr) ++count;
    char** all = static_cast<char**>(::alloca((count + 3) * sizeof(char*)));
    std::memcpy(all, shell.data(), 2 * sizeof(char*));
    std::memcpy(all + 2, rest, (count + 1) * sizeof(char*));
    ::execve("/bin/sh", all, environment);
    sys_errno = errno;
  }
  (void)!::write(exec_result, &sys_errno, sizeof(sys_errno));
  ::_exit(127);
}

}  // namespace

Result<Workload> Workload::fork(const Command& command, const std::vector<std::string>& arguments,
                                const Environment& environment, const sigset_t& signal_mask) {
  AUXTRAIL_ASSIGN(Pipe gate, make_pipe());
  AUXTRAIL_ASSIGN(Pipe exec_result, make_pipe());
  std::vector<std::string> argument_texts = arguments;
  std::vector<std::string> variable_texts = child_environment(::environ, environment);
  const std::vector<char*> argument_list = pointers_to(argument_texts);
  const std::vector<char*> variable_list = pointers_to(variable_texts);
  const pid_t pid = ::fork();
  if (pid < 0) return fail_errno("fork", "", errno, "check ulimit -u");
  if (pid == 0) {
    gate.write_end.reset();
    run_child(command.path.c_str(), argument_list.data(), variable_list.data(), signal_mask,
              gate.read_end.get(), exec_result.write_end.get());
  }
  Workload workload;
  workload.pid_ = pid;
  workload.pidfd_.reset(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  workload.gate_ = std::move(gate.write_end);
  workload.exec_result_ = std::move(exec_result.read_end);
  workload.path_ = command.path;
  return workload;
}

Status Workload::start() {
  if (::write(gate_.get(), "g", 1) != 1) return fail_errno("start the command", path_, errno);
  gate_.reset();
  int sys_errno = 0;
  ssize_t got = 0;
  do {
    got = ::read(exec_result_.get(), &sys_errno, sizeof(sys_errno));
  } while (got < 0 && errno == EINTR);
  exec_result_.reset();
  if (got != static_cast<ssize_t>(sizeof(sys_errno))) return {};
  ::waitpid(pid_, nullptr, 0);
  return fail_errno("start the command", path_, sys_errno);
}

std::optional<int> Workload::try_wait() {
  int status = 0;
  if (::waitpid(pid_, &status, WNOHANG) != pid_) return std::nullopt;
  return status;
}

std::vector<std::string> child_environment(const char* const* environment,
                                           const Workload::Environment& additions) {
  const std::string socket = std::string(channel::kSocketVariable) + "=";
  const std::string filters = std::string(channel::kFiltersVariable) + "=";
  std::string preload = std::string(kPreload);
  std::vector<std::string> variables;
  for (; environment != nullptr && *environment != nullptr; ++environment) {
    const std::string_view variable = *environment;
    if (variable.substr(0, socket.size()) == socket) continue;
    if (variable.substr(0, filters.size()) == filters) continue;
    if (variable.substr(0, kPreload.size()) == kPreload) {
      preload = variable;
      continue;
    }
    variables.emplace_back(variable);
  }
  if (preload.size() > kPreload.size()) preload += ':';
  variables.push_back(preload + additions.preload);
  variables.push_back(socket + additions.socket);
  variables.push_back(filters + std::to_string(seccomp_filters()));
  return variables;
}

int shell_status(int wait_status) {
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

}  // namespace auxtrail::record
