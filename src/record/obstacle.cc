#include "record/obstacle.h"

#include <elf.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string_view>

#include "record/elf_probe.h"

namespace auxtrail::record {
namespace {

std::string_view base_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

bool is_loader_name(std::string_view path) {
  return base_name(path).starts_with("ld-linux-x86-64.so");
}

// Whether the program is glibc's loader, run by name: it has no interpreter yet obeys LD_PRELOAD.
bool is_loader_itself(const std::string& path) {
  std::array<char, 4096> real{};
  if (::realpath(path.c_str(), real.data()) == nullptr) return false;
  return is_loader_name(path) || is_loader_name(real.data());
}

std::optional<Obstacle> obstacle_in_elf(const std::string& program, const ElfFacts& facts) {
  const bool is_x86 = facts.machine == EM_386 || facts.machine == EM_X86_64;
  if (!is_x86) {
    return Obstacle{"other machine", "it is built for another machine than x86-64",
                    "record an x86-64 build of it"};
  }
  if (!facts.is_64bit || facts.machine != EM_X86_64) {
    return Obstacle{"32-bit",
                    "it is a 32-bit program; the software trace unit follows 64-bit code only",
                    "record a 64-bit build of it"};
  }
  if (facts.interpreter.empty() && !is_loader_itself(program)) {
    return Obstacle{"static",
                    "it is statically linked, so the trace unit cannot be preloaded into it",
                    "record a dynamically linked build of it"};
  }
  if (!facts.interpreter.empty() && !is_loader_name(facts.interpreter)) {
    return Obstacle{"other C library",
                    "it uses the loader " + facts.interpreter + ", the trace unit needs glibc's",
                    "record a build that is linked to glibc"};
  }
  return std::nullopt;
}

bool mounted_nosuid(const std::string& path) {
  struct statvfs status {};
  return ::statvfs(path.c_str(), &status) == 0 && (status.f_flag & ST_NOSUID) != 0;
}

// The loader ignores LD_PRELOAD when running the file changes the caller's rights.
std::optional<Obstacle> obstacle_in_rights(const std::string& program) {
  struct stat status {};
  if (::stat(program.c_str(), &status) != 0 || mounted_nosuid(program)) return std::nullopt;
  const char* fix = "record it as the user it runs as, or record a copy without the rights";
  if ((status.st_mode & S_ISUID) != 0 && status.st_uid != ::getuid()) {
    return Obstacle{"set-user-id",
                    "it is set-user-id, so the loader ignores the preloaded trace unit", fix};
  }
  constexpr mode_t kSetGroup = S_ISGID | S_IXGRP;
  if ((status.st_mode & kSetGroup) == kSetGroup && status.st_gid != ::getgid()) {
    return Obstacle{"set-group-id",
                    "it is set-group-id, so the loader ignores the preloaded trace unit", fix};
  }
  if (::getuid() != 0 && ::getxattr(program.c_str(), "security.capability", nullptr, 0) > 0) {
    return Obstacle{"file capabilities",
                    "it has file capabilities, so the loader ignores the trace unit", fix};
  }
  return std::nullopt;
}

}  // namespace

Result<std::optional<Obstacle>> find_obstacle(const std::string& program) {
  AUXTRAIL_ASSIGN(const std::optional<ElfFacts> facts, probe_elf(program));
  if (!facts) return Obstacle{"no ELF program", "it is no ELF program", ""};
  if (auto obstacle = obstacle_in_elf(program, *facts)) return obstacle;
  return obstacle_in_rights(program);
}

}  // namespace auxtrail::record
