#include "record/proc_process.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace auxtrail::record {
namespace {

std::string read_text(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

uint32_t protection_of(std::string_view letters) {
  return (letters[0] == 'r' ? PROT_READ : 0U) | (letters[1] == 'w' ? PROT_WRITE : 0U) |
         (letters[2] == 'x' ? PROT_EXEC : 0U);
}

bool parse_line(const std::string& line, ProcMapping& mapping) {
  char letters[5] = {};
  unsigned long start = 0;
  unsigned long end = 0;
  unsigned long offset = 0;
  unsigned long inode = 0;
  int path_at = 0;
  const int fields =
      std::sscanf(line.c_str(), "%lx-%lx %4s %lx %x:%x %lu %n", &start, &end, letters, &offset,
                  &mapping.device_major, &mapping.device_minor, &inode, &path_at);
  if (fields != 7 || letters[3] == '\0') return false;
  mapping.start = start;
  mapping.end = end;
  mapping.file_offset = offset;
  mapping.inode = inode;
  mapping.protection = protection_of(letters);
  mapping.flags = letters[3] == 's' ? MAP_SHARED : MAP_PRIVATE;
  mapping.path = line.substr(static_cast<size_t>(path_at));
  if (mapping.path.empty()) mapping.path = "//anon";
  return true;
}

std::string read_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The fourth field of /proc/PID/stat; the second may hold blanks and brackets.
pid_t read_parent(pid_t pid) {
  const std::string line = read_line(fmt::format("/proc/{}/stat", pid));
  const size_t after_name = line.rfind(')');
  if (after_name == std::string::npos) return 0;
  char state = 0;
  int parent = 0;
  return std::sscanf(line.c_str() + after_name + 1, " %c %d", &state, &parent) == 2 ? parent : 0;
}

}  // namespace

std::vector<ProcMapping> parse_code_mappings(std::string_view maps_text) {
  std::vector<ProcMapping> code;
  std::istringstream lines{std::string(maps_text)};
  for (std::string line; std::getline(lines, line);) {
    ProcMapping mapping;
    if (!parse_line(line, mapping) || (mapping.protection & PROT_EXEC) == 0) continue;
    if (mapping.path == "[vsyscall]") continue;  // the kernel's own records leave it out, too
    code.push_back(std::move(mapping));
  }
  return code;
}

ProcProcess read_process(pid_t pid) {
  ProcProcess process;
  process.pid = pid;
  process.parent = read_parent(pid);
  process.name = read_line(fmt::format("/proc/{}/comm", pid));
  process.code = parse_code_mappings(read_text(fmt::format("/proc/{}/maps", pid)));
  return process;
}

std::string read_thread_name(pid_t pid, pid_t tid) {
  return read_line(fmt::format("/proc/{}/task/{}/comm", pid, tid));
}

bool thread_exists(pid_t pid, pid_t tid) {
  return ::access(fmt::format("/proc/{}/task/{}", pid, tid).c_str(), F_OK) == 0;
}

std::optional<pid_t> find_thread_by_inner_tid(pid_t pid, pid_t inner_tid) {
  std::error_code ignored;
  const std::string folder = fmt::format("/proc/{}/task", pid);
  for (const auto& task : std::filesystem::directory_iterator(folder, ignored)) {
    std::ifstream status(task.path() / "status");
    for (std::string line; std::getline(status, line);) {
      if (line.compare(0, 6, "NSpid:") != 0) continue;
      const size_t last = line.find_last_of("\t ");
      if (std::atoi(line.c_str() + last + 1) == inner_tid) {
        return std::atoi(task.path().filename().c_str());
      }
    }
  }
  return std::nullopt;
}

}  // namespace auxtrail::record
