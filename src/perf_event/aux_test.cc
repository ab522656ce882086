// The AUX area as its reader sees it, through the system calls: checklist E, F1, C6.
#include <gtest/gtest.h>
#include <poll.h>

#include <cerrno>

#include "perf_event/testing/fixture.h"

namespace auxtrail::perf_event::testing {
namespace {

constexpr int kReadWrite = PROT_READ | PROT_WRITE;
using event::EventState;

struct AuxRecord {
  uint64_t offset, size, flags;
  bool operator==(const AuxRecord&) const = default;
};

// A disabled tracer with both areas mapped; 4 pages of AUX area.
class AuxTest : public KernelTest {
 protected:
  void trace_into(int protection, uint32_t watermark = 0) {
    perf_event_attr attr = tracer(101);
    attr.disabled = 1;
    attr.aux_watermark = watermark;
    attr.sample_id_all = 1;
    attr.sample_type =
        PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU | PERF_SAMPLE_IDENTIFIER;
    leader = opened(attr);
    ring = map(leader, 9);
    aux = map_aux(leader, ring, 4, protection);
    ASSERT_GT(aux, 0);
    read = reader(ring);
  }
  PerfEvent& tracing() { return event(leader); }
  std::vector<AuxRecord> aux_records() {
    std::vector<AuxRecord> found;
    for (const auto& record : records(read)) {
      if (event::testing::header_of(record).type != PERF_RECORD_AUX) continue;
      event::testing::Fields fields(record);
      const uint64_t offset = fields.u64();
      const uint64_t size = fields.u64();
      found.push_back({offset, size, fields.u64()});
      EXPECT_EQ(fields.u32(), tid);  // pid
      EXPECT_EQ(fields.u32(), tid);
      EXPECT_EQ(fields.u64(), now);
      EXPECT_EQ(fields.u32(), 0U);  // CPU
      (void)fields.u32();
      EXPECT_EQ(fields.u64(), tracing().id);
      EXPECT_EQ(fields.left(), 0U);
    }
    return found;
  }
  std::byte aux_byte(uint64_t position) const {
    return reinterpret_cast<const std::byte*>(aux)[position % (4 * kPage)];
  }

  int leader = -1;
  long ring = 0;
  long aux = 0;
  uint64_t now = 0;
  event::RingReader read;
};

TEST_F(AuxTest, E2_HeadAndRecordAtTheEndOfEachTransaction) {
  trace_into(kReadWrite);
  kernel.advance(now = 5000);
  enable(leader);
  units.trace(tracing(), 1000);
  EXPECT_EQ(page(ring).aux_head, 0U) << "not before the end";
  units.interrupt(tracing());
  EXPECT_EQ(page(ring).aux_head, 1000U);
  units.trace(tracing(), 24);
  disable(leader);
  EXPECT_EQ(page(ring).aux_head, 1024U);
  EXPECT_EQ(aux_records(), (std::vector<AuxRecord>{{0, 1000, 0}, {1000, 24, 0}}));
  for (uint64_t i = 0; i < 1024; ++i) ASSERT_EQ(aux_byte(i), Tracer::byte_at(i));
}

TEST_F(AuxTest, E1_NoSpaceDisablesAndWakesUntilTheReaderHasRead) {
  trace_into(kReadWrite);
  enable(leader);
  units.trace(tracing(), 4 * kPage - 1);
  units.interrupt(tracing());
  kernel.run_pending();
  EXPECT_EQ(tracing().state, EventState::kOff);
  EXPECT_EQ(kernel.poll(tid, leader), POLLIN);
  enable(leader);
  EXPECT_EQ(tracing().state, EventState::kOff) << "still full";
  page(ring).aux_tail = page(ring).aux_head;
  enable(leader);
  EXPECT_EQ(tracing().state, EventState::kActive);
  units.trace(tracing(), 100);
  disable(leader);
  EXPECT_EQ(page(ring).aux_head, 4 * kPage - 1 + 100);
}

TEST_F(AuxTest, E1_AGarbageTailDoesNoHarm) {
  trace_into(kReadWrite);
  enable(leader);
  units.trace(tracing(), 5000);
  for (const uint64_t tail : {~uint64_t{0} >> 1, uint64_t{5001}, uint64_t{1} << 40}) {
    page(ring).aux_tail = tail;
    units.interrupt(tracing());
    kernel.run_pending();
    EXPECT_EQ(tracing().state, EventState::kOff);
    EXPECT_EQ(page(ring).aux_head, 5000U);
    page(ring).aux_tail = 5000;
    enable(leader);
    EXPECT_EQ(tracing().state, EventState::kActive);
  }
}

TEST_F(AuxTest, E3_OverwriteModeTellsTheOffsetInsideTheArea) {
  trace_into(PROT_READ);
  enable(leader);
  units.trace(tracing(), 10 * kPage + 7);
  disable(leader);
  EXPECT_EQ(page(ring).aux_head, (10 * kPage + 7) % (4 * kPage));
  EXPECT_EQ(kernel.poll(tid, leader), 0) << "no watermark here";
  const auto found = aux_records();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].flags, static_cast<uint64_t>(PERF_AUX_FLAG_OVERWRITE));
  EXPECT_EQ(found[0].offset, (10 * kPage + 7) % (4 * kPage));
}

