#include "pmu/intel_bts.h"

#include <cerrno>

#include "event/inline_copy.h"

namespace auxtrail::pmu {
namespace {

using event::AuxArea;
using event::Event;
using event::OutputHandle;
using event::signal_barrier;

// How long before the end the CPU interrupts, so that nothing is lost until the handler runs.
constexpr uint64_t kSafetyMargin = 170 * kBtsRecordBytes;

BtsContext& context_of(const Event& event) { return *static_cast<BtsContext*>(event.hw.context); }

uint64_t whole_records(uint64_t size_bytes) { return size_bytes - size_bytes % kBtsRecordBytes; }
uint64_t smaller(uint64_t a, uint64_t b) { return a < b ? a : b; }

uint64_t control_bits(const Event& event, const BtsContext& bts) {
  uint64_t bits = debugctl::kTr | debugctl::kBts;
  if (!bts.snapshot) bits |= debugctl::kBtint;
  if (event.attr.exclude_kernel != 0) bits |= debugctl::kBtsOffOs;
  if (event.attr.exclude_user != 0) bits |= debugctl::kBtsOffUser;
  return bits;
}

void switch_on(const Event& event, const BtsContext& bts) {
  bts.unit.control(bts.unit.self, control_bits(event, bts));
}
void switch_off(const BtsContext& bts) { bts.unit.control(bts.unit.self, 0); }

// Where the CPU's next record goes; what we saw last where the DS area is not (yet) ours.
uint64_t current_head(const BtsContext& bts) {
  if (!bts.configured.load()) return bts.head;
  const DebugStore& ds = *bts.unit.ds;
  const uint64_t head = ds.bts_index - ds.bts_buffer_base;
  return head <= bts.used_bytes && head % kBtsRecordBytes == 0 ? head : bts.head;
}

// The kernel's bts_config_buffer.
void configure(BtsContext& bts) {
  DebugStore& ds = *bts.unit.ds;
  const auto base = reinterpret_cast<uint64_t>(bts.area->bytes());
  const uint64_t end = bts.snapshot ? bts.used_bytes : bts.end;
  const uint64_t left = end - bts.head;
  uint64_t threshold = end;
  if (left > kSafetyMargin) {
    threshold = end - kSafetyMargin;
  } else if (left > kBtsRecordBytes) {
    threshold = end - kBtsRecordBytes;
  }
  bts.configured.store(false);
  signal_barrier();
  ds.bts_buffer_base = base;
  ds.bts_index = base + bts.head;
  ds.bts_absolute_maximum = base + end;
  ds.bts_interrupt_threshold = bts.snapshot ? base + end + kBtsRecordBytes : base + threshold;
  signal_barrier();
  bts.configured.store(true);
}

void go(const Event& event, BtsContext& bts) {
  configure(bts);
  signal_barrier();
  bts.active.store(true);
  signal_barrier();
  switch_on(event, bts);
}

// The part of the area that the transaction may use: what is left of it before its end, or, if that
// is little, what is free at its begin. 0, or ENOSPC. The kernel's bts_buffer_reset.
int find_space(BtsContext& bts) {
  if (bts.snapshot) {
    bts.head = bts.area->head() == bts.used_bytes ? 0 : bts.area->head();
    return 0;
  }
  bts.head = bts.output.head() & (bts.area->size_bytes() - 1);
  const uint64_t rest = bts.used_bytes - bts.head;
  const uint64_t free = bts.output.size();
  uint64_t space = whole_records(smaller(rest, free));
  const uint64_t skip = bts.area->size_bytes() - bts.head;
  if (space <= kSafetyMargin && free > skip) {
    const uint64_t space_at_begin = whole_records(smaller(bts.used_bytes, free - skip));
    if (space_at_begin > space) {
      event::clear_bytes(bts.area->bytes() + bts.head, rest);
      if (const int error = bts.output.skip(skip); error != 0) return error;
      bts.head = 0;
      space = space_at_begin;
    }
  }
  // Not far beyond the watermark.
  const uint64_t until_wakeup = bts.output.wakeup() - bts.output.head();
  space = smaller(space, whole_records(kSafetyMargin + kBtsRecordBytes + until_wakeup));
  bts.end = bts.head + space;
  return space != 0 ? 0 : ENOSPC;
}

bool begin_transaction(Event& event, BtsContext& bts) {
  if (!bts.output.begin(event)) return false;
  if (find_space(bts) == 0) return true;
  bts.output.end(0);
  return false;
}

// With the unit off. The kernel's bts_update and the rest of its bts_event_stop.
void end_transaction(BtsContext& bts) {
  const uint64_t head = current_head(bts);
  const uint64_t bytes = bts.snapshot ? bts.area->size_bytes() : head - bts.head;
  const bool full = bts.unit.ds->bts_index >= bts.unit.ds->bts_absolute_maximum;
  if (!bts.snapshot && full) bts.output.flag(PERF_AUX_FLAG_TRUNCATED);
  bts.head = head;
  if (bts.snapshot) bts.area->move_head(head, /*lapped=*/false);
  signal_barrier();
  bts.configured.store(false);
  bts.output.end(bytes);
}

// An inherited event traces into its parent's area, which was set up there.
void use_parents_area(const Event& event, BtsContext& bts) {
  if (event.parent == nullptr) return;
  const BtsContext& parent = context_of(*event.parent);
  bts.area = parent.area;
  bts.snapshot = parent.snapshot;
  bts.used_bytes = parent.used_bytes;
}

int bts_event_init(Event& event) { return event.hw.context != nullptr ? 0 : EINVAL; }

void bts_event_start(Event& event, uint32_t /*flags*/) {
  BtsContext& bts = context_of(event);
  if (!event.hw.stopped) return;
  use_parents_area(event, bts);
  if (bts.area == nullptr) return;
  // Open: there was a stop without update. In normal mode that is told now.
  const bool was_open = bts.output.is_open();
  if (!was_open) bts.ds_before = *bts.unit.ds;
  if (was_open && bts.snapshot) {
    bts.head = current_head(bts);
  } else {
    if (was_open) end_transaction(bts);
    if (!begin_transaction(event, bts)) {
      *bts.unit.ds = bts.ds_before;
      return;
    }
  }
  event.hw.stopped = false;
  go(event, bts);
}

void bts_event_stop(Event& event, uint32_t flags) {
  BtsContext& bts = context_of(event);
  bts.active.store(false);
  signal_barrier();
  switch_off(bts);
  event.hw.stopped = true;
  if ((flags & event::kEfUpdate) == 0 || !bts.output.is_open()) return;
  end_transaction(bts);
  *bts.unit.ds = bts.ds_before;
}

int bts_event_add(Event& event, uint32_t flags) {
  BtsContext& bts = context_of(event);
  if (bts.event != nullptr) return EBUSY;
  bts.event = &event;
  event.hw.stopped = true;
  if ((flags & event::kEfStart) == 0) return 0;
  bts_event_start(event, 0);
  if (!event.hw.stopped) return 0;
  bts.event = nullptr;
  return EINVAL;
}

void bts_event_del(Event& event, uint32_t /*flags*/) {
  bts_event_stop(event, event::kEfUpdate);
  context_of(event).event = nullptr;
}

void bts_event_read(Event& /*event*/) {}

int bts_setup_aux(Event& event, AuxArea& area, bool overwrite) {
  if (event.aux_samplers != nullptr && !overwrite) return EINVAL;
  if (area.size_bytes() < kBtsRecordBytes) return EINVAL;
  BtsContext& bts = context_of(event);
  bts.area = &area;
  bts.snapshot = overwrite;
  bts.used_bytes = whole_records(area.size_bytes());
  bts.head = 0;
  bts.configured.store(false);
  event::clear_bytes(area.bytes(), area.size_bytes());
  return 0;
}

void bts_free_aux(Event& event) {
  if (event.hw.context != nullptr) context_of(event).area = nullptr;
}

// The newest whole records that fit, zeros before them.
int64_t copy_records(const BtsContext& bts, OutputHandle& handle, uint64_t size_bytes) {
  const uint64_t records = smaller(whole_records(size_bytes), bts.used_bytes);
  const uint64_t head = current_head(bts);
  const uint64_t before_head = smaller(records, head);
  if (handle.zero(size_bytes - records) != 0) return -EFAULT;
  if (records > before_head) {
    const uint64_t from = bts.used_bytes - (records - before_head);
    if (bts.area->copy_out(handle, from, bts.used_bytes) < 0) return -EFAULT;
  }
  if (before_head != 0 && bts.area->copy_out(handle, head - before_head, head) < 0) return -EFAULT;
  return static_cast<int64_t>(size_bytes);
}

int64_t bts_event_snapshot_aux(Event& event, OutputHandle& handle, uint64_t size_bytes) {
  const BtsContext& bts = context_of(event);
  if (bts.area == nullptr || !bts.snapshot) return 0;
  switch_off(bts);  // unconditionally, as in the PT PMU
  const int64_t copied = copy_records(bts, handle, size_bytes);
  if (bts.active.load()) switch_on(event, bts);
  return copied;
}

constexpr event::Pmu with_snapshot(decltype(event::Pmu::snapshot_aux) snapshot_aux) {
  return {
      .name = "intel_bts",
      .type = 9,
      .capabilities = event::kPmuCapExclusive | event::kPmuCapITrace,
      .software_context = true,
      .event_init = bts_event_init,
      .add = bts_event_add,
      .del = bts_event_del,
      .start = bts_event_start,
      .stop = bts_event_stop,
      .read = bts_event_read,
      .setup_aux = bts_setup_aux,
      .free_aux = bts_free_aux,
      .snapshot_aux = snapshot_aux,
  };
}

}  // namespace

bool bts_interrupt(BtsContext& bts) {
  if (!bts.active.load() || bts.event == nullptr || bts.snapshot) return false;
  if (bts.unit.ds->bts_index < bts.unit.ds->bts_interrupt_threshold) return false;
  Event& event = *bts.event;
  switch_off(bts);
  end_transaction(bts);
  if (begin_transaction(event, bts)) {
    go(event, bts);
  } else {
    bts.active.store(false);
    event.hw.stopped = true;
    *bts.unit.ds = bts.ds_before;
  }
  return true;
}

constinit const event::Pmu kIntelBts = with_snapshot(nullptr);
constinit const event::Pmu kIntelBtsSampling = with_snapshot(bts_event_snapshot_aux);

}  // namespace auxtrail::pmu
