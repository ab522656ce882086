// What /proc tells about a process: its mappings, name and parent. The source of side-band records
// where the kernel's own may not be had.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace auxtrail::record {

struct ProcMapping {
  uint64_t start = 0;
  uint64_t end = 0;
  uint64_t file_offset = 0;
  uint32_t device_major = 0;
  uint32_t device_minor = 0;
  uint64_t inode = 0;
  uint32_t protection = 0;  // PROT_*
  uint32_t flags = 0;       // MAP_SHARED or MAP_PRIVATE
  std::string path;         // "//anon" for anonymous memory, as the kernel's records have it

  bool operator==(const ProcMapping&) const = default;
};

struct ProcProcess {
  pid_t pid = 0;
  pid_t parent = 0;
  std::string name;
  std::vector<ProcMapping> code;  // executable mappings only
};

// The executable mappings in the text of a /proc/PID/maps; malformed lines are skipped.
std::vector<ProcMapping> parse_code_mappings(std::string_view maps_text);

// Reads them all; members stay empty for a process that is gone or may not be looked at.
ProcProcess read_process(pid_t pid);

std::string read_thread_name(pid_t pid, pid_t tid);
bool thread_exists(pid_t pid, pid_t tid);
// The thread of `pid` that calls itself `inner_tid` in its own pid namespace; nothing if none does.
std::optional<pid_t> find_thread_by_inner_tid(pid_t pid, pid_t inner_tid);

}  // namespace auxtrail::record
