// Shared by the PT PMU's tests: a leader over a scripted unit, in overwrite or normal mode, with
// samplers and the memory for it all.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cerrno>
#include <memory>
#include <optional>

#include "event/test_support.h"
#include "event/thread_context.h"
#include "pmu/intel_pt.h"
#include "pmu/scripted_unit.h"

namespace auxtrail::pmu::testing {

using namespace event;           // NOLINT: tests
using namespace event::testing;  // NOLINT

// Everything that a unit of today can do.
inline constexpr abi::PtCaps kAllCaps = [] {
  abi::PtCaps caps = abi::pt_caps_from_cpuid({1, 0x1ff, 0x7, 0}, {0x02490004, 0x003f3fff, 0, 0});
  return caps;
}();

// Zeroed pages, fresh from the system: also gigabytes, as long as nobody touches them all.
class Pages {
 public:
  explicit Pages(uint64_t size_bytes) : size_(size_bytes) {
    bytes_ = static_cast<std::byte*>(mmap(nullptr, size_, PROT_READ | PROT_WRITE,
                                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (bytes_ == MAP_FAILED) throw std::runtime_error("no memory for pages");
  }
  ~Pages() { munmap(bytes_, size_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  [[nodiscard]] std::byte* bytes() const { return bytes_; }
  [[nodiscard]] uint64_t size() const { return size_; }
  [[nodiscard]] TopaMemory tables() const { return {reinterpret_cast<uint64_t*>(bytes_), size_}; }

 private:
  std::byte* bytes_;
  uint64_t size_;
};

struct PtSetup {
  uint64_t aux_bytes = 8 * topa::kPageBytes;
  abi::PtCaps caps = kAllCaps;
  bool overwrite = true;
  uint32_t max_region_shift = topa::kPageShift;
  uint64_t watermark = 0;
  perf_event_attr attr = leader_attr();
};

// What the unit wrote from position `from` up to `to`, zeros before 0.
inline Bytes traced(int64_t from, int64_t to) {
  Bytes bytes;
  for (int64_t at = from; at < to; ++at) {
    bytes.push_back(at < 0 ? std::byte{0} : pt_pattern(static_cast<uint64_t>(at)));
  }
  return bytes;
}

// The AUX bytes of a sample of kUsualSampleType.
inline Bytes aux_of(const Bytes& record) {
  Fields fields(record);
  (void)fields.bytes(48);
  const uint64_t size = fields.u64();
  EXPECT_EQ(fields.left(), size);
  return fields.bytes(size);
}

struct AuxRecord {
  uint64_t offset, size, flags;
  bool operator==(const AuxRecord&) const = default;
};

inline std::ostream& operator<<(std::ostream& out, const AuxRecord& record) {
  return out << "{offset " << record.offset << ", size " << record.size << ", flags "
             << record.flags << "}";
}

// A leader on a scripted unit, added but not started.
class PtGroup {
 public:
  explicit PtGroup(const PtSetup& setup = {})
      : aux_(setup.aux_bytes),
        tables_(TopaTables::bytes_needed(setup.aux_bytes, topa::kPageShift,
                                         setup.caps.topa_multiple_entries)),
        unit(setup.caps) {
    AuxArea::init_control_page(*memory_.control(), 0, setup.aux_bytes);
    EXPECT_EQ(ring.attach(memory_.control(), memory_.data(), memory_.data_bytes()), 0);
    EXPECT_EQ(area.attach(memory_.control(), aux_.bytes(), aux_.size(),
                          {setup.overwrite, setup.watermark}),
              0);
    pt.unit = unit.unit();
    pt.tables = tables_.tables();
    pt.max_region_shift = setup.max_region_shift;
    pt.area_is_zeroed = true;
    EXPECT_EQ(leader.init(setup.attr, 11, kIntelPt, &pt), 0);
    leader.ring = &ring;
    setup_error = kIntelPt.setup_aux(leader, area, setup.overwrite);
    if (setup_error != 0) return;
    leader.aux = &area;
    EXPECT_EQ(leader.schedule_in(kTid, 0), 0);
    unit.interrupt = [this] { pt_interrupt(pt); };
  }
  ~PtGroup() {
    unit.before = unit.after = nullptr;
    for (auto& sampler : samplers_) close_event(*sampler);
    close_event(leader);
  }

  Event& add_sampler(uint32_t aux_sample_size, uint64_t id = 101) {
    auto& sampler = *samplers_.emplace_back(std::make_unique<Event>());
    const perf_event_attr attr = sampler_attr(kUsualSampleType, aux_sample_size);
    EXPECT_EQ(sampler.init(attr, id, kSoftwareTrigger, nullptr), 0);
    EXPECT_EQ(get_aux_event(sampler, &leader), AuxLink::kOk);
    sampler.ring = &ring;
    EXPECT_EQ(sampler.schedule_in(kTid, 0), 0);
    return sampler;
  }
  // An overflow of `sampler`; its AUX size.
  uint64_t overflow(Event& sampler, uint64_t ip = 0x401000) {
    SampleData data = usual_data(ip);
    EXPECT_EQ(event_output(sampler, data), Outcome::kWritten);
    return data.aux_size;
  }
  // The same, and the bytes.
  Bytes sample(Event& sampler) {
    overflow(sampler);
    const auto records = drain(reader);
    return records.empty() ? Bytes() : aux_of(records.back());
  }

  void start() { kIntelPt.start(leader, 0); }
  void stop(uint32_t flags = kEfUpdate) { kIntelPt.stop(leader, flags); }

  // The PERF_RECORD_AUX that came since the last look.
  std::vector<AuxRecord> aux_records() {
    std::vector<AuxRecord> found;
    for (const Bytes& record : drain(reader)) {
      if (header_of(record).type != PERF_RECORD_AUX) continue;
      Fields fields(record);
      const uint64_t offset = fields.u64();
      const uint64_t size = fields.u64();
      found.push_back({offset, size, fields.u64()});
    }
    return found;
  }
  perf_event_mmap_page& control() { return *memory_.control(); }
  std::byte* aux() { return aux_.bytes(); }

 private:
  Memory memory_{1 << 16, 8};
  Pages aux_;
  Pages tables_;
  std::vector<std::unique_ptr<Event>> samplers_;

 public:
  ScriptedUnit unit;
  PtContext pt;
  DataRing ring;
  AuxArea area;
  Event leader;
  int setup_error = 0;
  RingReader reader = memory_.reader();
};

}  // namespace auxtrail::pmu::testing
