// Shared by the BTS PMU's tests: a leader over a scripted debug store, samplers, a reader.
#pragma once

#include "pmu/intel_bts.h"
#include "pmu/scripted_bts_unit.h"
#include "pmu/testing/pt_test_support.h"

namespace auxtrail::pmu::testing {

class BtsGroup {
 public:
  BtsGroup(const Pmu& pmu, uint64_t pages, bool overwrite, uint64_t watermark = 0)
      : aux_(pages * 4096) {
    AuxArea::init_control_page(*memory_.control(), 0, aux_.size());
    EXPECT_EQ(ring.attach(memory_.control(), memory_.data(), memory_.data_bytes()), 0);
    EXPECT_EQ(area.attach(memory_.control(), aux_.bytes(), aux_.size(), {overwrite, watermark}), 0);
    bts.unit = unit.unit();
    unit.ds = kForeign;
    EXPECT_EQ(leader.init(leader_attr(), 11, pmu, &bts), 0);
    leader.ring = &ring;
    EXPECT_EQ(pmu.setup_aux(leader, area, overwrite), 0);
    leader.aux = &area;
    EXPECT_EQ(leader.schedule_in(kTid, 0), 0);
    unit.interrupt = [this] { EXPECT_TRUE(bts_interrupt(bts)); };
  }
  ~BtsGroup() {
    unit.before = unit.after = nullptr;
    for (auto& sampler : samplers_) close_event(*sampler);
    close_event(leader);
  }
  Event& add_sampler(uint32_t aux_sample_size) {
    auto& sampler = *samplers_.emplace_back(std::make_unique<Event>());
    EXPECT_EQ(sampler.init(sampler_attr(kUsualSampleType, aux_sample_size), 101, kSoftwareTrigger,
                           nullptr),
              0);
    EXPECT_EQ(get_aux_event(sampler, &leader), AuxLink::kOk);
    sampler.ring = &ring;
    EXPECT_EQ(sampler.schedule_in(kTid, 0), 0);
    return sampler;
  }
  Bytes sample(Event& sampler) {
    SampleData data = usual_data();
    EXPECT_EQ(event_output(sampler, data), Outcome::kWritten);
    return aux_of(drain(reader).back());
  }
  void start() { leader.pmu->start(leader, 0); }
  void stop(uint32_t flags = kEfUpdate) { leader.pmu->stop(leader, flags); }

  // What the PERF_RECORD_AUX since the last look tell of, and their flags. The space is given back.
  uint64_t read(std::vector<BtsRecord>& records) {
    uint64_t flags = 0;
    for (const Bytes& record : drain(reader)) {
      if (header_of(record).type != PERF_RECORD_AUX) continue;
      Fields fields(record);
      const uint64_t offset = fields.u64();
      const uint64_t size = fields.u64();
      flags |= fields.u64();
      EXPECT_EQ(size % kBtsRecordBytes, 0u);
      for (uint64_t at = offset; at < offset + size; at += kBtsRecordBytes) {
        BtsRecord branch;
        std::memcpy(&branch, aux_.bytes() + at % aux_.size(), sizeof branch);
        records.push_back(branch);
      }
    }
    control().aux_tail = control().aux_head;
    return flags;
  }
  perf_event_mmap_page& control() { return *memory_.control(); }

  static constexpr DebugStore kForeign{1, 2, 3, 4};

 private:
  Memory memory_{1 << 16, 8};
  Pages aux_;
  std::vector<std::unique_ptr<Event>> samplers_;

 public:
  ScriptedBtsUnit unit;
  BtsContext bts;
  DataRing ring;
  AuxArea area;
  Event leader;
  RingReader reader = memory_.reader();
};

inline bool operator==(const DebugStore& a, const DebugStore& b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

inline std::vector<BtsRecord> branches(uint64_t first, uint64_t last) {
  std::vector<BtsRecord> records;
  for (uint64_t i = first; i <= last; ++i) records.push_back(bts_record(i));
  return records;
}

// A sample's bytes: zeros, then the newest whole records up to `last`; zeros for those before the
// first.
inline Bytes newest(uint64_t size_bytes, uint64_t last) {
  Bytes bytes(size_bytes % kBtsRecordBytes);
  const auto count = static_cast<int64_t>(size_bytes / kBtsRecordBytes);
  for (int64_t i = static_cast<int64_t>(last) - count + 1; i <= static_cast<int64_t>(last); ++i) {
    const BtsRecord record = i < 1 ? BtsRecord{} : bts_record(static_cast<uint64_t>(i));
    const auto* at = reinterpret_cast<const std::byte*>(&record);
    bytes.insert(bytes.end(), at, at + sizeof record);
  }
  return bytes;
}

}  // namespace auxtrail::pmu::testing
