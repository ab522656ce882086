#include "pmu/intel_pt.h"

#include <cerrno>

namespace auxtrail::pmu {
namespace {

using event::AuxArea;
using event::Event;
using event::OutputHandle;

PtContext& context_of(const Event& event) { return *static_cast<PtContext*>(event.hw.context); }

// Only TraceEn; the configuration stays as it is. The seed's pt_config_start and pt_config_stop.
void config_start(PtContext& pt) {
  if (pt.unit.start != nullptr) pt.unit.start(pt.unit.self);
}
void config_stop(PtContext& pt) {
  if (pt.unit.stop != nullptr) pt.unit.stop(pt.unit.self);
}

// Everything, then TraceEn. The seed's pt_config.
void config(Event& event, PtContext& pt) {
  if (pt.unit.configure != nullptr) pt.unit.configure(pt.unit.self, event.hw.config);
  config_start(pt);
}

// The seed's pt_read_offset and pt_update_head.
void update_head(PtContext& pt) {
  if (pt.unit.output == nullptr) return;
  const OutputPosition position = pt.unit.output(pt.unit.self);
  pt.area->move_head(position.offset, position.lapped);
}

int pt_event_init(Event& event) { return event.hw.context != nullptr ? 0 : EINVAL; }

void pt_event_start(Event& event, uint32_t /*flags*/) {
  PtContext& pt = context_of(event);
  if (pt.area == nullptr || !event.hw.stopped) return;
  if (!pt.session_open) {
    pt.session_open = true;
    pt.begin_window();
  }
  event.hw.stopped = false;
  pt.handle_nmi.store(true);
  event::signal_barrier();
  config(event, pt);
}

void pt_event_stop(Event& event, uint32_t flags) {
  PtContext& pt = context_of(event);
  // Cleared before the unit is off: a snapshot that comes in between must not start it again behind
  // our back.
  pt.handle_nmi.store(false);
  event::signal_barrier();
  config_stop(pt);
  event.hw.stopped = true;
  if ((flags & event::kEfUpdate) == 0 || pt.area == nullptr) return;
  update_head(pt);
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
  return EINVAL;  // no AUX area to trace into
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
  pt.area = &area;
  pt.session_open = false;
  pt.begin_window();
  return 0;
}

void pt_free_aux(Event& event) {
  if (event.hw.context != nullptr) context_of(event).area = nullptr;
}

uint64_t window_bytes(const PtContext& pt) { return pt.area->written() - pt.window_start; }

int64_t pt_event_snapshot_aux(Event& event, OutputHandle& handle, uint64_t size_bytes) {
  PtContext& pt = context_of(event);
  if (pt.area == nullptr) return 0;
  // Unconditionally: this may have interrupted stop() between clearing handle_nmi and stopping the
  // unit.
  config_stop(pt);
  update_head(pt);
  uint64_t size = size_bytes;
  if (pt.windowed && window_bytes(pt) < size) size = window_bytes(pt);
  const int64_t copied = pt.area->copy_newest(handle, size);
  if (pt.handle_nmi.load()) config_start(pt);
  return copied;
}

uint64_t pt_aux_available(Event& event) {
  PtContext& pt = context_of(event);
  if (pt.area == nullptr) return 0;
  if (!pt.windowed) return pt.area->size_bytes();
  update_head(pt);
  return window_bytes(pt);
}

}  // namespace

constinit const event::Pmu kIntelPt{
    .name = "intel_pt",
    .type = 8,
    .capabilities = event::kPmuCapExclusive | event::kPmuCapITrace,
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
};

}  // namespace auxtrail::pmu
