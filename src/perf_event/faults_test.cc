// The faults that the kernel's AUX sampling once had, or still has: that these are not here. One
// test each, named after the list in docs/conformance.md, part K.
#include <gtest/gtest.h>
#include <poll.h>

#include <cerrno>
#include <utility>

#include "perf_event/testing/fixture.h"

namespace auxtrail::perf_event::testing {
namespace {

constexpr int kReadWrite = PROT_READ | PROT_WRITE;
using event::EventState;

class KnownFault : public KernelTest {
 protected:
  // A leader in overwrite mode with a ring, not yet enabled, and a sampler that writes there.
  void sampled_leader(const perf_event_attr& sampling_attr = sampler(64),
                      uint64_t ring_pages = 17) {
    perf_event_attr attr = tracer(101);
    attr.disabled = 1;
    leader = opened(attr);
    sampling = opened(sampling_attr, leader);
    ring = map(leader, ring_pages);
    aux = map_aux(leader, ring, 4, PROT_READ);
    ASSERT_GT(aux, 0);
    ASSERT_EQ(ioctl(sampling, PERF_EVENT_IOC_SET_OUTPUT, static_cast<uint64_t>(leader)), 0);
    read = reader(ring);
    enable(leader);
    ASSERT_EQ(event(leader).state, EventState::kActive);
  }

