#include "record/synthetic_side_band.h"

#include <linux/perf_event.h>

#include <algorithm>

#include "abi/side_band_build.h"

namespace auxtrail::record {

abi::SampleId SyntheticSideBand::id_of(pid_t pid, pid_t tid, uint64_t time_ns) const {
  abi::SampleId id;
  id.pid = static_cast<uint32_t>(pid);
  id.tid = static_cast<uint32_t>(tid);
  id.time_ns = time_ns;
  id.id = event_id_;
  return id;
}

void SyntheticSideBand::add_process(const ProcProcess& process, uint64_t time_ns,
                                    const Take& take) {
  ByteWriter out;
  abi::TaskRecord fork;
  fork.id = id_of(process.parent, process.parent, time_ns);
  fork.pid = fork.tid = static_cast<uint32_t>(process.pid);
  fork.parent_pid = fork.parent_tid = static_cast<uint32_t>(process.parent);
  fork.time_ns = time_ns;
  abi::append_fork(out, format_, fork);
  take(out.bytes());
  add_comm(process.pid, process.pid, process.name, true, time_ns, take);
  for (const ProcMapping& mapping : process.code) add_mapping(process.pid, mapping, time_ns, take);
  known_[process.pid] = process.code;
}

void SyntheticSideBand::update_mappings(const ProcProcess& process, uint64_t time_ns,
                                        const Take& take) {
  if (process.code.empty()) return;  // gone, or not to be looked at
  std::vector<ProcMapping>& known = known_[process.pid];
  for (const ProcMapping& mapping : process.code) {
    if (std::find(known.begin(), known.end(), mapping) == known.end()) {
      add_mapping(process.pid, mapping, time_ns, take);
    }
  }
  known = process.code;
}

void SyntheticSideBand::add_thread(pid_t pid, pid_t tid, const std::string& name, uint64_t time_ns,
                                   const Take& take) {
  ByteWriter out;
  abi::TaskRecord fork;
  fork.id = id_of(pid, pid, time_ns);
  fork.pid = fork.parent_pid = fork.parent_tid = static_cast<uint32_t>(pid);
  fork.tid = static_cast<uint32_t>(tid);
  fork.time_ns = time_ns;
  abi::append_fork(out, format_, fork);
  take(out.bytes());
  if (!name.empty()) add_comm(pid, tid, name, false, time_ns, take);
}

void SyntheticSideBand::end_process(pid_t pid, uint64_t time_ns, const Take& take) {
  if (known_.erase(pid) == 0) return;
  ByteWriter out;
  abi::TaskRecord exit;
  exit.id = id_of(pid, pid, time_ns);
  exit.pid = exit.tid = exit.parent_pid = exit.parent_tid = static_cast<uint32_t>(pid);
  exit.time_ns = time_ns;
  abi::append_exit(out, format_, exit);
  take(out.bytes());
}

void SyntheticSideBand::add_mapping(pid_t pid, const ProcMapping& mapping, uint64_t time_ns,
                                    const Take& take) {
  ByteWriter out;
  abi::MmapRecord record;
  record.id = id_of(pid, pid, time_ns);
  record.misc = PERF_RECORD_MISC_USER;
  record.pid = record.tid = static_cast<uint32_t>(pid);
  record.address = mapping.start;
  record.size_bytes = mapping.end - mapping.start;
  record.file_offset = mapping.file_offset;
  record.device_major = mapping.device_major;
  record.device_minor = mapping.device_minor;
  record.inode = mapping.inode;
  record.protection = mapping.protection;
  record.flags = mapping.flags;
  record.path = mapping.path;
  abi::append_mmap2(out, format_, record);
  take(out.bytes());
}

void SyntheticSideBand::add_comm(pid_t pid, pid_t tid, const std::string& name, bool exec,
                                 uint64_t time_ns, const Take& take) {
  ByteWriter out;
  abi::CommRecord record;
  record.id = id_of(pid, tid, time_ns);
  record.pid = static_cast<uint32_t>(pid);
  record.tid = static_cast<uint32_t>(tid);
  record.exec = exec;
  record.name = name;
  abi::append_comm(out, format_, record);
  take(out.bytes());
}

}  // namespace auxtrail::record
