// Shared by the engine's tests: ring and AUX memory, attrs, a PMU that tests script, records taken
// apart by hand.
#pragma once

#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <vector>

#include "event/aux_area.h"
#include "event/data_ring.h"
#include "event/event.h"
#include "event/pmu.h"
#include "event/ring_reader.h"
#include "event/sample.h"
#include "event/software_pmu.h"

namespace auxtrail::event::testing {

// Control page and areas with a guard zone behind each, so that a write past the end shows.
class Memory {
 public:
  Memory(uint64_t data_bytes, uint64_t aux_bytes)
      : control_(std::make_unique<perf_event_mmap_page>()),
        data_(data_bytes + kGuard, std::byte{0xee}),
        aux_(aux_bytes + kGuard, std::byte{0xee}) {
    std::fill(data_.begin(), data_.end() - kGuard, std::byte{0});
    std::fill(aux_.begin(), aux_.end() - kGuard, std::byte{0});
    DataRing::init_control_page(*control_, 4096, data_bytes);
    AuxArea::init_control_page(*control_, 4096 + data_bytes, aux_bytes);
  }
  perf_event_mmap_page* control() { return control_.get(); }
  std::byte* data() { return data_.data(); }
  uint64_t data_bytes() const { return data_.size() - kGuard; }
  std::byte* aux() { return aux_.data(); }
  uint64_t aux_bytes() const { return aux_.size() - kGuard; }
  bool guards_intact() const { return intact(data_) && intact(aux_); }
  RingReader reader() { return {control(), data(), data_bytes()}; }

 private:
  static constexpr size_t kGuard = 64;
  static bool intact(const std::vector<std::byte>& area) {
    for (size_t i = area.size() - kGuard; i < area.size(); ++i) {
      if (area[i] != std::byte{0xee}) return false;
    }
    return true;
  }
  std::unique_ptr<perf_event_mmap_page> control_;
  std::vector<std::byte> data_;
  std::vector<std::byte> aux_;
};

// Whether the running kernel can be asked: a software event of this thread.
inline bool perf_event_open_works() {
  perf_event_attr attr{};
  attr.size = sizeof attr;
  attr.type = PERF_TYPE_SOFTWARE;
  attr.config = PERF_COUNT_SW_DUMMY;
  attr.exclude_kernel = 1;
  const long fd = syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0);
  if (fd >= 0) close(static_cast<int>(fd));
  return fd >= 0;
}

using Bytes = std::vector<std::byte>;

inline Bytes to_bytes(std::span<const std::byte> part) { return {part.begin(), part.end()}; }
inline std::vector<Bytes> drain(RingReader& reader) {
  static RecordScratch scratch;
  std::vector<Bytes> records;
  reader.drain(scratch, [&](std::span<const std::byte> r) { records.push_back(to_bytes(r)); });
  return records;
}

// Takes a record apart front to back; a field past the end throws.
class Fields {
 public:
  explicit Fields(const Bytes& record) : bytes_(record) { (void)take(sizeof(perf_event_header)); }
  uint64_t u64() {
    uint64_t value = 0;
    std::memcpy(&value, take(8).data(), 8);
    return value;
  }
  uint32_t u32() {
    uint32_t value = 0;
    std::memcpy(&value, take(4).data(), 4);
    return value;
  }
  Bytes bytes(size_t count) { return to_bytes(take(count)); }
  size_t left() const { return bytes_.size() - at_; }

 private:
  std::span<const std::byte> take(size_t count) {
    if (count > left()) throw std::out_of_range("field past the record's end");
    at_ += count;
    return std::span(bytes_).subspan(at_ - count, count);
  }
  const Bytes& bytes_;
  size_t at_ = 0;
};

inline perf_event_header header_of(const Bytes& record) {
  perf_event_header header;
  std::memcpy(&header, record.data(), sizeof(header));
  return header;
}

