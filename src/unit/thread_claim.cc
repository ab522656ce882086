// See thread_claim.h. Raw system calls only.
#include "unit/thread_claim.h"

#include <sys/mman.h>

#include "unit/code_cache.h"
#include "unit/session.h"
#include "unit/sys.h"
#include "unit/thread_state.h"
#include "unit/window.h"
#include "unit/window_parts.h"

namespace auxtrail::unit {

namespace {

using channel::SessionConfig;

// Thread, stack and log in one lazily committed mapping.
Thread* map_thread() {
  constexpr size_t kGuard = 4096;
  constexpr size_t kThreadBytes = sys::page_up(sizeof(Thread));
  constexpr size_t kTotal = kGuard + kUnitStackBytes + kThreadBytes + 2 * kLogAlignment;
  auto* at = static_cast<char*>(sys::mmap(nullptr, kTotal, PROT_READ | PROT_WRITE,
                                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE));
  if (at == nullptr) return nullptr;
  (void)sys::call(SYS_mprotect, sys::arg(at), kGuard, PROT_NONE);
  char* stack_top = at + kGuard + kUnitStackBytes;
  auto* thread = new (stack_top) Thread();
  thread->stack_top = reinterpret_cast<uint64_t>(stack_top);
  const auto log_area = reinterpret_cast<uint64_t>(stack_top + kThreadBytes);
  thread->log_end = (log_area + 2 * kLogAlignment - kLogOverrunBytes) & ~(kLogAlignment - 1);
  return thread;
}

// `bytes` of the shared memory at `at`, mapped twice in a row, so that packets run over the end of
// the area into its beginning; null if that can't be had. The mapping stays: threads that follow
// each other in a slot use the same one.
std::byte* map_twice(std::byte* at, size_t bytes) {
  void* const room =
      sys::mmap(nullptr, 2 * bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
  if (room == nullptr) return nullptr;
  auto* const start = static_cast<std::byte*>(room);
  for (std::byte* const place : {start, start + bytes}) {
    // With an old size of 0, a shared mapping is not moved but mapped once more.
    const long result = sys::call(SYS_mremap, sys::arg(at), 0, static_cast<long>(bytes),
                                  MREMAP_MAYMOVE | MREMAP_FIXED, sys::arg(place));
    if (!sys::is_error(result)) continue;
    sys::munmap(room, 2 * bytes);
    return nullptr;
  }
  return start;
}

bool prepare_thread(Thread& thread, uint32_t tid, const channel::SlotView& slot) {
  const SessionConfig& config = session.config;
  thread.slot = slot;
  thread.held_signals = 0;
  thread.holds_lock = false;
  thread.leaving = false;
  thread.delivering = false;
  thread.pt.windowed = true;
  thread.pt.unit.caps = abi::kSoftwareUnitCaps;
  thread.history_has_psb = false;
  thread.packet_en = false;
  thread.trace_stopped = false;
  thread.code_changes = code_cache.code_changes();
  thread.choked = false;
  thread.ring_choked = false;
  slot.header->aux_written.store(0);
  slot.header->aux_read.store(0);
  slot.header->aux_lost.store(0);
  slot.header->aux_lost_at.store(0);
  thread.gate_rsp = 0;
  thread.samples_due = 0;
  thread.due_address = 0;
  thread.due_weight = 0;
  thread.last_pc = 0;
  thread.stepping = false;
  start_counting(thread, tid);
  thread.log_units = window_config.stretch_units;
  defer_packets(thread, window_config.deferred);
  // A sampler of page faults must not see the log's.
  if (!thread.deferred.active) {
    sys::touch(thread.log_end - kMaxStretchUnits * sizeof(LogEntry),
               thread.log_end + kLogOverrunBytes);
  }
  const uint64_t data_bytes = uint64_t{config.data_pages} * channel::kPageBytes;
  const uint64_t aux_bytes = uint64_t{config.aux_pages} * channel::kPageBytes;
  if (slot.control->data_size != data_bytes) {  // first owner of this slot
    event::DataRing::init_control_page(*slot.control, channel::kPageBytes, data_bytes);
  }
  if (config.continuous != 0 && thread.mirror == nullptr) {
    thread.mirror = map_twice(slot.aux, aux_bytes);
  }
  event::ThreadConfig::Sampler more[channel::kMaxSamplers - 1];
  for (uint32_t i = 1; i < config.sampler_count; ++i) {
    more[i - 1] = {&config.samplers[i].attr, config.samplers[i].id, config.samplers[i].group};
  }
  return thread.engine.init({.leader = &config.leader,
                             .sampler = &config.samplers[0].attr,
                             .leader_id = config.leader_id,
                             .sampler_id = config.samplers[0].id,
                             .sampler_group = config.samplers[0].group,
                             .more_samplers = more,
                             .more_sampler_count = config.sampler_count - 1,
                             .leader_pmu = &pmu::kIntelPt,
                             .leader_context = &thread.pt,
                             .tid = tid,
                             .control = slot.control,
                             .data = slot.data,
                             .data_bytes = data_bytes,
                             .aux = thread.mirror != nullptr ? thread.mirror : slot.aux,
                             .aux_bytes = aux_bytes,
                             .aux_mirrored = thread.mirror != nullptr}) == 0;
}

}  // namespace

Thread* claim_thread(uint32_t tid) {
  for (uint32_t i = 0; i < channel::kSlotCount; ++i) {
    const channel::SlotView slot =
        channel::slot_view(session.memory, i, session.config.data_pages, session.config.aux_pages);
    auto expected = channel::SlotState::kFree;
    if (!slot.header->state.compare_exchange_strong(expected, channel::SlotState::kPreparing)) {
      continue;
    }
    slot.header->tid.store(tid);
    slot.header->pid.store(window_config.pid);
    if (session.threads[i] == nullptr) session.threads[i] = map_thread();
    Thread* thread = session.threads[i];
    if (thread != nullptr && prepare_thread(*thread, tid, slot)) {
      slot.header->state.store(channel::SlotState::kClaimed, std::memory_order_release);
      return thread;
    }
    slot.header->state.store(channel::SlotState::kFree);
    return nullptr;
  }
  return nullptr;
}

}  // namespace auxtrail::unit