  int leader = -1;
  int sampling = -1;
  long ring = 0;
  long aux = 0;
  event::RingReader read;
};

size_t count_of_type(const std::vector<event::testing::Bytes>& records, uint32_t type) {
  size_t count = 0;
  for (const auto& record : records)
    count += event::testing::header_of(record).type == type ? 1 : 0;
  return count;
}

TEST_F(KnownFault, K1_OpenRefusesAnUnfitLeader) {
  EXPECT_EQ(open(sampler(4096)), -EINVAL) << "no leader";
  EXPECT_EQ(open(sampler(4096), opened(dummy())), -EINVAL) << "one that does not trace";
  EXPECT_EQ(open(sampler(4096), opened(tracer(kStreamer.type))), -EINVAL)
      << "or gives no snapshots";
  const int fit = opened(tracer(101));
  perf_event_attr both = sampler(4096);
  both.type = kOutputCounter.type;
  both.config1 = both.aux_output = 1;
  both.sample_period = 0;
  EXPECT_EQ(open(both, fit), -EINVAL) << "output and samples";
  EXPECT_GE(open(sampler(4096), fit), 0);
}

TEST_F(KnownFault, K2_AChildsSamplerNeverLinksToTheParentsLeader) {
  perf_event_attr attr = tracer(101);
  attr.inherit = 1;
  const int parent = opened(attr, -1, 0);
  perf_event_attr sampled = sampler(64);
  sampled.inherit = 1;
  const int parents_sampler = opened(sampled, parent, 0);
  for (int generation = 0; generation < 3; ++generation) {
    const Tid child = cloned();
    PerfEvent& child_sampler = *kernel.inherited(event(parents_sampler), child);
    EXPECT_EQ(child_sampler.aux_event, kernel.inherited(event(parent), child));
    EXPECT_EQ(event(parent).refcount.load(), 3U + static_cast<unsigned>(generation));
  }
}

// A PMU whose event_init takes its time: in between, somebody else closes the events.
std::function<void()> in_event_init;
constexpr event::Pmu kSlow{.name = "slow",
                           .type = 200,
                           .software_context = true,
                           .event_init =
                               [](event::Event&) {
                                 if (in_event_init) std::exchange(in_event_init, nullptr)();
                                 return 0;
                               },
                           .add = tracer_add,
                           .del = tracer_del,
                           .start = tracer_start,
                           .stop = tracer_stop,
                           .setup_aux = tracer_setup,
                           .snapshot_aux = tracer_snapshot};

TEST_F(KnownFault, K2_EventsThatAreBeingClosedAreNotInherited) {
  kernel.add_pmu(kSlow, units.context());
  perf_event_attr attr = tracer(kSlow.type);
  attr.inherit = 1;
  const int parent = opened(attr, -1, 0);
  perf_event_attr sampled = sampler(64);
  sampled.inherit = 1;
  const int parents_sampler = opened(sampled, parent, 0);
  in_event_init = [&] { kernel.close(tid, parent); };
  const Tid child = cloned();
  EXPECT_EQ(kernel.event_of(tid, parent), nullptr);
  // The sampler has lost its leader and is inherited alone; nothing hangs on a copy of the leader.
  PerfEvent* const child_sampler = kernel.inherited(event(parents_sampler), child);
  ASSERT_NE(child_sampler, nullptr);
  EXPECT_EQ(child_sampler->aux_event, nullptr);
  EXPECT_EQ(child_sampler->group_leader, nullptr);
  EXPECT_EQ(kernel.event_count(), 2U);
}

TEST_F(KnownFault, K4_StopWithoutUpdateThenStartIsOneTransaction) {
  sampled_leader();
  PerfEvent& tracing = event(leader);
  units.trace(tracing, 100);
  tracing.pmu->stop(tracing, 0);
  EXPECT_TRUE(event::aux_area_of(tracing)->in_transaction());
  tracing.pmu->start(tracing, 0);
  units.trace(tracing, 100);
  disable(leader);
  EXPECT_EQ(unit_of(tracing).log, "be");
  EXPECT_FALSE(event(leader).buffer->aux().in_transaction());
  EXPECT_EQ(count_of_type(records(read), PERF_RECORD_AUX), 1U);
}

TEST_F(KnownFault, K6_FromEmptyToFullBetweenTwoUpdatesIsFull) {
  sampled_leader(sampler(64));
  event::AuxArea& area = event(leader).buffer->aux();
  const event::testing::Bytes bytes = event::testing::pattern(4 * kPage);
  area.place(0, bytes.data(), bytes.size());
  area.move_head(0, true);  // a unit that writes in place and has come around exactly once
  page_faults(1);
  const auto found = records(read);
  ASSERT_FALSE(found.empty());
  event::testing::Fields fields(found.back());
  (void)fields.bytes(16);
  ASSERT_EQ(fields.u64(), 64U);
  EXPECT_EQ(fields.bytes(64), event::testing::Bytes(bytes.end() - 64, bytes.end()));
}

TEST_F(KnownFault, K7_AbsurdSizesAreRefusedQuietly) {
  const int fd = opened(tracer(101));
  const long control = map(fd, 3);
  const auto try_aux = [&](uint64_t pages) {
    page(control).aux_offset = 3 * kPage;
    page(control).aux_size = pages * kPage;
    return kernel.mmap(tid, pages * kPage, PROT_READ, MAP_SHARED, fd, 3 * kPage);
  };
  EXPECT_EQ(try_aux(0), -EINVAL);
  EXPECT_EQ(try_aux(uint64_t{1} << 20), -ENOMEM) << "4 GiB";
  EXPECT_EQ(try_aux(uint64_t{1} << 30), -ENOMEM) << "4 TiB";
  EXPECT_EQ(try_aux(uint64_t{1} << 31), -ENOMEM) << "2^31 pages, which an int cannot hold";
  EXPECT_EQ(try_aux(uint64_t{1} << 32), -ENOMEM) << "2^32, which are 0 in 32 bits";
  EXPECT_EQ(try_aux(uint64_t{1} << 50), -ENOMEM);
  EXPECT_FALSE(event(fd).buffer->has_aux());
  EXPECT_GT(try_aux(4), 0);
}

TEST_F(KnownFault, K8_TwoEventsMapAndUnmapOneAuxArea) {
  const int first = opened(tracer(101));
  const int second = opened(tracer(101));
  const long control = map(first, 3);
  ASSERT_EQ(ioctl(second, PERF_EVENT_IOC_SET_OUTPUT, static_cast<uint64_t>(first)), 0);
  const long through_first = map_aux(first, control, 4, PROT_READ);
  const long through_second = map_aux(second, control, 4, PROT_READ);
  ASSERT_GT(through_first, 0);
  ASSERT_GT(through_second, 0);
  EXPECT_EQ(event(first).buffer, event(second).buffer);
  EXPECT_EQ(event(first).buffer->aux_mmap_count, 2U);
  EXPECT_EQ(unmap(through_first, 4), 0);
  EXPECT_TRUE(event(second).buffer->has_aux()) << "the other still has it mapped";
  EXPECT_EQ(map_aux(first, control, 8, PROT_READ), -EINVAL) << "so no other size";
  EXPECT_EQ(unmap(through_second, 4), 0);
  EXPECT_FALSE(event(first).buffer->has_aux());
  EXPECT_EQ(event(first).aux, nullptr);
  EXPECT_EQ(event(second).buffer, nullptr) << "as every event without a mapping left";
  EXPECT_GT(map_aux(first, control, 8, PROT_READ), 0) << "now another size will do";
}

TEST_F(KnownFault, K9_InheritedEventsWakeTheParentsReader) {
  perf_event_attr attr = tracer(101);
  attr.inherit = 1;
  attr.disabled = 1;
  const int parent = opened(attr, -1, 0);
  const long control = map(parent, 3);
  ASSERT_GT(map_aux(parent, control, 4, kReadWrite), 0);
  enable(parent);
  const Tid child = cloned();
  kernel.run(child, 0);
  PerfEvent& tracing = *kernel.inherited(event(parent), child);
  units.trace(tracing, 2 * kPage);
  units.interrupt(tracing);
  EXPECT_EQ(kernel.poll(tid, parent), POLLIN);
  EXPECT_EQ(page(control).aux_head, 2 * kPage);
}

TEST_F(KnownFault, K10_AnOverrunReallyDisablesAndWakes) {
  perf_event_attr attr = tracer(101);
  attr.disabled = 1;
  const int fd = opened(attr);
  const long control = map(fd, 3);
  ASSERT_GT(map_aux(fd, control, 4, kReadWrite), 0);
  enable(fd);
  units.trace(event(fd), 5 * kPage);  // truncated
  units.interrupt(event(fd));         // and there is no room for another transaction
  kernel.run_pending();
  EXPECT_EQ(event(fd).state, EventState::kOff);
  EXPECT_EQ(event(fd).oncpu, 0U);
  EXPECT_TRUE(event(fd).hw.stopped);
  EXPECT_EQ(kernel.poll(tid, fd), POLLIN);
  kernel.stop_running(tid);
  kernel.run(tid, 0);
  EXPECT_EQ(event(fd).state, EventState::kOff) << "being scheduled does not enable it again";
}

TEST_F(KnownFault, K11_AFailedAuxMapLeavesTheDataMapUsable) {
  const int streaming = opened(sampler());
  const long control = map(streaming, 3);
  const uint64_t locked = root.locked_pages;
  for (int i = 0; i < 50; ++i) EXPECT_EQ(map_aux(streaming, control, 4, PROT_READ), -EOPNOTSUPP);
  EXPECT_EQ(root.locked_pages, locked);
  EXPECT_EQ(event(streaming).buffer->mmap_count, 1U);
  page_faults(3);
  auto reading = reader(control);
  EXPECT_EQ(records(reading).size(), 3U);
  EXPECT_EQ(unmap(control, 3), 0);
  EXPECT_EQ(event(streaming).buffer, nullptr);
}

TEST_F(KnownFault, K11_PartsOfABufferCannotBeUnmappedOrRemapped) {
  sampled_leader();
  for (const auto& [address, pages] :
       {std::pair{ring, uint64_t{17}}, std::pair{aux, uint64_t{4}}}) {
    EXPECT_EQ(unmap(address, pages - 1), -EINVAL);
    EXPECT_EQ(unmap(address + static_cast<long>(kPage), pages - 1), -EINVAL);
    auto* const start = reinterpret_cast<void*>(address);
    EXPECT_EQ(kernel.mremap(tid, start, pages * kPage, kPage), -EINVAL);
    EXPECT_EQ(kernel.mremap(tid, start, pages * kPage, 2 * pages * kPage), -EFAULT);
  }
  units.trace(event(leader), 100);
  page_faults(1);
  EXPECT_EQ(count_of_type(records(read), PERF_RECORD_SAMPLE), 1U);
}

// Five occurrences at once with a period of 2 are two overflows and a half: each overflow takes a
// sample, and a snapshot of its own moment.
TEST_F(KnownFault, K12_EachOverflowHasASnapshotOfItsOwn) {
  perf_event_attr attr = sampler(64);
  attr.sample_period = 2;
  sampled_leader(attr);
  PerfEvent& tracing = event(leader);
  units.trace(tracing, 1000);
  unit_of(tracing).in_snapshot = [&] {
    unit_of(tracing).tracing = true;  // what happens between two overflows
    units.trace(tracing, 8);
    unit_of(tracing).tracing = false;
  };
  kernel.count(tid, PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS, 5);
  EXPECT_EQ(unit_of(tracing).log, "bSS");
  const auto found = records(read);
  ASSERT_EQ(count_of_type(found, PERF_RECORD_SAMPLE), 2U);
  const auto last_byte = [&](size_t sample) { return found[sample].back(); };
  EXPECT_EQ(last_byte(0), Tracer::byte_at(1007));
  EXPECT_EQ(last_byte(1), Tracer::byte_at(1015));
}

TEST_F(KnownFault, K13_K14_AuxRecordsAreWrittenWhereTheySaySomething) {
  sampled_leader();
  PerfEvent& tracing = event(leader);
  const auto written = [&](uint64_t bytes, uint64_t flags) {
    units.trace(tracing, bytes);
    unit_of(tracing).output.flag(flags);
    units.interrupt(tracing);
    return count_of_type(records(read), PERF_RECORD_AUX);
  };
  EXPECT_EQ(written(0, 0), 0U) << "overwrite alone says nothing";
  EXPECT_EQ(written(0, PERF_AUX_FLAG_CORESIGHT_FORMAT_RAW), 0U) << "nor does a format";
  EXPECT_EQ(written(0, PERF_AUX_FLAG_PARTIAL), 1U);
  EXPECT_EQ(written(0, PERF_AUX_FLAG_COLLISION), 1U);
  EXPECT_EQ(written(8, 0), 1U);
}

TEST_F(KnownFault, K15_AMaximalStackAndAuxDoNotWrap) {
  perf_event_attr attr = sampler(65528);
  attr.sample_type |= PERF_SAMPLE_STACK_USER;
  attr.sample_stack_user = 65528;
  sampled_leader(attr, 33);
  units.trace(event(leader), 1000);
  const std::vector<std::byte> stack(65536);
  event::SampleData data;
  data.user_stack = {stack.data(), 65536};
  EXPECT_EQ(kernel.overflow(event(sampling), data), event::Outcome::kWritten);
  const auto found = records(read);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].size(), 65528U);
  event::testing::Fields fields(found[0]);
  (void)fields.bytes(16);
  const uint64_t dumped = fields.u64();
  (void)fields.bytes(dumped + 8);
  const uint64_t aux_bytes = fields.u64();
  EXPECT_EQ(aux_bytes, fields.left());
  EXPECT_EQ(aux_bytes, 0U) << "the stack has left no room";
}