TEST_F(AuxTest, E4_TheWatermarkOfTheAttr) {
  trace_into(kReadWrite, 1000);
  enable(leader);
  for (uint64_t total = 100; total <= 5000; total += 100) {
    units.trace(tracing(), 100);
    units.interrupt(tracing());
    page(ring).aux_tail = page(ring).aux_head;
    EXPECT_EQ(kernel.poll(tid, leader), total % 1000 == 0 ? POLLIN : 0) << total;
  }
}

TEST_F(AuxTest, E4_HalfTheAreaByDefault) {
  trace_into(kReadWrite);
  enable(leader);
  units.trace(tracing(), 2 * kPage - 1);
  units.interrupt(tracing());
  EXPECT_EQ(kernel.poll(tid, leader), 0);
  units.trace(tracing(), 1);
  units.interrupt(tracing());
  EXPECT_EQ(kernel.poll(tid, leader), POLLIN);
}

TEST_F(AuxTest, E5_TruncatedWakesAndDisables) {
  trace_into(kReadWrite);
  enable(leader);
  units.trace(tracing(), 5 * kPage);
  units.end(tracing());
  kernel.run_pending();
  EXPECT_EQ(tracing().state, EventState::kOff);
  EXPECT_EQ(kernel.poll(tid, leader), POLLIN);
  EXPECT_EQ(aux_records(), (std::vector<AuxRecord>{{0, 4 * kPage - 1, PERF_AUX_FLAG_TRUNCATED}}));
}

TEST_F(AuxTest, E5_TheWholeGroupGoesWithItsLeader) {
  trace_into(kReadWrite);
  const int sibling = opened(sampler(), leader);
  enable(leader);
  EXPECT_EQ(event(sibling).state, EventState::kActive);
  unit_of(tracing()).output.flag(PERF_AUX_FLAG_TRUNCATED);
  units.interrupt(tracing());
  kernel.run_pending();
  EXPECT_EQ(event(sibling).state, EventState::kInactive);
  EXPECT_EQ(tracing().state, EventState::kOff);
}

TEST_F(AuxTest, E6_SkippedBytesAreTheReadersToo) {
  trace_into(kReadWrite);
  enable(leader);
  EXPECT_EQ(unit_of(tracing()).output.skip(4 * kPage), ENOSPC);
  EXPECT_EQ(unit_of(tracing()).output.skip(100), 0);
  EXPECT_EQ(page(ring).aux_head, 100U);
  units.trace(tracing(), 10);
  disable(leader);
  EXPECT_EQ(page(ring).aux_head, 110U);
  EXPECT_EQ(aux_records(), (std::vector<AuxRecord>{{100, 10, 0}}));
}

