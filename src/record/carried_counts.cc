#include "record/carried_counts.h"

#include <algorithm>
#include <cstring>

#include "abi/sample_layout.h"

namespace auxtrail::record {
namespace {

uint64_t word_at(std::span<const std::byte> record, size_t offset) {
  uint64_t word = 0;
  if (offset + sizeof(word) <= record.size()) {
    std::memcpy(&word, record.data() + offset, sizeof(word));
  }
  return word;
}

}  // namespace

CarriedCounts::CarriedCounts(const channel::SessionConfig& config) {
  for (uint32_t i = 0; i < config.sampler_count; ++i) {
    const channel::Sampler& sampler = config.samplers[i];
    Event event;
    event.id = sampler.id;
    event.kind = sampler.kind;
    event.is_clock = channel::is_clock(sampler.attr);
    if ((sampler.attr.sample_type & PERF_SAMPLE_READ) != 0) {
      event.read_format = sampler.attr.read_format;
      event.offset = abi::sample_field_offset(sampler.attr.sample_type, abi::SampleField::kRead);
    }
    events_.push_back(event);
  }
}

CarriedCounts::Event* CarriedCounts::event_of(uint64_t id) {
  const auto found = std::find_if(events_.begin(), events_.end(),
                                  [id](const Event& event) { return event.id == id; });
  return found == events_.end() ? nullptr : &*found;
}

// A value with its event's id behind it.
void CarriedCounts::adjust_value(std::span<std::byte> record, size_t offset) {
  Event* const event = event_of(word_at(record, offset + sizeof(uint64_t)));
  if (event == nullptr || offset + sizeof(uint64_t) > record.size()) return;
  event->last = word_at(record, offset);
  const uint64_t value = event->last + event->before;
  std::memcpy(record.data() + offset, &value, sizeof(value));
}

void CarriedCounts::adjust(std::span<std::byte> record) {
  const Event* const event = event_of(word_at(record, abi::kRecordHeaderBytes));
  if (event == nullptr || event->read_format == 0) return;
  if ((event->read_format & PERF_FORMAT_GROUP) == 0) return adjust_value(record, event->offset);
  const size_t count = std::min<size_t>(word_at(record, event->offset), events_.size());
  for (size_t i = 0; i < count; ++i) {
    adjust_value(record, event->offset + sizeof(uint64_t) * (1 + 2 * i));
  }
}

void CarriedCounts::executed(const UnitCounts& counts) {
  for (Event& event : events_) {
    switch (event.kind) {
      case channel::Sampler::kInstructions:
        event.before += counts.insns;
        break;
      case channel::Sampler::kBranches:
        event.before += counts.branches;
        break;
      case channel::Sampler::kKernelEvent:
        if (!event.is_clock) event.before += event.last;
        break;
      default:  // a thread's clock goes on
        break;
    }
    event.last = 0;
  }
}

}  // namespace auxtrail::record