TEST_F(KnownFault, K16_AShortSnapshotIsFilledWithZeros) {
  sampled_leader(sampler(4096));
  units.trace(event(leader), 100);  // of the area only these are this event's
  // Something lies in the data ring where the sample will be.
  event::DataRing& data_ring = event(leader).buffer->ring();
  for (int i = 0; i < 40; ++i) {
    event::OutputHandle handle;
    uint64_t lost = 0;
    const event::testing::Bytes junk(4096, std::byte{0xee});
    ASSERT_TRUE(data_ring.begin(handle, 4104, 0, lost));
    handle.put(perf_event_header{PERF_RECORD_SAMPLE, 0, 4104});
    (void)handle.copy(junk.data(), junk.size());
    data_ring.end(handle);
    (void)records(read);
  }
  page_faults(1);
  const auto found = records(read);
  ASSERT_EQ(found.size(), 1U);
  event::testing::Fields fields(found[0]);
  (void)fields.bytes(16);
  ASSERT_EQ(fields.u64(), 4096U);
  EXPECT_EQ(fields.bytes(3996), event::testing::Bytes(3996, std::byte{0}));
  EXPECT_EQ(fields.bytes(1)[0], Tracer::byte_at(0));
}

TEST_F(KnownFault, K17_TheModeIsCheckedWhereItCanHold) {
  const int first = opened(tracer(101));
  EXPECT_EQ(event(first).attr.aux_sample_size, 0U) << "a leader's own is always 0";
  const int sampled = opened(sampler(64), first);
  const long control = map(first, 3);
  EXPECT_EQ(map_aux(first, control, 4, kReadWrite), -EINVAL);
  EXPECT_EQ(kernel.close(tid, sampled), 0);
  EXPECT_GT(map_aux(first, control, 4, kReadWrite), 0) << "nobody samples it any more";
  EXPECT_EQ(open(sampler(64), first), -EINVAL) << "and nobody can begin to";
}

TEST_F(KnownFault, K18_ARefusedOpenDropsTheLeadersReference) {
  const int leading = opened(tracer(101));
  const int exclusive = opened(tracer(100));
  perf_event_attr attr = tracer(100);
  attr.aux_sample_size = 64;
  for (int i = 0; i < 10; ++i) EXPECT_EQ(open(attr, leading), -EBUSY);
  EXPECT_EQ(event(leading).refcount.load(), 1U);
  EXPECT_EQ(event(leading).aux_samplers, nullptr);
  (void)exclusive;
}

}  // namespace
}  // namespace auxtrail::perf_event::testing
