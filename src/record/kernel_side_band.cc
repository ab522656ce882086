#include "record/kernel_side_band.h"

#include <fmt/format.h>
#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "abi/sample_layout.h"
#include "record/machine.h"
#include "record/session_config.h"

namespace auxtrail::record {
namespace {

// Maps the event's ring, halving it until the locked-memory limit allows it.
Result<Mapping> map_ring(int event, size_t ring_bytes, uint32_t cpu) {
  int sys_errno = EPERM;
  for (size_t bytes = ring_bytes; bytes >= channel::kPageBytes; bytes /= 2) {
    const size_t size = bytes + channel::kPageBytes;
    void* address = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, event, 0);
    if (address != MAP_FAILED) return Mapping(address, size);
    sys_errno = errno;
    if (sys_errno != EPERM && sys_errno != ENOMEM) break;
  }
  return fail_errno("map the side-band ring", fmt::format("cpu {}", cpu), sys_errno,
                    "raise /proc/sys/kernel/perf_event_mlock_kb or ulimit -l");
}

}  // namespace

Result<KernelSideBand> KernelSideBand::open(pid_t pid, const channel::SessionConfig& config,
                                            size_t ring_bytes) {
  KernelSideBand side_band;
  side_band.leader_id_ = config.leader_id;
  perf_event_attr attr = side_band_attr(config);
  side_band.identifier_from_end_ =
      abi::trailer_field_offset_from_end(attr.sample_type, abi::SampleField::kIdentifier);
  for (const uint32_t cpu : online_cpus()) {
    Ring ring;
    ring.event.reset(static_cast<int>(::syscall(SYS_perf_event_open, &attr, pid,
                                                static_cast<int>(cpu), -1, PERF_FLAG_FD_CLOEXEC)));
    if (!ring.event) {
      return fail_errno("open the side-band event", fmt::format("cpu {}", cpu), errno,
                        "lower /proc/sys/kernel/perf_event_paranoid to 2");
    }
    AUXTRAIL_ASSIGN(ring.memory, map_ring(ring.event.get(), ring_bytes, cpu));
    ring.data_bytes = ring.memory.size_bytes() - channel::kPageBytes;
    ring.reader = event::RingReader(reinterpret_cast<perf_event_mmap_page*>(ring.memory.data()),
                                    ring.memory.data() + channel::kPageBytes, ring.data_bytes);
    side_band.rings_.push_back(std::move(ring));
  }
  return side_band;
}

void KernelSideBand::drain(const std::function<void(std::span<const std::byte>)>& take) {
  fill_ = 0;
  for (Ring& ring : rings_) {
    ring.reader.begin();
    fill_ = std::max(fill_, static_cast<double>(ring.reader.pending_bytes()) /
                                static_cast<double>(ring.data_bytes));
    for (auto record = ring.reader.next(*scratch_); !record.empty();
         record = ring.reader.next(*scratch_)) {
      if (record.size() >= sizeof(perf_event_header) + identifier_from_end_) {
        std::memcpy(scratch_->bytes + record.size() - identifier_from_end_, &leader_id_,
                    sizeof(leader_id_));
      }
      take(record);
    }
    ring.reader.release();
  }
}

}  // namespace auxtrail::record
