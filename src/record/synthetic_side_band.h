// SyntheticSideBand: side-band records made from /proc, where the kernel refuses its own.
//
// Built for each process when its trace unit connects (the process waits for the recorder at that
// moment, so its mappings stand still), and again when the unit tells that executable mappings
// changed. What happened between two looks is dated to the earlier one, so that no sample comes
// before the mapping it ran in; code that was mapped and unmapped in between is missed.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <span>
#include <unordered_map>
#include <vector>

#include "abi/sample.h"
#include "base/bytes.h"
#include "record/proc_process.h"

namespace auxtrail::record {

class SyntheticSideBand {
 public:
  using Take = std::function<void(std::span<const std::byte>)>;

  SyntheticSideBand(abi::SampleFormat format, uint64_t event_id)
      : format_(format), event_id_(event_id) {}

  // FORK, COMM (as after an exec: the address space starts anew) and MMAP2 of a process.
  void add_process(const ProcProcess& process, uint64_t time_ns, const Take& take);
  // MMAP2 for executable mappings that were not there at the last look.
  void update_mappings(const ProcProcess& process, uint64_t time_ns, const Take& take);
  // FORK and COMM of a further thread.
  void add_thread(pid_t pid, pid_t tid, const std::string& name, uint64_t time_ns,
                  const Take& take);
  // EXIT of the process.
  void end_process(pid_t pid, uint64_t time_ns, const Take& take);

 private:
  [[nodiscard]] abi::SampleId id_of(pid_t pid, pid_t tid, uint64_t time_ns) const;
  void add_mapping(pid_t pid, const ProcMapping& mapping, uint64_t time_ns, const Take& take);
  void add_comm(pid_t pid, pid_t tid, const std::string& name, bool exec, uint64_t time_ns,
                const Take& take);

  abi::SampleFormat format_;
  uint64_t event_id_;
  std::unordered_map<pid_t, std::vector<ProcMapping>> known_;
};

}  // namespace auxtrail::record
