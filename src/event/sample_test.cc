// Sample records, byte by byte: checklist C1, C2, C4-C7 and the faults of the AUX size computation.
// Records are taken apart by hand here, in the order of the checklist, not with the table that
// wrote them.
#include "event/sample.h"

#include <gtest/gtest.h>

#include "event/test_support.h"

namespace auxtrail::event {
namespace {

using namespace testing;

class SampleTest : public ::testing::Test {
 protected:
  // The one record that this overflow puts into the ring.
  Bytes sample(Event& sampler, SampleData data = usual_data()) {
    EXPECT_EQ(event_output(sampler, data), Outcome::kWritten);
    aux_size_ = data.aux_size;
    const auto records = drain(reader_);
    EXPECT_EQ(records.size(), 1u);
    return records.empty() ? Bytes() : records.back();
  }
  uint64_t aux_size_of(Event& sampler, SampleData data = usual_data()) {
    (void)sample(sampler, data);
    return aux_size_;
  }

  Memory memory_{1 << 18, 1 << 17};
  Group group_{memory_};
  RingReader reader_ = memory_.reader();
  uint64_t aux_size_ = 0;
};

TEST_F(SampleTest, UsualSampleFieldByField) {
  const Bytes packets = pattern(5000);
  group_.area.write(packets.data(), packets.size());
  const Bytes record = sample(group_.add_sampler(kUsualSampleType, 4096));
  EXPECT_EQ(header_of(record).type, static_cast<uint32_t>(PERF_RECORD_SAMPLE));
  EXPECT_EQ(header_of(record).misc, PERF_RECORD_MISC_USER);
  EXPECT_EQ(header_of(record).size, 8 + 6 * 8 + 8 + 4096);
  Fields fields(record);
  EXPECT_EQ(fields.u64(), 101u);
  EXPECT_EQ(fields.u64(), 0x401000u);
  EXPECT_EQ(fields.u32(), 4700u);
  EXPECT_EQ(fields.u32(), kTid);
  EXPECT_EQ(fields.u64(), 123456789u);
  EXPECT_EQ(fields.u32(), 1u);
  EXPECT_EQ(fields.u32(), 0u);
  EXPECT_EQ(fields.u64(), 1'000'000u);
  EXPECT_EQ(fields.u64(), 4096u);
  EXPECT_EQ(fields.bytes(4096), Bytes(packets.end() - 4096, packets.end()));
  EXPECT_EQ(fields.left(), 0u);
}

TEST_F(SampleTest, EveryFieldInTheKernelsOrder) {
  perf_event_attr attr = sampler_attr((PERF_SAMPLE_MAX - 1) & ~PERF_SAMPLE_WEIGHT_STRUCT, 24);
  attr.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING |
                     PERF_FORMAT_ID | PERF_FORMAT_LOST;
  attr.branch_sample_type = PERF_SAMPLE_BRANCH_HW_INDEX;
  attr.sample_regs_user = 0b1011;
  attr.sample_regs_intr = uint64_t{1} << 40;
  attr.sample_stack_user = 32;
  Event parent;
  ASSERT_EQ(parent.init(attr, 500, kSoftwareTrigger, nullptr), 0);
  parent.ring = &group_.ring;
  Event& event = group_.add_sampler(attr, 501, group_.ring);
  event.parent = &parent;  // so that ID and STREAM_ID differ
  event.count = 61;
  event.time_enabled = 62;
  event.time_running = 63;
  event.lost.store(64);
  const Bytes packets = pattern(24);
  group_.area.write(packets.data(), packets.size());

  SampleData data = usual_data(21);
  data.addr = 22;
  const uint64_t ips[] = {31, 32};
  data.callchain = {ips, 2};
  const Bytes raw = pattern(5);
  data.raw = {raw.data(), 5};
  perf_branch_entry branches[3]{};
  for (unsigned i = 0; i < 3; ++i) {
    branches[i].from = 41 + i;
    branches[i].to = 44 + i;
    branches[i].mispred = 1;
  }
  data.branches = {branches, 3};
  data.branch_hw_idx = 40;
  const uint64_t user[] = {51, 52, 53};
  data.regs_user = {PERF_SAMPLE_REGS_ABI_64, user};
  const uint64_t intr[] = {54};
  data.regs_intr = {PERF_SAMPLE_REGS_ABI_32, intr};
  const Bytes stack = pattern(20, 100);
  data.user_stack = {stack.data(), 20};
  data.weight = 71;
  data.data_src = 72;
  data.transaction = 73;
  data.phys_addr = 74;
  data.cgroup = 75;
  data.data_page_size = 76;
  data.code_page_size = 77;

  const Bytes record = sample(event, data);
  Fields f(record);
  auto expect_words = [&](std::initializer_list<uint64_t> words) {
    for (const uint64_t word : words) EXPECT_EQ(f.u64(), word);
  };
  expect_words({500, 21});  // IDENTIFIER, IP
  EXPECT_EQ(f.u32(), 4700u);
  EXPECT_EQ(f.u32(), kTid);
  expect_words({123456789, 22, 500, 501});  // TIME, ADDR, ID, STREAM_ID
  EXPECT_EQ(f.u32(), 1u);
  EXPECT_EQ(f.u32(), 0u);
  expect_words({1'000'000});            // PERIOD
  expect_words({61, 62, 63, 500, 64});  // READ
  expect_words({2, 31, 32});            // CALLCHAIN
  EXPECT_EQ(f.u32(), 12u);              // RAW: the size counts the padding
  EXPECT_EQ(f.bytes(5), raw);
  EXPECT_EQ(f.bytes(7), Bytes(7));
  expect_words({3, 40, 41, 44, 1, 42, 45, 1, 43, 46, 1});  // BRANCH_STACK
  expect_words({PERF_SAMPLE_REGS_ABI_64, 51, 52, 53});     // REGS_USER
  expect_words({32});                                      // STACK_USER
  EXPECT_EQ(f.bytes(20), stack);
  EXPECT_EQ(f.bytes(12), Bytes(12));
  expect_words({20, 71, 72, 73, PERF_SAMPLE_REGS_ABI_32, 54, 74, 75, 76, 77});
  expect_words({24});  // AUX, last
  EXPECT_EQ(f.bytes(24), packets);
  EXPECT_EQ(f.left(), 0u);
}

TEST_F(SampleTest, EmptyVariableFields) {
  const uint64_t type = PERF_SAMPLE_CALLCHAIN | PERF_SAMPLE_RAW | PERF_SAMPLE_BRANCH_STACK |
                        PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER | PERF_SAMPLE_AUX;
  perf_event_attr attr = sampler_attr(type, 0);
  attr.sample_regs_user = 0xff;
  attr.sample_stack_user = 1024;
  const Bytes record = sample(group_.add_sampler(attr, 1, group_.ring));
  Fields f(record);
  EXPECT_EQ(f.u64(), 0u);
  EXPECT_EQ(f.u32(), 4u);
  EXPECT_EQ(f.u32(), 0u);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(f.u64(), 0u);
  EXPECT_EQ(f.left(), 0u);
}

TEST_F(SampleTest, C1_LargestAuxSampleHolds65512Bytes) {
  Event& sampler = group_.add_sampler(PERF_SAMPLE_AUX, 1 << 20);
  const Bytes record = sample(sampler);
  EXPECT_EQ(aux_size_, 65512u);
  EXPECT_EQ(record.size(), 65528u);
  EXPECT_EQ(header_of(record).size, 65528);
}

TEST_F(SampleTest, C1_EveryOtherFieldCostsEight) {
  uint64_t type = PERF_SAMPLE_AUX;
  uint64_t expected = 65512;
  for (const uint64_t bit :
       {PERF_SAMPLE_IP, PERF_SAMPLE_TID, PERF_SAMPLE_TIME, PERF_SAMPLE_ADDR, PERF_SAMPLE_ID,
        PERF_SAMPLE_STREAM_ID, PERF_SAMPLE_CPU, PERF_SAMPLE_PERIOD, PERF_SAMPLE_IDENTIFIER}) {
    type |= bit;
    expected -= 8;
    EXPECT_EQ(aux_size_of(group_.add_sampler(type, UINT32_MAX)), expected);
  }
}

TEST_F(SampleTest, C2_RequestsAreRoundedDownAndClippedToTheBuffer) {
  for (const auto& [request, expected] : {std::pair{7u, 0u},
                                          {8u, 8u},
                                          {15u, 8u},
                                          {4096u, 4096u},
                                          {4097u, 4096u},
                                          {4103u, 4096u},
                                          {4104u, 4104u}}) {
    EXPECT_EQ(aux_size_of(group_.add_sampler(PERF_SAMPLE_AUX, request)), expected) << request;
  }
  ASSERT_EQ(group_.area.attach(memory_.control(), memory_.aux(), 4096), 0);
  EXPECT_EQ(aux_size_of(group_.add_sampler(PERF_SAMPLE_AUX, 10000)), 4096u);
}

TEST_F(SampleTest, C4_SizeZeroIsStillWritten) {
  Event& sampler = group_.add_sampler(PERF_SAMPLE_AUX, 4096);
  const auto expect_empty = [&](const char* why, SampleData data = usual_data()) {
    const Bytes record = sample(sampler, data);
    EXPECT_EQ(record, (Bytes{std::byte{9},
                             {},
                             {},
                             {},
                             std::byte{2},
                             {},
                             std::byte{16},
                             {},
                             {},
                             {},
                             {},
                             {},
                             {},
                             {},
                             {},
                             {}}))
        << why;
  };
  EXPECT_EQ(aux_size_of(sampler), 4096u);
  const int calls = group_.script.calls;

  group_.leader.state = EventState::kInactive;
  expect_empty("leader not active");
  group_.leader.state = EventState::kActive;

  SampleData elsewhere = usual_data();
  elsewhere.tid = kTid + 1;
  expect_empty("leader on another CPU", elsewhere);

  group_.leader.aux = nullptr;
  expect_empty("no AUX buffer");
  group_.leader.aux = &group_.area;

  group_.area.detach();
  expect_empty("no AUX map");
  ASSERT_EQ(group_.area.attach(memory_.control(), memory_.aux(), memory_.aux_bytes()), 0);

  {
    AuxSamplingGuard guard(group_.area);
    expect_empty("inside another sampling");
  }
  sampler.attr.aux_sample_size = 7;
  expect_empty("request below 8");
  sampler.attr.aux_sample_size = 4096;
  EXPECT_EQ(group_.script.calls, calls);
  EXPECT_EQ(aux_size_of(sampler), 4096u);

  put_aux_event(sampler);
  expect_empty("no leader");
}

TEST_F(SampleTest, C4_SizeZeroFromAnAreaInNormalMode) {
  auto& sampler = group_.add_sampler(kUsualSampleType, 64);
  SampleData data = usual_data();
  EXPECT_EQ(prepare_sample_aux(sampler, data, 64), 64U);
  ASSERT_EQ(group_.area.attach(memory_.control(), memory_.aux(), memory_.aux_bytes(),
                               {.overwrite = false}),
            0);
  EXPECT_EQ(prepare_sample_aux(sampler, data, 64), 0U);
}

TEST_F(SampleTest, C5_TheSamplersRingMayDifferFromTheLeaders) {
  Memory other_memory(1 << 16, 8);
  DataRing other;
  ASSERT_EQ(other.attach(other_memory.control(), other_memory.data(), 1 << 16), 0);
  Event& sampler = group_.add_sampler(sampler_attr(PERF_SAMPLE_AUX, 64), 5, other);
  const Bytes packets = pattern(64);
  group_.area.write(packets.data(), 64);
  SampleData data = usual_data();
  EXPECT_EQ(event_output(sampler, data), Outcome::kWritten);
  EXPECT_TRUE(drain(reader_).empty());
  RingReader other_reader = other_memory.reader();
  const auto records = drain(other_reader);
  ASSERT_EQ(records.size(), 1u);
  Fields fields(records[0]);
  EXPECT_EQ(fields.u64(), 64u);
  EXPECT_EQ(fields.bytes(64), packets);
}

TEST_F(SampleTest, C6_SamplingMovesNoAuxPointerAndWritesNoAuxRecord) {
  const Bytes packets = pattern(1000);
  group_.area.write(packets.data(), packets.size());
  const uint64_t head = memory_.control()->aux_head;
  Event& sampler = group_.add_sampler(PERF_SAMPLE_AUX, 64);
  const Bytes record = sample(sampler);  // exactly one record, the sample
  EXPECT_EQ(header_of(record).type, static_cast<uint32_t>(PERF_RECORD_SAMPLE));
  EXPECT_EQ(memory_.control()->aux_head, head);
  EXPECT_EQ(memory_.control()->aux_tail, 0u);
  EXPECT_EQ(group_.leader.state, EventState::kActive);
  EXPECT_TRUE(group_.leader.hw.stopped);
}

TEST_F(SampleTest, C7_SecondSamplerNestedInTheFirstsSnapshot) {
  Event& first = group_.add_sampler(kUsualSampleType, 256, 101);
  Event& second = group_.add_sampler(kUsualSampleType, 256, 102);
  const Bytes packets = pattern(256);
  group_.area.write(packets.data(), packets.size());
  SampleData inner = usual_data(0x402000);
  group_.script.snapshot = [&](Event& leader, OutputHandle& handle, uint64_t size) {
    const int64_t half = leader.aux->copy_out(handle, 0, 128);
    EXPECT_EQ(event_output(second, inner), Outcome::kWritten);
    EXPECT_TRUE(leader.aux->in_sampling());  // the inner sample must not have cleared it
    return half + leader.aux->copy_out(handle, 128, size);
  };
  SampleData outer = usual_data();
  EXPECT_EQ(event_output(first, outer), Outcome::kWritten);
  EXPECT_EQ(outer.aux_size, 256u);
  EXPECT_EQ(inner.aux_size, 0u);
  EXPECT_EQ(group_.script.calls, 1);
  EXPECT_FALSE(group_.area.in_sampling());
  const auto records = drain(reader_);
  ASSERT_EQ(records.size(), 2u);
  Fields a(records[0]);
  EXPECT_EQ(a.u64(), 101u);
  (void)a.bytes(40);
  EXPECT_EQ(a.u64(), 256u);
  EXPECT_EQ(a.bytes(256), packets);
  Fields b(records[1]);
  EXPECT_EQ(b.u64(), 102u);
  (void)b.bytes(40);
  EXPECT_EQ(b.u64(), 0u);
  EXPECT_EQ(b.left(), 0u);
}

TEST_F(SampleTest, GuardIsSetDuringTheCallbackOnly) {
  Event& sampler = group_.add_sampler(PERF_SAMPLE_AUX, 64);
  bool inside = false;
  group_.script.snapshot = [&](Event& leader, OutputHandle&, uint64_t) {
    inside = leader.aux->in_sampling();
    return int64_t{0};
  };
  (void)sample(sampler);
  EXPECT_TRUE(inside);
  EXPECT_FALSE(group_.area.in_sampling());
}

class ShortSnapshot : public SampleTest, public ::testing::WithParamInterface<int64_t> {};

// Stale ring bytes must not come out when a snapshot is short, empty, failed or lies about its
// size.
TEST_P(ShortSnapshot, K16_IsZeroFilledToThePromisedSize) {
  Event& sampler = group_.add_sampler(PERF_SAMPLE_AUX, 4096);
  std::memset(memory_.data(), 0xaa, memory_.data_bytes());  // what older records left
  group_.script.snapshot = [](Event&, OutputHandle& handle, uint64_t) {
    const Bytes some = pattern(100);
    if (GetParam() > 0) handle.copy(some.data(), 100);
    return GetParam();
  };
  const Bytes record = sample(sampler);
  EXPECT_EQ(record.size(), 16u + 4096);
  Fields fields(record);
  EXPECT_EQ(fields.u64(), 4096u);
  const size_t real = GetParam() > 0 ? 100 : 0;
  EXPECT_EQ(fields.bytes(real), pattern(real));
  EXPECT_EQ(fields.bytes(4096 - real), Bytes(4096 - real));
}

INSTANTIATE_TEST_SUITE_P(Returns, ShortSnapshot, ::testing::Values(0, -EFAULT, 100, 4096, 1 << 30));

TEST_F(SampleTest, ASnapshotThatDeliversTooMuchIsCutToThePromisedSize) {
  Event& sampler = group_.add_sampler(PERF_SAMPLE_AUX, 64);
  group_.script.snapshot = [](Event&, OutputHandle& handle, uint64_t) {
    const Bytes much = pattern(4096);
    EXPECT_EQ(handle.copy(much.data(), 4096), 4096u - 64);
    return int64_t{4096};
  };
  EXPECT_EQ(sample(sampler).size(), 80u);
  group_.script.snapshot = [](Event&, OutputHandle&, uint64_t) { return int64_t{0}; };
  EXPECT_EQ(sample(sampler).size(), 80u);
}

// In u16 a record that STACK_USER filled to 65528 made the AUX size wrap round.
TEST_F(SampleTest, K15_MaximalStackAndAuxDoNotWrap) {
  perf_event_attr attr =
      sampler_attr(PERF_SAMPLE_STACK_USER | PERF_SAMPLE_WEIGHT | PERF_SAMPLE_AUX, 65528);
  attr.sample_stack_user = 65528;
  Event& sampler = group_.add_sampler(attr, 1, group_.ring);
  const Bytes stack = pattern(70000);
  SampleData data = usual_data();
  data.weight = 0x1122334455667788;
  data.user_stack = {stack.data(), 70000};
  const Bytes record = sample(sampler, data);
  EXPECT_EQ(record.size(), 65528u);
  EXPECT_EQ(aux_size_, 0u);
  Fields fields(record);
  const uint64_t dump = fields.u64();
  EXPECT_EQ(dump, 65528u - 8 - 8 - 8 - 8 - 8);
  EXPECT_EQ(fields.bytes(dump), Bytes(stack.begin(), stack.begin() + static_cast<long>(dump)));
  EXPECT_EQ(fields.u64(), dump);
  EXPECT_EQ(fields.u64(), 0x1122334455667788u);
  EXPECT_EQ(fields.u64(), 0u);
  EXPECT_EQ(fields.left(), 0u);
}

TEST_F(SampleTest, ARecordThatCannotFitIsCountedNotWrapped) {
  Event& sampler = group_.add_sampler(PERF_SAMPLE_CALLCHAIN | PERF_SAMPLE_AUX, 4096);
  const std::vector<uint64_t> ips(8190, 1);
  SampleData data = usual_data();
  for (const auto& [count, fits] : {std::pair{8187u, true}, {8188u, true}, {8189u, false}}) {
    data.callchain = {ips.data(), count};
    EXPECT_EQ(event_output(sampler, data), fits ? Outcome::kWritten : Outcome::kTooLarge) << count;
  }
  data.callchain = {ips.data(), UINT32_MAX};  // 32 GiB
  EXPECT_EQ(event_output(sampler, data), Outcome::kTooLarge);
  EXPECT_EQ(sampler.lost.load(), 2u);
  EXPECT_EQ(group_.ring.lost_pending(), 2u);
  const auto records = drain(reader_);
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[1].size(), 65528u);
}

TEST_F(SampleTest, D2_LostRecordCarriesEventCountAndTrailer) {
  Memory memory(4096, 4096);
  DataRing ring;
  ASSERT_EQ(ring.attach(memory.control(), memory.data(), 4096), 0);
  RingReader reader = memory.reader();
  perf_event_attr attr =
      sampler_attr(kUsualSampleType | PERF_SAMPLE_ID | PERF_SAMPLE_STREAM_ID, 1000);
  Event& sampler = group_.add_sampler(attr, 101, ring);
  int written = 0;
  SampleData data = usual_data();
  while (event_output(sampler, data) == Outcome::kWritten) ++written;
  EXPECT_EQ(written, 3);
  EXPECT_EQ(event_output(sampler, data), Outcome::kLost);
  EXPECT_EQ(sampler.lost.load(), 2u);
  EXPECT_EQ(drain(reader).size(), 3u);

  data.time_ns = 999;
  EXPECT_EQ(event_output(sampler, data), Outcome::kWritten);
  const auto records = drain(reader);
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(header_of(records[0]).type, static_cast<uint32_t>(PERF_RECORD_LOST));
  EXPECT_EQ(header_of(records[0]).size, sample_id_bytes(sampler) + 24);
  Fields f(records[0]);
  EXPECT_EQ(f.u64(), 101u);
  EXPECT_EQ(f.u64(), 2u);
  EXPECT_EQ(f.u32(), 4700u);  // trailer: TID TIME ID STREAM_ID CPU IDENTIFIER
  EXPECT_EQ(f.u32(), kTid);
  EXPECT_EQ(f.u64(), 999u);
  EXPECT_EQ(f.u64(), 101u);
  EXPECT_EQ(f.u64(), 101u);
  EXPECT_EQ(f.u32(), 1u);
  EXPECT_EQ(f.u32(), 0u);
  EXPECT_EQ(f.u64(), 101u);
  EXPECT_EQ(f.left(), 0u);
  EXPECT_EQ(sampler.lost.load(), 2u);  // read(2) keeps counting what LOST has reported
}

TEST_F(SampleTest, LostRecordWithoutSampleIdAllHasNoTrailer) {
  perf_event_attr attr = sampler_attr(kUsualSampleType, 64);
  attr.sample_id_all = 0;
  Event& sampler = group_.add_sampler(attr, 9, group_.ring);
  group_.ring.count_lost(1);
  SampleData data = usual_data();
  EXPECT_EQ(event_output(sampler, data), Outcome::kWritten);
  const auto records = drain(reader_);
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].size(), 24u);
}