TEST_F(AuxTest, E7_TwoEventsOnOneArea) {
  trace_into(kReadWrite);
  perf_event_attr attr = tracer(101);
  attr.disabled = 1;
  const int second = opened(attr);
  ASSERT_EQ(ioctl(second, PERF_EVENT_IOC_SET_OUTPUT, static_cast<uint64_t>(leader)), 0);
  enable(leader);
  enable(second);
  EXPECT_EQ(tracing().state, EventState::kActive);
  EXPECT_EQ(event(second).state, EventState::kInactive) << "the area has a writer";
  disable(leader);
  disable(second);
  enable(second);
  EXPECT_EQ(event(second).state, EventState::kActive);
}

TEST_F(AuxTest, E2_AreasOfFourGibibytesAndMore) {
  Settings settings;
  settings.max_aux_pages = uint64_t{1} << 22;
  settings.memlock_bytes = uint64_t{1} << 40;
  Kernel large(settings);
  large.add_pmu(kSharedTracer, units.context());
  User& user = large.add_user({});
  const Tid thread = large.start_process(user);
  large.run(thread, 0);
  perf_event_attr attr = tracer(101);
  attr.disabled = 1;
  const auto fd = static_cast<int>(large.perf_event_open(thread, &attr, 0, -1, -1, 0));
  const long control = large.mmap(thread, 3 * kPage, kReadWrite, MAP_SHARED, fd, 0);
  ASSERT_GT(control, 0);
  constexpr uint64_t kBytes = uint64_t{8} << 30;
  page(control).aux_offset = 3 * kPage;
  page(control).aux_size = kBytes;
  const long area = large.mmap(thread, kBytes, kReadWrite, MAP_SHARED, fd, 3 * kPage);
  if (area == -ENOMEM) GTEST_SKIP() << "8 GiB of address space are not to be had";
  ASSERT_GT(area, 0);
  EXPECT_EQ(user.locked_pages, 258U) << "all that is the user's";
  large.ioctl(thread, fd, PERF_EVENT_IOC_ENABLE, 0);
  PerfEvent& event = *large.event_of(thread, fd);
  event::AuxOutput& output = unit_of(event).output;
  EXPECT_EQ(output.size(), kBytes - 1);
  EXPECT_EQ(output.skip((uint64_t{6} << 30) + 5), 0);
  EXPECT_EQ(page(control).aux_head, (uint64_t{6} << 30) + 5);
  EXPECT_EQ(large.poll(thread, fd), POLLIN) << "more than the largest watermark, 4 GiB - 1";
  units.trace(event, 300);
  large.ioctl(thread, fd, PERF_EVENT_IOC_DISABLE, 0);
  EXPECT_EQ(page(control).aux_head, (uint64_t{6} << 30) + 305);
  EXPECT_EQ(reinterpret_cast<std::byte*>(area)[(uint64_t{6} << 30) + 5], Tracer::byte_at(0));
  page(control).aux_tail = page(control).aux_head - 10;
  large.ioctl(thread, fd, PERF_EVENT_IOC_ENABLE, 0);
  EXPECT_EQ(output.size(), kBytes - 1 - 10);
  large.exit(thread);
  EXPECT_TRUE(large.nothing_left());
}

// Samplers around a leader in overwrite mode.
class SampledTest : public AuxTest {
 protected:
  SampledTest() {
    trace_into(PROT_READ);
    sampling = opened(sampler(64), leader);
    EXPECT_EQ(ioctl(sampling, PERF_EVENT_IOC_SET_OUTPUT, static_cast<uint64_t>(leader)), 0);
  }
  int acting(uint32_t action) {
    perf_event_attr attr = sampler();
    attr.config = PERF_COUNT_SW_ALIGNMENT_FAULTS;  // not the sampler's
    event::set_aux_action(attr, action);
    const int fd = opened(attr, leader);
    EXPECT_EQ(ioctl(fd, PERF_EVENT_IOC_SET_OUTPUT, static_cast<uint64_t>(leader)), 0);
    return fd;
  }
  void overflow(int fd) { EXPECT_EQ(kernel.overflow(event(fd)), event::Outcome::kWritten); }
  // The AUX bytes of the newest sample.
  std::vector<std::byte> newest_sample() {
    const auto found = records(read);
    if (found.empty()) return {};
    event::testing::Fields fields(found.back());
    (void)fields.bytes(16);
    const uint64_t size = fields.u64();
    return fields.bytes(size);
  }
  std::vector<std::byte> newest_traced(uint64_t bytes) {
    std::vector<std::byte> expected(bytes);
    const uint64_t total = unit_of(tracing()).total;
    for (uint64_t i = 0; i < bytes; ++i) expected[i] = Tracer::byte_at(total - bytes + i);
    return expected;
  }
  int sampling = -1;
};

