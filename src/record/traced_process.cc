#include "record/traced_process.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "record/clock.h"
#include "record/proc_process.h"

namespace auxtrail::record {

using channel::SlotState;

TracedProcess::TracedProcess(Connection connection, const channel::SessionConfig& config)
    : connection_(std::move(connection)),
      data_pages_(config.data_pages),
      aux_pages_(config.aux_pages),
      mode_(config.mode) {}

void TracedProcess::answer_stop_request() {
  std::atomic<uint32_t>& request = header().stop_requested;
  if (request.load(std::memory_order_relaxed) != channel::kStopRequested) return;
  stop_triggers();
  request.store(channel::kStopDone, std::memory_order_release);
}

void TracedProcess::drain(const Context& context) {
  answer_stop_request();
  fill_ = 0;
  find_slots();
  for (uint32_t index = 0; index < channel::kSlotCount; ++index) {
    Slot& slot = slots_[index];
    if (!slot.touched) continue;
    if (!slot.tied && !tie(index, context)) continue;
    drain_slot(slot, context);
    if (mode_ == channel::TraceMode::kFull) drain_aux(index, context);
  }
}

void TracedProcess::find_slots() {
  const size_t stride = channel::slot_stride_bytes(data_pages_, aux_pages_);
  for (uint32_t index = 0; index < channel::kSlotCount; ++index) {
    if (slots_[index].touched) continue;
    const size_t start = channel::slot_offset(index, data_pages_, aux_pages_);
    const off_t found = ::lseek(connection_.memory_fd.get(), static_cast<off_t>(start), SEEK_DATA);
    if (found < 0) return;  // nothing but holes from here on
    index = static_cast<uint32_t>((static_cast<size_t>(found) - channel::kHeaderBytes) / stride);
    if (index < channel::kSlotCount) slots_[index].touched = true;
  }
}

bool TracedProcess::tie(uint32_t index, const Context& context) {
  Slot& slot = slots_[index];
  const channel::SlotView at = view(index);
  if (at.header->state.load(std::memory_order_acquire) != SlotState::kClaimed) return false;
  const auto owner = owner_of(at.header->tid.load(std::memory_order_relaxed), context);
  if (!owner) return false;
  const uint64_t tail = __atomic_load_n(&at.control->data_tail, __ATOMIC_RELAXED) & ~uint64_t{7};
  slot.owner = *owner;
  slot.reader =
      event::RingReader(at.control, at.data, size_t{data_pages_} * channel::kPageBytes, tail);
  slot.tied = true;
  slot.buffer = buffers_++;
  slot.aux_read = slot.aux_lost = slot.aux_copied = 0;
  if (context.new_thread && owner->tid != owner->pid) context.new_thread(owner->pid, owner->tid);
  return true;
}

std::optional<RingOwner> TracedProcess::owner_of(uint32_t inner_tid, const Context& context) const {
  const pid_t pid = connection_.pid;
  const uint32_t inner_pid = connection_.hello.pid;
  if (inner_tid == inner_pid) return RingOwner{pid, pid, inner_pid, inner_tid};
  if (inner_pid != static_cast<uint32_t>(pid)) {  // it lives in a pid namespace of its own
    const auto tid = find_thread_by_inner_tid(pid, static_cast<pid_t>(inner_tid));
    if (!tid) return std::nullopt;
    return RingOwner{pid, *tid, inner_pid, inner_tid};
  }
  const auto tid = static_cast<pid_t>(inner_tid);
  const bool known = context.census.thread_state(pid, tid) != Census::ThreadState::kUnknown;
  if (!known && !thread_exists(pid, tid) && context.census_complete) return std::nullopt;
  return RingOwner{pid, tid, inner_pid, inner_tid};
}

void TracedProcess::drain_slot(Slot& slot, const Context& context) {
  const event::RingReaderCounters before = slot.reader.counters();
  slot.reader.begin();
  const uint64_t now_ns = monotonic_ns();  // after begin(): no record that it saw is younger
  fill_ = std::max(fill_, static_cast<double>(slot.reader.pending_bytes()) /
                              static_cast<double>(size_t{data_pages_} * channel::kPageBytes));
  for (auto bytes = slot.reader.next(context.scratch); !bytes.empty();
       bytes = slot.reader.next(context.scratch)) {
    const std::span<std::byte> record(context.scratch.bytes, bytes.size());
    const SampleCheck::Accepted accepted = context.check.check(record, slot.owner, now_ns);
    switch (accepted.verdict) {
      case SampleCheck::Verdict::kSample:
        ++record_totals_.samples;
        record_totals_.aux_bytes += accepted.aux_bytes;
        break;
      case SampleCheck::Verdict::kLost:
        record_totals_.lost_records += accepted.lost;
        break;
      case SampleCheck::Verdict::kBad:
        ++record_totals_.bad_records;
        continue;
    }
    context.take(accepted.time_ns, record);
  }
  slot.reader.release();
  const event::RingReaderCounters& after = slot.reader.counters();
  record_totals_.bad_rings +=
      after.bad_heads - before.bad_heads + after.corrupt_headers - before.corrupt_headers;
  record_totals_.bad_ring_bytes += after.dropped_bytes - before.dropped_bytes;
}

AuxPiece TracedProcess::piece(uint32_t index, uint64_t from, uint64_t to) const {
  const Slot& slot = slots_[index];
  const uint64_t size = uint64_t{aux_pages_} * channel::kPageBytes;
  const std::byte* const area = view(index).aux;
  const uint64_t start = from & (size - 1);
  const uint64_t first = std::min(to - from, size - start);
  AuxPiece piece;
  piece.owner = slot.owner;
  piece.buffer = slot.buffer;
  piece.offset = from + slot.aux_lost;
  piece.first = {area + start, first};
  piece.second = {area, to - from - first};
  return piece;
}

void TracedProcess::drain_aux(uint32_t index, const Context& context) {
  Slot& slot = slots_[index];
  channel::SlotHeader& header = *view(index).header;
  const uint64_t size = uint64_t{aux_pages_} * channel::kPageBytes;
  const uint64_t written = header.aux_written.load(std::memory_order_acquire);
  const uint64_t lost = header.aux_lost.load(std::memory_order_acquire);
  const uint64_t lost_at = header.aux_lost_at.load(std::memory_order_relaxed);
  if (written - slot.aux_read > size) {  // scribbled over
    ++record_totals_.bad_rings;
    slot.aux_read = written;
    return;
  }
  fill_ = std::max(fill_, static_cast<double>(written - slot.aux_read) / static_cast<double>(size));
  const auto take = [&](uint64_t to, uint64_t flags) {
    if (to == slot.aux_read) return;
    AuxPiece part = piece(index, slot.aux_read, to);
    part.flags = flags;
    context.take_aux(part);
    slot.aux_read = to;
  };
  // The trace has a hole at `lost_at`, which may grow yet. One beyond `written` is for next time;
  // one at `written` has begun, whether bytes are missing already or not.
  const bool has_hole = lost != slot.aux_lost || lost_at == written;
  if (has_hole && lost_at - slot.aux_read <= written - slot.aux_read) {
    take(lost_at, PERF_AUX_FLAG_TRUNCATED);
    add_saturating(record_totals_.aux_lost_bytes, lost - slot.aux_lost);
    slot.aux_lost = lost;
  }
  take(written, 0);
  header.aux_read.store(slot.aux_read, std::memory_order_release);
}

void TracedProcess::snapshot(const Context& context, uint64_t bytes) {
  find_slots();
  for (uint32_t index = 0; index < channel::kSlotCount; ++index) {
    if (slots_[index].touched && (slots_[index].tied || tie(index, context))) {
      snapshot_slot(index, context, bytes);
    }
  }
}

// The thread writes on meanwhile: what it may have overwritten while we copied is left out. One
// that writes over all of it (we may have been off the CPU) is copied anew.
void TracedProcess::snapshot_slot(uint32_t index, const Context& context, uint64_t bytes) {
  constexpr int kTries = 4;
  Slot& slot = slots_[index];
  const std::atomic<uint64_t>& written = view(index).header->aux_written;
  const uint64_t size = uint64_t{aux_pages_} * channel::kPageBytes;
  for (int i = 0; i < kTries; ++i) {
    const uint64_t end = written.load(std::memory_order_acquire);
    if (end == slot.aux_copied) return;
    const std::vector<std::byte> copy(view(index).aux, view(index).aux + size);
    std::atomic_thread_fence(std::memory_order_acquire);
    const uint64_t now = written.load(std::memory_order_relaxed);
    const uint64_t wanted = end - std::min(bytes != 0 ? bytes : size, end);
    const uint64_t safe = size - std::min(channel::kAuxAheadBytes, size);
    if (now < end || now - end >= safe) continue;  // scribbled over, or too late
    const uint64_t begin = std::max(wanted, now - std::min(safe, now));
    AuxPiece part = piece(index, begin, end);
    part.flags = PERF_AUX_FLAG_OVERWRITE;
    part.first = {copy.data() + (part.first.data() - view(index).aux), part.first.size()};
    part.second = {copy.data(), part.second.size()};
    slot.aux_copied = end;
    if (bytes != 0 && begin > wanted) ++record_totals_.short_snapshots;
    return context.take_aux(part);
  }
  ++record_totals_.short_snapshots;
}

void TracedProcess::free_slots(const Census& census, bool look_at_proc) {
  for (uint32_t index = 0; index < channel::kSlotCount; ++index) {
    Slot& slot = slots_[index];
    if (!slot.tied || slot.owner.tid == slot.owner.pid) continue;  // the first thread's stays
    bool gone = census.thread_state(slot.owner.pid, slot.owner.tid) == Census::ThreadState::kExited;
    if (!gone && look_at_proc) {
      const bool missing = !thread_exists(slot.owner.pid, slot.owner.tid);
      gone = std::exchange(slot.thread_missing, missing) && missing;
    }
    if (gone) free_slot(index);
  }
}

// The ring's positions stay as they are: the slot's next owner continues there.
void TracedProcess::free_slot(uint32_t index) {
  channel::SlotHeader& slot_header = *view(index).header;
  freed_totals_.add(slot_header.counters);
  const auto clear = [](std::atomic<uint64_t>& counter) {
    counter.store(0, std::memory_order_relaxed);
  };
  channel::Counters& counters = slot_header.counters;
  for (auto* counter : {&counters.overflows, &counters.deferred, &counters.samples,
                        &counters.lost_samples, &counters.aux_bytes, &counters.branches,
                        &counters.counted_insns, &counters.counted_branches, &counters.native_gaps,
                        &counters.native_ns, &counters.blocks_translated, &counters.window_ns}) {
    clear(*counter);
  }
  for (auto& counter : counters.ended_by) clear(counter);
  slots_[index].tied = false;
  slots_[index].thread_missing = false;
  slot_header.tid.store(0, std::memory_order_relaxed);
  slot_header.state.store(SlotState::kFree, std::memory_order_release);
}

bool TracedProcess::ended() const {
  if (!connection_.pidfd) return ::kill(connection_.pid, 0) != 0 && errno == ESRCH;
  pollfd descriptor{connection_.pidfd.get(), POLLIN, 0};
  return ::poll(&descriptor, 1, 0) > 0;
}

bool TracedProcess::mappings_changed() {
  const uint32_t now = header().maps_changed.load(std::memory_order_relaxed);
  return std::exchange(maps_changed_seen_, now) != now;
}

UnitTotals TracedProcess::unit_totals() const {
  UnitTotals totals = freed_totals_;
  totals.add(header().process);
  add_saturating(totals.no_slot_overflows,
                 header().no_slot_overflows.load(std::memory_order_relaxed));
  for (uint32_t index = 0; index < channel::kSlotCount; ++index) {
    if (slots_[index].touched) totals.add(view(index).header->counters);
  }
  return totals;
}

UnitCounts TracedProcess::first_thread_counts() const {
  for (uint32_t index = 0; index < channel::kSlotCount; ++index) {
    if (!slots_[index].tied || slots_[index].owner.tid != slots_[index].owner.pid) continue;
    const channel::Counters& counters = view(index).header->counters;
    return {counters.counted_insns.load(std::memory_order_relaxed),
            counters.counted_branches.load(std::memory_order_relaxed)};
  }
  return {};
}

uint64_t TracedProcess::untied_slots() const {
  uint64_t count = 0;
  for (uint32_t index = 0; index < channel::kSlotCount; ++index) {
    if (!slots_[index].touched || slots_[index].tied) continue;
    if (view(index).header->state.load(std::memory_order_relaxed) == SlotState::kClaimed) ++count;
  }
  return count;
}

channel::SlotView TracedProcess::view(uint32_t index) const {
  return channel::slot_view(connection_.memory.data(), index, data_pages_, aux_pages_);
}

channel::ProcessHeader& TracedProcess::header() const {
  return *reinterpret_cast<channel::ProcessHeader*>(connection_.memory.data());
}

}  // namespace auxtrail::record
