// Address spaces over time: which file lies at an address of a process at a moment.
//
// Built from perf's side-band events in any order; lookups sort them by time (stable, so that equal
// times keep the file's order) on first use. The rules are the kernel's: a mapping hides what it
// overlaps, fork copies the parent's mappings, exec (COMM with the exec flag) drops all of them, a
// new process that takes over a dead one's pid starts from scratch. munmap is not recorded: a
// mapping lives until it is overlapped.
//
//   events ──sort──► per pid: [ m0 m1 exec m2 m3 ... ]   layout(pid, time) = the mappings after the
//   last
//                                     ▲ fork: copy        event with event time <= time
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "image/dso.h"

namespace auxtrail::image {

// [start, end) of the process shows the DSO's bytes from file_offset on.
struct Mapping {
  uint64_t start = 0;
  uint64_t end = 0;
  uint64_t file_offset = 0;
  const Dso* dso = nullptr;

  [[nodiscard]] bool contains(uint64_t address) const { return start <= address && address < end; }
  [[nodiscard]] uint64_t offset_of(uint64_t address) const { return address - start + file_offset; }
};

// All mappings of one process at one moment, sorted by address, without overlaps. Immutable.
struct Layout {
  uint64_t id = 0;  // unique per AddressSpaces; equal ids mean equal mappings
  std::vector<Mapping> mappings;

  // The mapping that holds `address`, or nullptr.
  [[nodiscard]] const Mapping* find(uint64_t address) const;
};

// Not thread safe. `dsos` must outlive it.
class AddressSpaces {
 public:
  explicit AddressSpaces(DsoTable& dsos);
  ~AddressSpaces();

  // MMAP or MMAP2 of executable memory. An empty size is ignored; an end beyond 2^64 is cut.
  void add_mapping(int32_t pid, uint64_t time_ns, uint64_t start, uint64_t size_bytes,
                   uint64_t file_offset, std::string_view path, const BuildId& build_id = {});
  // FORK: a new process (pid != parent_pid) or only a thread (equal: no effect on mappings). The
  // thread `tid` has the name of its parent.
  void add_fork(int32_t pid, int32_t tid, int32_t parent_pid, int32_t parent_tid, uint64_t time_ns);
  // COMM: the name of a thread; with `exec` the mappings of the process end.
  void add_comm(int32_t pid, int32_t tid, uint64_t time_ns, std::string_view comm, bool exec);
  void add_exit(int32_t pid, int32_t tid, uint64_t time_ns);

  // The mappings of `pid` at `time_ns`; never null, empty for an unknown process.
  // Cheap when asked in time order.
  std::shared_ptr<const Layout> layout(int32_t pid, uint64_t time_ns);

  // When the mappings of `pid` may change next after `time_ns`; the end of time if never.
  uint64_t next_change_ns(int32_t pid, uint64_t time_ns);

  // The thread's name at that time: its own last COMM, else the one its parent had at the fork,
  // else the process's; empty if unknown.
  std::string_view comm(int32_t pid, int32_t tid, uint64_t time_ns);

  [[nodiscard]] DsoTable& dsos() { return dsos_; }

 private:
  struct Event;
  struct Space;
  struct Naming {
    uint64_t time_ns = 0;
    bool is_fork = false;
    int32_t parent_tid = 0;  // of a fork
    std::string name;        // else
  };
  std::string_view thread_name(int32_t tid, uint64_t time_ns, unsigned depth) const;
  static constexpr unsigned kMaxForkDepth = 1000;  // ends cycles of pids in a damaged file
  void sort_events();
  std::shared_ptr<const Layout> layout_at(int32_t pid, uint64_t time_ns, unsigned depth);
  std::shared_ptr<const Layout> replay(const Space& space, size_t from, size_t to,
                                       std::shared_ptr<const Layout> base, unsigned depth);

  DsoTable& dsos_;
  std::unordered_map<int32_t, Space> spaces_;
  std::unordered_map<int32_t, std::vector<Naming>> namings_;  // by tid
  uint64_t next_layout_id_ = 1;
  bool sorted_ = true;
};

}  // namespace auxtrail::image