TEST_F(SampledTest, C3_ASampleHoldsTheNewestBytes) {
  enable(leader);
  units.trace(tracing(), 100000);
  page_faults(1);
  EXPECT_EQ(newest_sample(), newest_traced(64));
  EXPECT_EQ(unit_of(tracing()).log, "bS");
  EXPECT_TRUE(unit_of(tracing()).tracing);
}

TEST_F(SampledTest, F1_PauseAndResumeAroundSamples) {
  const int pausing = acting(event::kAuxPause);
  const int resuming = acting(event::kAuxResume);
  enable(leader);
  units.trace(tracing(), 1000);
  overflow(pausing);
  overflow(pausing);
  units.trace(tracing(), 50);
  EXPECT_EQ(unit_of(tracing()).total, 1000U) << "paused: nothing is traced";
  page_faults(1);
  EXPECT_EQ(newest_sample(), newest_traced(64));
  EXPECT_FALSE(unit_of(tracing()).tracing) << "a snapshot does not resume";
  overflow(resuming);
  overflow(resuming);
  units.trace(tracing(), 50);
  EXPECT_EQ(unit_of(tracing()).total, 1050U);
  EXPECT_EQ(unit_of(tracing()).log, "bpSr") << "one transaction all along";
}

TEST_F(SampledTest, F1_NestedInASnapshotItActsAndTheSnapshotIsWhole) {
  const int pausing = acting(event::kAuxPause);
  enable(leader);
  units.trace(tracing(), 1000);
  unit_of(tracing()).in_snapshot = [&] { overflow(pausing); };
  page_faults(1);
  EXPECT_EQ(unit_of(tracing()).log, "bSp");
  EXPECT_TRUE(tracing().hw.aux_paused);
}

TEST_F(SampledTest, F1_ResumeAfterStopDoesNothing) {
  const int resuming = acting(event::kAuxResume);
  const int pausing = acting(event::kAuxPause);
  enable(leader);
  overflow(pausing);
  // Stopped, not taken off: the area was unmapped.
  EXPECT_EQ(unmap(aux, 4), 0);
  const std::string log = unit_of(tracing()).log;
  overflow(resuming);
  EXPECT_EQ(unit_of(tracing()).log, log);
  EXPECT_FALSE(unit_of(tracing()).tracing);
}

TEST_F(AuxTest, F1_StartPausedUntilTheFirstResume) {
  perf_event_attr attr = tracer(101);
  attr.disabled = 1;
  event::set_aux_action(attr, event::kAuxStartPaused);
  leader = opened(attr);
  ring = map(leader, 3);
  ASSERT_GT(aux = map_aux(leader, ring, 4, PROT_READ), 0);
  perf_event_attr resume = sampler();
  event::set_aux_action(resume, event::kAuxResume);
  const int resuming = opened(resume, leader);
  enable(leader);
  units.trace(tracing(), 100);
  EXPECT_EQ(unit_of(tracing()).total, 0U);
  kernel.overflow(event(resuming));
  units.trace(tracing(), 100);
  EXPECT_EQ(unit_of(tracing()).total, 100U);
  // It was paused once: going off and on again does not pause it.
  disable(leader);
  enable(leader);
  units.trace(tracing(), 100);
  EXPECT_EQ(unit_of(tracing()).total, 200U);
}

TEST_F(AuxTest, F1_StartPausedNeedsAPmuThatCan) {
  perf_event_attr attr = tracer(kStreamer.type);
  event::set_aux_action(attr, event::kAuxStartPaused);
  EXPECT_EQ(open(attr), -EOPNOTSUPP);
  const int streaming = opened(tracer(kStreamer.type));
  attr = sampler();
  event::set_aux_action(attr, event::kAuxPause);
  EXPECT_EQ(open(attr, streaming), -EINVAL);
}

}  // namespace
}  // namespace auxtrail::perf_event::testing
