#include "event/sample.h"

#include "abi/sample_layout.h"
#include "event/aux_area.h"
#include "event/read_format.h"

namespace auxtrail::event {
namespace {

using abi::SampleField;

static_assert(kMaxRecordBytes == abi::kMaxRecordBytes);

// Written out: without -mpopcnt the builtin is a call into libgcc.
uint32_t weight_of(uint64_t mask) {
  uint32_t bits = 0;
  for (; mask != 0; mask &= mask - 1) ++bits;
  return bits;
}

uint64_t align8(uint64_t value) { return (value + 7) & ~uint64_t{7}; }

struct Pair {  // two u32 that share one field: {pid, tid}, {cpu, 0}
  uint32_t first;
  uint32_t second;
};

// A sink that only counts: what prepare_sample() walks the fields with.
struct SizeSink {
  uint64_t bytes = 0;
  template <class T>
  void put(const T&) {
    bytes += sizeof(T);
  }
  void copy(const void*, uint64_t size_bytes) { bytes += size_bytes; }
  void zero(uint64_t size_bytes) { bytes += size_bytes; }
  void aux(Event&, const SampleData& data) { bytes += data.aux_size; }
};

// Takes the snapshot with the guard around the callback and nothing else. What the PMU did not
// deliver, for whatever reason, becomes zeros: the promised size is in the header already. AUX is
// the last field, so the reservation itself keeps a PMU from delivering too much.
void output_aux(OutputHandle& handle, Event& event, const SampleData& data) {
  Event* leader = event.aux_event;
  AuxArea* area = leader != nullptr ? aux_area_of(*leader) : nullptr;
  if (area != nullptr && data.aux_size != 0) {
    AuxSamplingGuard guard(*area);
    (void)leader->pmu->snapshot_aux(*leader, handle, data.aux_size);
  }
  (void)handle.zero(handle.remaining());
}

struct OutputSink {
  OutputHandle& handle;
  template <class T>
  void put(const T& value) {
    handle.put(value);
  }
  void copy(const void* bytes, uint64_t size_bytes) { (void)handle.copy(bytes, size_bytes); }
  void zero(uint64_t size_bytes) { (void)handle.zero(size_bytes); }
  void aux(Event& event, const SampleData& data) { output_aux(handle, event, data); }
};

template <class Sink>
void put_read(Sink& sink, const SampleData& data, const Event& event) {
  if (data.read_words.size != 0) {
    sink.copy(data.read_words.data, uint64_t{data.read_words.size} * 8);
    return;
  }
  for_each_read_word(event, [&sink](uint64_t word) { sink.put(word); });
}

// The size written includes the padding, as the kernel's does.
template <class Sink>
void put_raw(Sink& sink, const View<std::byte>& raw) {
  const uint64_t padded = align8(uint64_t{raw.size} + 4) - 4;
  sink.put(static_cast<uint32_t>(padded));
  sink.copy(raw.data, raw.size);
  sink.zero(padded - raw.size);
}

template <class Sink>
void put_branches(Sink& sink, const SampleData& data, const Event& event) {
  sink.put(uint64_t{data.branches.size});
  if ((event.attr.branch_sample_type & PERF_SAMPLE_BRANCH_HW_INDEX) != 0) {
    sink.put(data.branch_hw_idx);
  }
  sink.copy(data.branches.data, uint64_t{data.branches.size} * sizeof(perf_branch_entry));
}

template <class Sink>
void put_regs(Sink& sink, const RegsView& regs, uint64_t mask) {
  sink.put(regs.abi);
  if (regs.abi == PERF_SAMPLE_REGS_ABI_NONE) return;
  sink.copy(regs.values, uint64_t{weight_of(mask)} * 8);
}

template <class Sink>
void put_stack(Sink& sink, const SampleData& data) {
  const uint64_t dump = data.stack_dump_bytes;
  sink.put(dump);
  if (dump == 0) return;
  const uint64_t real = data.user_stack.size < dump ? data.user_stack.size : dump;
  sink.copy(data.user_stack.data, real);
  sink.zero(dump - real);
  sink.put(real);
}

template <class Sink>
void put_field(SampleField field, Sink& sink, const SampleData& data, Event& event) {
  switch (field) {
    case SampleField::kIdentifier:
    case SampleField::kId:
      return sink.put(primary_event_id(event));
    case SampleField::kIp:
      return sink.put(data.ip);
    case SampleField::kTid:
      return sink.put(Pair{data.pid, data.tid});
    case SampleField::kTime:
      return sink.put(data.time_ns);
    case SampleField::kAddr:
      return sink.put(data.addr);
    case SampleField::kStreamId:
      return sink.put(event.id);
    case SampleField::kCpu:
      return sink.put(Pair{data.cpu, 0});
    case SampleField::kPeriod:
      return sink.put(data.period);
    case SampleField::kRead:
      return put_read(sink, data, event);
    case SampleField::kCallchain:
      sink.put(uint64_t{data.callchain.size});
      return sink.copy(data.callchain.data, uint64_t{data.callchain.size} * 8);
    case SampleField::kRaw:
      return put_raw(sink, data.raw);
    case SampleField::kBranchStack:
      return put_branches(sink, data, event);
    case SampleField::kRegsUser:
      return put_regs(sink, data.regs_user, event.attr.sample_regs_user);
    case SampleField::kStackUser:
      return put_stack(sink, data);
    case SampleField::kWeight:
      return sink.put(data.weight);
    case SampleField::kDataSrc:
      return sink.put(data.data_src);
    case SampleField::kTransaction:
      return sink.put(data.transaction);
    case SampleField::kRegsIntr:
      return put_regs(sink, data.regs_intr, event.attr.sample_regs_intr);
    case SampleField::kPhysAddr:
      return sink.put(data.phys_addr);
    case SampleField::kCgroup:
      return sink.put(data.cgroup);
    case SampleField::kDataPageSize:
      return sink.put(data.data_page_size);
    case SampleField::kCodePageSize:
      return sink.put(data.code_page_size);
    case SampleField::kAux:
      sink.put(data.aux_size);
      return sink.aux(event, data);
    case SampleField::kCount:
      return;
  }
}

template <class Sink>
void put_fields(Sink& sink, const SampleData& data, Event& event) {
  abi::for_each_sample_field(event.attr.sample_type, [&](SampleField field) {
    put_field(field, sink, data, event);
    return true;
  });
}

// The dump takes what is asked for as far as the record has room, the dyn_size field included.
uint32_t stack_dump_bytes(const SampleData& data, const Event& event, uint64_t used_bytes) {
  const bool asked = (event.attr.sample_type & PERF_SAMPLE_STACK_USER) != 0;
  if (!asked || data.user_stack.data == nullptr || used_bytes + 16 > kMaxRecordBytes) return 0;
  const uint64_t room = (kMaxRecordBytes - used_bytes - 8) & ~uint64_t{7};
  const uint64_t wanted = align8(event.attr.sample_stack_user);
  return static_cast<uint32_t>(wanted < room ? wanted : room);
}

}  // namespace

uint64_t prepare_sample_aux(const Event& event, const SampleData& data, uint64_t size_bytes) {
  Event* leader = event.aux_event;
  if (leader == nullptr || leader->state != EventState::kActive || leader->oncpu != data.tid) {
    return 0;
  }
  const AuxArea* area = aux_area_of(*leader);
  if (area == nullptr || !area->attached() || area->in_sampling()) return 0;
  if (!area->overwrite()) return 0;
  uint64_t size = size_bytes < area->size_bytes() ? size_bytes : area->size_bytes();
  if (leader->pmu->aux_available != nullptr) {
    const uint64_t available = leader->pmu->aux_available(*leader);
    if (available < size) size = available;
  }
  return align8(size);
}

bool prepare_sample(perf_event_header& header, SampleData& data, Event& event) {
  data.stack_dump_bytes = 0;
  data.aux_size = 0;
  SizeSink sink;
  put_fields(sink, data, event);
  uint64_t total = sizeof(perf_event_header) + sink.bytes;
  if (total > kMaxRecordBytes) return false;

  data.stack_dump_bytes = stack_dump_bytes(data, event, total);
  if (data.stack_dump_bytes != 0) total += data.stack_dump_bytes + sizeof(uint64_t);

  if ((event.attr.sample_type & PERF_SAMPLE_AUX) != 0) {
    const uint64_t used_before_aux = total - sizeof(uint64_t);
    const uint64_t wanted = abi::largest_aux_bytes(used_before_aux, event.attr.aux_sample_size);
    data.aux_size = prepare_sample_aux(event, data, wanted);
    total += data.aux_size;
  }
  header.type = PERF_RECORD_SAMPLE;
  header.misc = data.misc;
  header.size = static_cast<uint16_t>(total);
  return true;
}

void output_sample(OutputHandle& handle, const perf_event_header& header, const SampleData& data,
                   Event& event) {
  handle.put(header);
  OutputSink sink{handle};
  put_fields(sink, data, event);
}

uint32_t sample_id_bytes(const Event& event) {
  return static_cast<uint32_t>(
      abi::trailer_bytes(event.attr.sample_type, event.attr.sample_id_all != 0));
}

void output_sample_id(OutputHandle& handle, const SampleData& data, const Event& event) {
  if (event.attr.sample_id_all == 0) return;
  abi::for_each_trailer_field(event.attr.sample_type, [&](SampleField field) {
    switch (field) {
      case SampleField::kTid:
        handle.put(Pair{data.pid, data.tid});
        break;
      case SampleField::kTime:
        handle.put(data.time_ns);
        break;
      case SampleField::kStreamId:
        handle.put(event.id);
        break;
      case SampleField::kCpu:
        handle.put(Pair{data.cpu, 0});
        break;
      default:  // ID and IDENTIFIER
        handle.put(primary_event_id(event));
        break;
    }
    return true;
  });
}

bool output_begin(OutputHandle& handle, uint64_t size_bytes, const SampleData& data, Event& event) {
  Event& primary = primary_event(event);
  const uint64_t lost_record_bytes = sizeof(perf_event_header) + 16 + sample_id_bytes(primary);
  uint64_t lost = 0;
  if (!primary.ring->begin(handle, size_bytes, lost_record_bytes, lost)) {
    primary.lost.add(1);
    return false;
  }
  if (lost != 0) {
    handle.put(perf_event_header{PERF_RECORD_LOST, 0, static_cast<uint16_t>(lost_record_bytes)});
    handle.put(primary.id);
    handle.put(lost);
    output_sample_id(handle, data, primary);
  }
  return true;
}

Outcome event_output(Event& event, SampleData& data) {
  DataRing* ring = ring_of(event);
  if (event.state != EventState::kActive || ring == nullptr || !ring->attached()) {
    return Outcome::kInactive;
  }
  perf_event_header header{};
  if (!prepare_sample(header, data, event)) {
    ring->count_lost(1);
    primary_event(event).lost.add(1);
    return Outcome::kTooLarge;
  }
  OutputHandle handle;
  if (!output_begin(handle, header.size, data, event)) return Outcome::kLost;
  output_sample(handle, header, data, event);
  if (event.attr.wakeup_events != 0 && event.attr.watermark == 0) {
    ring->count_wakeup_event(event.attr.wakeup_events);
  }
  ring->end(handle);
  return Outcome::kWritten;
}

bool sample_type_supported(const perf_event_attr& attr) {
  return (attr.sample_type & ~abi::kKnownSampleTypeBits) == 0;
}

}  // namespace auxtrail::event
