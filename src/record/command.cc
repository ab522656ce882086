#include "record/command.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "record/elf_probe.h"

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

tl::unexpected<Error> refuse(const Command& command, std::string why, std::string fix) {
  return fail({"sample the program", command.program, std::move(why), std::move(fix)});
}

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

constexpr std::string_view kLoaderName = "ld-linux-x86-64.so";

bool is_loader_name(const std::string& path) {
  return base_name(path).compare(0, kLoaderName.size(), kLoaderName) == 0;
}

// Whether the program is glibc's loader, run by name: it has no interpreter yet obeys LD_PRELOAD.
bool is_loader_itself(const std::string& path) {
  std::array<char, 4096> real{};
  if (::realpath(path.c_str(), real.data()) == nullptr) return false;
  return is_loader_name(path) || is_loader_name(real.data());
}

Status check_elf(const Command& command, const ElfFacts& facts) {
  if (!facts.is_64bit || facts.machine != EM_X86_64) {
    return refuse(command,
                  facts.machine == EM_386 || facts.machine == EM_X86_64
                      ? "it is a 32-bit program; the software trace unit follows 64-bit code only"
                      : "it is built for another machine than x86-64",
                  "record a 64-bit x86 build of it");
  }
  if (facts.interpreter.empty() && !is_loader_itself(command.program)) {
    return refuse(command, "it is statically linked, so the trace unit cannot be preloaded into it",
                  "record a dynamically linked build of it");
  }
  if (!facts.interpreter.empty() && !is_loader_name(facts.interpreter)) {
    return refuse(command,
                  "it uses the loader " + facts.interpreter + ", the trace unit needs glibc's",
                  "record a build that is linked to glibc");
  }
  return {};
}

bool mounted_nosuid(const std::string& path) {
  struct statvfs status {};
  return ::statvfs(path.c_str(), &status) == 0 && (status.f_flag & ST_NOSUID) != 0;
}

// The loader ignores LD_PRELOAD when running the file changes the caller's rights.
Status check_rights(const Command& command) {
  struct stat status {};
  if (::stat(command.program.c_str(), &status) != 0 || mounted_nosuid(command.program)) return {};
  const bool changes_user = (status.st_mode & S_ISUID) != 0 && status.st_uid != ::getuid();
  const bool changes_group =
      (status.st_mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP) && status.st_gid != ::getgid();
  const char* fix = "record it as the user it runs as, or record a copy without the rights";
  if (changes_user || changes_group) {
    return refuse(command,
                  std::string("it is set-") + (changes_user ? "user" : "group") +
                      "-id, so the loader ignores the preloaded trace unit",
                  fix);
  }
  if (::getuid() != 0 &&
      ::getxattr(command.program.c_str(), "security.capability", nullptr, 0) > 0) {
    return refuse(command, "it has file capabilities, so the loader ignores the trace unit", fix);
  }
  return {};
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
  AUXTRAIL_ASSIGN(const std::optional<ElfFacts> facts, probe_elf(command.program));
  if (!facts) return refuse(command, "it is no ELF program", "");
  AUXTRAIL_TRY(check_elf(command, *facts));
  return check_rights(command);
}

int exit_status_of_start_failure(int sys_errno) {
  return sys_errno == ENOENT || sys_errno == ENOTDIR || sys_errno == ENAMETOOLONG ? 127 : 126;
}

}  // namespace auxtrail::record
