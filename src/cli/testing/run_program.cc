#include "cli/testing/run_program.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace auxtrail::cli::testing {
namespace {

void redirect(const std::string& path, int flags, int to) {
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC, 0600);
  if (fd < 0 || ::dup2(fd, to) < 0) ::_exit(125);
}

[[noreturn]] void run_child(const std::vector<std::string>& command, const RunOptions& options,
                            const TemporaryFolder& files) {
  redirect(files.path("in"), O_RDONLY, STDIN_FILENO);
  redirect(files.path("out"), O_WRONLY | O_CREAT | O_TRUNC, STDOUT_FILENO);
  redirect(files.path("err"), O_WRONLY | O_CREAT | O_TRUNC, STDERR_FILENO);
  for (const auto& [name, value] : options.environment) {
    ::setenv(name.c_str(), value.c_str(), 1);
  }
  if (!options.folder.empty() && ::chdir(options.folder.c_str()) != 0) ::_exit(125);
  if (options.in_child) options.in_child();
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  ::_exit(127);
}

}  // namespace

int Ended::exit_status() const { return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : -1; }
int Ended::signal() const { return WIFSIGNALED(wait_status) ? WTERMSIG(wait_status) : 0; }

Ended run_program(const std::vector<std::string>& command, const RunOptions& options) {
  const TemporaryFolder files;
  write_file(files.path("in"), options.input);
  const pid_t pid = ::fork();
  if (pid == 0) run_child(command, options, files);
  if (options.meanwhile) options.meanwhile(pid);
  Ended ended;
  ::waitpid(pid, &ended.wait_status, 0);
  ended.out = read_file(files.path("out"));
  ended.err = read_file(files.path("err"));
  return ended;
}

void deny_perf_events() {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_perf_event_open, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{std::size(program), program};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
    ::_exit(125);
  }
}

TemporaryFolder::TemporaryFolder() {
  path_ = (std::filesystem::temp_directory_path() / "auxtrail-test-XXXXXX").string();
  if (::mkdtemp(path_.data()) == nullptr) std::abort();
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string TemporaryFolder::path(const std::string& name) const {
  return name.empty() ? path_ : path_ + "/" + name;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

}  // namespace auxtrail::cli::testing