inline perf_event_attr leader_attr() {
  perf_event_attr attr{};
  attr.type = 8;
  attr.size = sizeof(attr);
  attr.config = 0x2c01;
  attr.sample_type = 0x10087;
  attr.sample_id_all = 1;
  return attr;
}

inline constexpr uint64_t kUsualSampleType = 0x110187;  // IP|TID|TIME|CPU|PERIOD|IDENTIFIER|AUX

inline perf_event_attr sampler_attr(uint64_t sample_type, uint32_t aux_sample_size) {
  perf_event_attr attr{};
  attr.type = PERF_TYPE_SOFTWARE;
  attr.size = sizeof(attr);
  attr.config = PERF_COUNT_SW_CPU_CLOCK;
  attr.sample_period = 1'000'000;
  attr.sample_type = sample_type;
  attr.sample_id_all = 1;
  attr.aux_sample_size = aux_sample_size;
  return attr;
}

// An AUX leader's PMU whose snapshot is whatever the test says; copies the newest bytes by default.
struct SnapshotScript {
  std::function<int64_t(Event&, OutputHandle&, uint64_t)> snapshot =
      [](Event& leader, OutputHandle& handle, uint64_t size_bytes) {
        return leader.aux->copy_newest(handle, size_bytes);
      };
  int calls = 0;
};

inline int64_t scripted_snapshot(Event& leader, OutputHandle& handle, uint64_t size_bytes) {
  auto* script = static_cast<SnapshotScript*>(leader.hw.context);
  ++script->calls;
  return script->snapshot(leader, handle, size_bytes);
}
inline bool accepts_output(const Event& event) { return event.attr.config1 == 1; }
inline int accept_aux(Event&, AuxArea&, bool) { return 0; }

inline constexpr Pmu kScriptedPmu{.name = "scripted",
                                  .setup_aux = accept_aux,
                                  .snapshot_aux = scripted_snapshot,
                                  .aux_output_match = accepts_output};

inline constexpr uint32_t kTid = 4711;

// An active leader over an AUX area and any number of active samplers, all on thread kTid.
class Group {
 public:
  explicit Group(Memory& memory) {
    (void)ring.attach(memory.control(), memory.data(), memory.data_bytes());
    (void)area.attach(memory.control(), memory.aux(), memory.aux_bytes());
    (void)leader.init(leader_attr(), 11, kScriptedPmu, &script);
    leader.aux = &area;
    (void)leader.schedule_in(kTid, 0);
  }
  ~Group() {
    for (auto& sampler : samplers) close_event(*sampler);
    close_event(leader);
  }
  Event& add_sampler(const perf_event_attr& attr, uint64_t id, DataRing& to) {
    auto& sampler = *samplers.emplace_back(std::make_unique<Event>());
    (void)sampler.init(attr, id, kSoftwareTrigger, nullptr);
    if (need_aux_event(sampler)) (void)get_aux_event(sampler, &leader);
    sampler.ring = &to;
    (void)sampler.schedule_in(kTid, kEfStart);
    return sampler;
  }
  Event& add_sampler(uint64_t sample_type, uint32_t aux_sample_size, uint64_t id = 101) {
    return add_sampler(sampler_attr(sample_type, aux_sample_size), id, ring);
  }

  SnapshotScript script;
  DataRing ring;
  AuxArea area;
  Event leader;
  std::vector<std::unique_ptr<Event>> samplers;
};

inline SampleData usual_data(uint64_t ip = 0x401000) {
  SampleData data;
  data.ip = ip;
  data.pid = 4700;
  data.tid = kTid;
  data.time_ns = 123456789;
  data.cpu = 1;
  data.period = 1'000'000;
  return data;
}

// The bytes i, i+1, ... modulo 251, so that no two positions of a page look alike.
inline Bytes pattern(size_t count, size_t first = 0) {
  Bytes bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>((first + i) % 251 + 1);
  return bytes;
}

}  // namespace auxtrail::event::testing
