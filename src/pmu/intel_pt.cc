#include "pmu/intel_pt.h"

#include <cerrno>

#include "event/inline_copy.h"

namespace auxtrail::pmu {
namespace {

using event::AuxArea;
using event::Event;
using event::OutputHandle;
using event::signal_barrier;

// A unit with one region per table interrupts this long before the region is full.
constexpr uint64_t kInterruptMargin = 512;

PtContext& context_of(const Event& event) { return *static_cast<PtContext*>(event.hw.context); }

bool is_paused(const Event& event) {
  return __atomic_load_n(&event.hw.aux_paused, __ATOMIC_RELAXED);
}

uint64_t read(const PtContext& pt, PtRegister which) { return pt.unit.read(pt.unit.self, which); }
void write(const PtContext& pt, PtRegister which, uint64_t value) {
  pt.unit.write(pt.unit.self, which, value);
}

// The seed's pt_config_start: only TraceEn; the configuration stays as it is.
void config_start(PtContext& pt) {
  const uint64_t ctl = pt.ctl.load() | rtit_ctl::kTraceEn;
  if (pt.vmx_on.load()) {
    pt.partial.store(true);
  } else {
    write(pt, PtRegister::kCtl, ctl);
  }
  signal_barrier();
  pt.ctl.store(ctl);
}

// The seed's pt_config_stop, but unconditionally: this may have interrupted config_start() where
// the unit is on and ctl does not say so yet.
void config_stop(PtContext& pt) {
  const uint64_t ctl = pt.ctl.load() & ~rtit_ctl::kTraceEn;
  if (!pt.vmx_on.load()) write(pt, PtRegister::kCtl, ctl);
  signal_barrier();
  pt.ctl.store(ctl);
}

// Takes the unit in hand: nobody pauses or resumes it meanwhile. Returns whether somebody, whom we
// interrupt, had it already.
bool take_unit(PtContext& pt) {
  const bool was_in_hand = pt.in_hand.exchange(true);
  signal_barrier();
  return was_in_hand;
}

// Gives a unit back that is to be running, but for a pause; again if that has come or gone
// meanwhile. (If somebody has it in hand still, he looks himself.)
void release_running(const Event& event, PtContext& pt, bool was_in_hand) {
  bool paused = false;
  do {
    pt.in_hand.store(true);
    signal_barrier();
    paused = is_paused(event);
    paused ? config_stop(pt) : config_start(pt);
    signal_barrier();
    pt.in_hand.store(was_in_hand);
    signal_barrier();
  } while (!was_in_hand && is_paused(event) != paused);
}

// And one that is to be off.
void release_stopped(PtContext& pt, bool was_in_hand) {
  signal_barrier();
  pt.in_hand.store(was_in_hand);
}

uint64_t ctl_of(const Event& event, const PtContext& pt) {
  const uint64_t config = event.attr.config;
  uint64_t ctl = config & abi::pt_config::kAll & ~abi::pt_config::kPt;
  if ((config & abi::pt_config::kPt) == 0) ctl |= rtit_ctl::kBranchEn;
  if (event.attr.exclude_kernel == 0) ctl |= rtit_ctl::kOs;
  if (event.attr.exclude_user == 0) ctl |= rtit_ctl::kUser;
  if (!pt.buffer->single()) ctl |= rtit_ctl::kToPA;
  return ctl;
}

// The seed's pt_config: everything, then TraceEn.
void config(Event& event, PtContext& pt) {
  if (pt.ctl.load() == 0) write(pt, PtRegister::kStatus, 0);  // the first time: a PSB comes first
  event::sync_addr_filters(event);
  const uint64_t filters = pt.filters.write(pt.unit);
  pt.ctl.store(filters | ctl_of(event, pt));
  signal_barrier();
  pt.handle_nmi.store(true);
  signal_barrier();
  release_running(event, pt, /*was_in_hand=*/false);
}

// Where the unit has stopped; `filled`: it had no room to go on, and stands at the next region now.
struct Reached {
  PtPosition position;
  bool filled = false;
};

// The seed's pt_handle_status.
void handle_status(PtContext& pt, Reached& reached) {
  uint64_t status = read(pt, PtRegister::kStatus);
  const uint64_t region_left = pt.buffer->region_bytes() - reached.position.offset;
  const bool one_region_tables = !pt.buffer->multiple_entries();
  if ((status & rtit_status::kError) != 0) pt.partial.store(true);
  if ((status & rtit_status::kStopped) != 0 && (one_region_tables || region_left == 0)) {
    pt.output.flag(PERF_AUX_FLAG_TRUNCATED);
    reached.filled = true;
  }
  if (one_region_tables && !pt.buffer->snapshot() && region_left <= kInterruptMargin) {
    event::clear_bytes(pt.area->bytes() + pt.buffer->offset_of(reached.position), region_left);
    reached.filled = true;
  }
  if (reached.filled) reached.position = pt.buffer->next_region(reached.position);
  write(pt, PtRegister::kStatus, status & ~(rtit_status::kError | rtit_status::kStopped));
}

// The seed's pt_update_head in overwrite mode.
void move_head(PtContext& pt) {
  PtPosition position;
  if (pt.programmed.load() && pt.buffer->read(pt.unit, position)) {
    pt.area->move_head(pt.buffer->offset_of(position), /*lapped=*/false);
  }
}

// And in normal mode: what the session has written. From full to full is the whole area, not none.
uint64_t bytes_written(const PtContext& pt, const Reached& reached) {
  const uint64_t size = pt.buffer->size_bytes();
  const uint64_t end = pt.buffer->offset_of(reached.position);
  const uint64_t bytes = (end - pt.output.head()) & (size - 1);
  return bytes == 0 && reached.filled ? size : bytes;
}

// An inherited event traces into its parent's area, which was set up there.
void use_parents_area(const Event& event, PtContext& pt) {
  if (event.parent == nullptr) return;
  PtContext& parent = context_of(*event.parent);
  pt.area = parent.area;
  pt.buffer = parent.buffer;
}

bool begin_session(Event& event, PtContext& pt) {
  if (!pt.output.begin(event)) return false;
  const uint64_t head = pt.output.head();
  // One byte of the room is kept free only for whoever needs it.
  if (!pt.buffer->snapshot() &&
      pt.buffer->set_marks(head, pt.output.size() + 1, pt.output.wakeup()) != 0) {
    pt.output.flag(PERF_AUX_FLAG_TRUNCATED);
    pt.output.end(0);
    return false;
  }
  pt.buffer->program(pt.unit, pt.buffer->position_at(head));
  signal_barrier();
  pt.programmed.store(true);
  pt.session_open = true;
  return true;
}

// With the unit off.
void end_session(PtContext& pt) {
  pt.session_open = false;
  uint64_t bytes = pt.buffer->size_bytes();
  Reached reached;
  if (!pt.buffer->read(pt.unit, reached.position)) {  // whatever it wrote, it was not our area
    pt.partial.store(true);
    bytes = 0;
  } else {
    handle_status(pt, reached);
    if (pt.buffer->snapshot()) {
      move_head(pt);
    } else {
      bytes = bytes_written(pt, reached);
    }
  }
  pt.programmed.store(false);
  signal_barrier();
  if (pt.partial.exchange(false)) pt.output.flag(PERF_AUX_FLAG_PARTIAL);
  pt.output.end(bytes);
}

int pt_event_init(Event& event) {
  if (event.hw.context == nullptr) return EINVAL;
  const TraceUnit& unit = context_of(event).unit;
  const abi::PtConfigFault fault = abi::check_pt_config(event.attr.config, unit.caps);
  // A unit without registers reads the config itself; what it can do, its owner knows.
  const bool matters = unit.has_registers() || fault == abi::PtConfigFault::kUnknownBits;
  return matters && fault != abi::PtConfigFault::kNone ? EINVAL : 0;
}

// The tracing was paused, or goes on after that: not if somebody has the unit in hand (who will see
// to it), if it is stopped, or if it has stopped itself and its interrupt is on the way.
void pause_or_resume(const Event& event, PtContext& pt, bool pause) {
  if (!pt.unit.has_registers() || pt.in_hand.load()) return;
  constexpr uint64_t kStoppedItself = rtit_status::kError | rtit_status::kStopped;
  if (!pause && (read(pt, PtRegister::kStatus) & kStoppedItself) != 0) return;
  if (!take_unit(pt)) release_running(event, pt, /*was_in_hand=*/false);
}

void pt_event_start(Event& event, uint32_t flags) {
  PtContext& pt = context_of(event);
  if ((flags & event::kEfResume) != 0) return pause_or_resume(event, pt, /*pause=*/false);
  if (!event.hw.stopped) return;
  use_parents_area(event, pt);
  if (pt.area == nullptr) return;
  if (!pt.unit.has_registers()) {
    if (!pt.session_open) pt.begin_window();
    pt.session_open = true;
    event.hw.stopped = false;
    return pt.handle_nmi.store(true);
  }
  // What was traced before a stop without update: told now, for the unit may have run out of room.
  if (pt.session_open && !pt.buffer->snapshot()) end_session(pt);
  if (!pt.session_open) {
    pt.begin_window();
    if (!begin_session(event, pt)) return;
  }
  event.hw.stopped = false;
  config(event, pt);
}

void pt_event_stop(Event& event, uint32_t flags) {
  PtContext& pt = context_of(event);
  if ((flags & event::kEfPause) != 0) return pause_or_resume(event, pt, /*pause=*/true);
  pt.handle_nmi.store(false);
  signal_barrier();
  (void)take_unit(pt);  // until the next start
  if (pt.unit.has_registers()) config_stop(pt);
  event.hw.stopped = true;
  if ((flags & event::kEfUpdate) == 0 || !pt.session_open) return;
  if (pt.unit.has_registers()) return end_session(pt);
  pt.session_open = false;
}

int pt_event_add(Event& event, uint32_t flags) {
  PtContext& pt = context_of(event);
  if (pt.event != nullptr) return EBUSY;
  pt.event = &event;
  event.hw.stopped = true;
  if ((flags & event::kEfStart) == 0) return 0;
  pt_event_start(event, 0);
  if (!event.hw.stopped) return 0;
  pt.event = nullptr;
  return EINVAL;  // no AUX area to trace into, or no room in it
}

void pt_event_del(Event& event, uint32_t /*flags*/) {
  pt_event_stop(event, event::kEfUpdate);
  context_of(event).event = nullptr;
}

void pt_event_read(Event& /*event*/) {}  // a tracing event counts nothing

int pt_setup_aux(Event& event, AuxArea& area, bool overwrite) {
  // The leader's own aux_sample_size is always 0; that it is sampled shows in its samplers.
  if (event.aux_samplers != nullptr && !overwrite) return EINVAL;
  PtContext& pt = context_of(event);
  pt.session_open = false;
  if (pt.unit.has_registers()) {
    pt.buffer = &pt.own_buffer;
    const PtBufferConfig config{overwrite, pt.max_region_shift, pt.tables};
    if (const int error = pt.buffer->setup(area, pt.unit.caps, config); error != 0) return error;
    if (!pt.area_is_zeroed) event::clear_bytes(area.bytes(), area.size_bytes());
    // How often a unit has gone round nobody can tell, so all of the area counts as written.
    if (overwrite) area.move_head(0, /*lapped=*/true);
    pt.programmed.store(false);
    pt.ctl.store(0);
  }
  pt.area = &area;
  pt.begin_window();
  return 0;
}

void pt_free_aux(Event& event) {
  if (event.hw.context != nullptr) context_of(event).area = nullptr;
}

uint64_t window_bytes(const PtContext& pt) { return pt.area->written() - pt.window_start; }

int64_t copy_newest(const PtContext& pt, OutputHandle& handle, uint64_t size_bytes) {
  uint64_t size = size_bytes;
  if (pt.windowed && window_bytes(pt) < size) size = window_bytes(pt);
  return pt.area->copy_newest(handle, size);
}

void begin_with_psb(const PtContext& pt) {
  const uint64_t status = read(pt, PtRegister::kStatus);
  write(pt, PtRegister::kStatus, status & ~rtit_status::kPacketByteCnt);
}

int64_t pt_event_snapshot_aux(Event& event, OutputHandle& handle, uint64_t size_bytes) {
  PtContext& pt = context_of(event);
  if (pt.area == nullptr) return 0;
  if (!pt.unit.has_registers()) return copy_newest(pt, handle, size_bytes);
  if (!pt.buffer->snapshot()) return 0;
  const bool was_in_hand = take_unit(pt);
  config_stop(pt);
  move_head(pt);
  const int64_t copied = copy_newest(pt, handle, size_bytes);
  if (!pt.handle_nmi.load()) {
    release_stopped(pt, was_in_hand);
  } else {
    if (pt.psb_after_snapshot) begin_with_psb(pt);
    release_running(event, pt, was_in_hand);
  }
  return copied;
}

// Of a unit that runs: its two registers may be of two moments, and are read until they agree.
void move_head_while_running(PtContext& pt) {
  constexpr int kTries = 4;
  PtPosition first, second;
  for (int i = 0; i < kTries && pt.programmed.load(); ++i) {
    const bool agree = pt.buffer->read(pt.unit, first) && pt.buffer->read(pt.unit, second) &&
                       first.region == second.region;
    if (agree) return pt.area->move_head(pt.buffer->offset_of(second), /*lapped=*/false);
  }
}

uint64_t pt_aux_available(Event& event) {
  PtContext& pt = context_of(event);
  if (pt.area == nullptr) return 0;
  if (!pt.windowed) return pt.area->size_bytes();
  if (pt.unit.has_registers()) move_head_while_running(pt);
  return window_bytes(pt);
}

int pt_addr_filters_validate(const Event& event, const event::AddrFilters& filters) {
  return check_pt_filters(filters, context_of(event).unit.caps);
}

void pt_addr_filters_sync(Event& event) { context_of(event).filters.set(*event.addr_filters); }

}  // namespace

void pt_interrupt(PtContext& pt) {
  // It may be left over from before a stop.
  if (!pt.handle_nmi.load() || pt.event == nullptr || pt.area == nullptr) return;
  if (pt.buffer->snapshot() || !pt.session_open) return;
  Event& event = *pt.event;
  const bool was_in_hand = take_unit(pt);
  config_stop(pt);
  end_session(pt);
  if (begin_session(event, pt)) return release_running(event, pt, was_in_hand);
  event.hw.stopped = true;  // and in hand until the next start
  pt.handle_nmi.store(false);
}

void pt_handle_vmx(PtContext& pt, bool on) {
  if (pt.unit.caps.vmx) return;
  pt.vmx_on.store(on);
  if (pt.event == nullptr) return;
  pt.partial.store(true);
  if (!on) write(pt, PtRegister::kCtl, pt.ctl.load());
}

constinit const event::Pmu kIntelPt{
    .name = "intel_pt",
    .type = 8,
    .capabilities = event::kPmuCapExclusive | event::kPmuCapITrace | event::kPmuCapAuxPause,
    .software_context = true,
    .event_init = pt_event_init,
    .add = pt_event_add,
    .del = pt_event_del,
    .start = pt_event_start,
    .stop = pt_event_stop,
    .read = pt_event_read,
    .setup_aux = pt_setup_aux,
    .free_aux = pt_free_aux,
    .snapshot_aux = pt_event_snapshot_aux,
    .aux_available = pt_aux_available,
    .addr_filters_validate = pt_addr_filters_validate,
    .addr_filters_sync = pt_addr_filters_sync,
};

}  // namespace auxtrail::pmu
