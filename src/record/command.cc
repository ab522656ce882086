#include "record/command.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "record/elf_probe.h"
#include "record/obstacle.h"

namespace auxtrail::record {
namespace {

constexpr int kMaxScriptDepth = 5;  // the kernel's own limit for chains of interpreters
constexpr char kDefaultPath[] = "/usr/local/bin:/usr/bin:/bin";

// 0 if the file can be executed, else the errno that execve would give.
int executable_errno(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return errno;
  if (!S_ISREG(status.st_mode)) return EACCES;
  return ::faccessat(AT_FDCWD, path.c_str(), X_OK, AT_EACCESS) == 0 ? 0 : errno;
}

Error cannot_start(const std::string& name, int sys_errno) {
  const bool missing = exit_status_of_start_failure(sys_errno) == 127;
  return {"start the command", name, missing ? "command not found" : std::strerror(sys_errno),
          missing ? "check the spelling and PATH" : "check its permissions", sys_errno};
}

Result<std::string> find_in_path(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    const int sys_errno = executable_errno(name);
    if (sys_errno != 0) return fail(cannot_start(name, sys_errno));
    return name;
  }
  const char* variable = std::getenv("PATH");
  std::istringstream folders(variable != nullptr ? variable : kDefaultPath);
  int worst = ENOENT;
  for (std::string folder; !name.empty() && std::getline(folders, folder, ':');) {
    const std::string path = (folder.empty() ? "." : folder) + "/" + name;
    const int sys_errno = executable_errno(path);
    if (sys_errno == 0) return path;
    if (sys_errno == EACCES) worst = EACCES;
  }
  return fail(cannot_start(name, worst));
}

// The interpreter of a "#!" file, "" if it is none.
std::string script_interpreter(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::array<char, 256> head{};
  file.read(head.data(), head.size() - 1);
  const std::string_view text(head.data(), static_cast<size_t>(file.gcount()));
  if (text.substr(0, 2) != "#!") return "";
  const size_t start = text.find_first_not_of(" \t", 2);
  if (start == std::string_view::npos) return "";
  const size_t end = text.find_first_of(" \t\r\n", start);
  return std::string(text.substr(start, end == std::string_view::npos ? end : end - start));
}

}  // namespace

Result<Command> find_command(const std::string& name) {
  AUXTRAIL_ASSIGN(std::string path, find_in_path(name));
  Command command{path, path};
  for (int depth = 0; depth < kMaxScriptDepth; ++depth) {
    auto facts = probe_elf(command.program);
    if (!facts || facts->has_value()) return command;  // unreadable: checked when it is sampled
    std::string interpreter = script_interpreter(command.program);
    if (interpreter.empty()) interpreter = "/bin/sh";  // what execvp does with other text files
    const int sys_errno = executable_errno(interpreter);
    if (sys_errno != 0) {
      Error error = cannot_start(name, sys_errno);
      error.why = "its interpreter " + interpreter + ": " + std::strerror(sys_errno);
      return fail(std::move(error));
    }
    command.program = std::move(interpreter);
  }
  return fail(cannot_start(name, ELOOP));
}

Status check_can_be_sampled(const Command& command) {
  AUXTRAIL_ASSIGN(const std::optional<Obstacle> obstacle, find_obstacle(command.program));
  if (!obstacle) return {};
  return fail({"sample the program", command.program, obstacle->why, obstacle->fix});
}

int exit_status_of_start_failure(int sys_errno) {
  return sys_errno == ENOENT || sys_errno == ENOTDIR || sys_errno == ENAMETOOLONG ? 127 : 126;
}

}  // namespace auxtrail::record