TEST_F(SampleTest, AnInactiveEventWritesNothing) {
  Event& sampler = group_.add_sampler(kUsualSampleType, 64);
  sampler.schedule_out();
  SampleData data = usual_data();
  EXPECT_EQ(event_output(sampler, data), Outcome::kInactive);
  EXPECT_TRUE(drain(reader_).empty());
  EXPECT_EQ(sampler.lost.load(), 0u);
}

TEST_F(SampleTest, AnInheritedLeaderUsesItsParentsBuffer) {
  Event parent;
  ASSERT_EQ(parent.init(leader_attr(), 1, kScriptedPmu, nullptr), 0);
  parent.aux = &group_.area;
  group_.leader.parent = &parent;
  group_.leader.aux = nullptr;
  group_.script.snapshot = [](Event& leader, OutputHandle& handle, uint64_t size) {
    return aux_area_of(leader)->copy_newest(handle, size);
  };
  EXPECT_EQ(aux_size_of(group_.add_sampler(PERF_SAMPLE_AUX, 64)), 64u);
  group_.leader.parent = nullptr;
}

TEST(SampleTypeTest, WhatCannotBeWrittenIsRefused) {
  perf_event_attr attr = sampler_attr(PERF_SAMPLE_MAX - 1, 0);
  EXPECT_TRUE(sample_type_supported(attr));
  attr = sampler_attr(uint64_t{1} << 40, 0);
  EXPECT_FALSE(sample_type_supported(attr));
}

}  // namespace
}  // namespace auxtrail::event
