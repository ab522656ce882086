// The engine as the trace unit uses it: opening, delivering, reuse, real signals nested in each
// other.
#include "event/thread_context.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "event/test_support.h"

namespace auxtrail::event {
namespace {

using namespace testing;

class ThreadContextTest : public ::testing::Test {
 protected:
  ThreadContextTest() {
    config_.leader = &leader_;
    config_.sampler = &sampler_;
    config_.leader_id = 11;
    config_.sampler_id = 101;
    config_.leader_pmu = &kScriptedPmu;
    config_.leader_context = &script_;
    config_.tid = kTid;
    config_.control = memory_.control();
    config_.data = memory_.data();
    config_.data_bytes = memory_.data_bytes();
    config_.aux = memory_.aux();
    config_.aux_bytes = memory_.aux_bytes();
  }

  perf_event_attr leader_ = leader_attr();
  perf_event_attr sampler_ = sampler_attr(kUsualSampleType, 4096);
  SnapshotScript script_;
  Memory memory_{1 << 16, 1 << 13};
  RingReader reader_ = memory_.reader();
  ThreadConfig config_;
  static constexpr SampleRegs kRegs{0x401000, 4700, kTid, 123, 1, 1'000'000, 0};
};

constinit ThreadContext g_constant_initialised;  // must compile: no dynamic initialisation

TEST_F(ThreadContextTest, ZeroedMemoryIsAnInactiveContext) {
  alignas(ThreadContext) static unsigned char memory[sizeof(ThreadContext)] = {};
  auto* context = reinterpret_cast<ThreadContext*>(memory);
  EXPECT_FALSE(context->active());
  EXPECT_EQ(context->overflow(kRegs).outcome, Outcome::kInactive);
  EXPECT_EQ(g_constant_initialised.overflow(kRegs).outcome, Outcome::kInactive);
  ASSERT_EQ(context->init(config_), 0);
  EXPECT_EQ(context->overflow(kRegs).outcome, Outcome::kWritten);
  context->shutdown();
  EXPECT_EQ(context->overflow(kRegs).outcome, Outcome::kInactive);
}

TEST_F(ThreadContextTest, OverflowDeliversTheNewestAuxBytes) {
  ThreadContext context;
  ASSERT_EQ(context.init(config_), 0);
  const Bytes packets = pattern(5000);
  context.aux().write(packets.data(), packets.size());
  const OverflowResult result = context.overflow(kRegs);
  EXPECT_EQ(result.outcome, Outcome::kWritten);
  EXPECT_EQ(result.aux_bytes, 4096u);
  const auto records = drain(reader_);
  ASSERT_EQ(records.size(), 1u);
  Fields fields(records[0]);
  (void)fields.bytes(48);
  EXPECT_EQ(fields.u64(), 4096u);
  EXPECT_EQ(fields.bytes(4096), Bytes(packets.end() - 4096, packets.end()));
}

TEST_F(ThreadContextTest, SamplersOfAGroupReadEachOther) {
  perf_event_attr reader = sampler_attr(kUsualSampleType & ~uint64_t{PERF_SAMPLE_AUX}, 0);
  reader.sample_type |= PERF_SAMPLE_READ;
  reader.read_format = PERF_FORMAT_GROUP | PERF_FORMAT_ID;
  config_.sampler = &reader;
  config_.sampler_group = 7;
  const ThreadConfig::Sampler more[] = {{&sampler_, 102, 0}, {&reader, 103, 7}};
  config_.more_samplers = more;
  config_.more_sampler_count = 2;
  ThreadContext context;
  ASSERT_EQ(context.init(config_), 0);
  ASSERT_EQ(context.init(config_), 0);  // the group is not joined twice
  context.set_count(0, 1000);
  context.set_count(1, 2000);
  context.set_count(2, 3000);
  ASSERT_EQ(context.overflow(kRegs, 2).outcome, Outcome::kWritten);
  const auto records = drain(reader_);
  ASSERT_EQ(records.size(), 1u);
  Fields fields(records[0]);
  (void)fields.bytes(48);
  for (const uint64_t word : {2u, 1000u, 101u, 3000u, 103u}) EXPECT_EQ(fields.u64(), word);
}

TEST_F(ThreadContextTest, DisabledAttrsAreEnabledByInit) {
  leader_.disabled = 1;
  sampler_.disabled = 1;
  ThreadContext context;
  ASSERT_EQ(context.init(config_), 0);
  EXPECT_EQ(context.overflow(kRegs).aux_bytes, 4096u);
}

TEST_F(ThreadContextTest, BadConfigurationsAreRefusedAndLeaveNothingBehind) {
  ThreadContext context;
  const auto refused = [&](int expected) {
    EXPECT_EQ(context.init(config_), expected);
    EXPECT_FALSE(context.active());
    EXPECT_FALSE(context.ring().attached());
    EXPECT_FALSE(context.aux().attached());
    EXPECT_EQ(context.leader().refcount.load(), 0u);
    EXPECT_EQ(context.sampler().refcount.load(), 0u);
    EXPECT_EQ(context.overflow(kRegs).outcome, Outcome::kInactive);
  };
  const ThreadConfig good = config_;
  config_.data_bytes = 1000;
  refused(EINVAL);
  config_ = good;
  config_.aux_bytes = 1000;
  refused(EINVAL);
  config_ = good;
  config_.tid = 0;
  refused(EINVAL);
  config_ = good;
  config_.leader_pmu = &kSoftwareTrigger;  // no snapshot_aux: unfit to lead
  refused(EINVAL);
  config_ = good;
  config_.sampler = nullptr;
  refused(EINVAL);
  config_ = good;
  sampler_.aux_output = 1;
  refused(EINVAL);
  sampler_.aux_output = 0;
  sampler_.sample_type |= uint64_t{1} << 40;
  refused(EOPNOTSUPP);
  sampler_ = sampler_attr(kUsualSampleType, 4096);
  EXPECT_EQ(context.init(config_), 0);
  EXPECT_EQ(context.leader().refcount.load(), 2u);
}

TEST_F(ThreadContextTest, AForkedChildTakesNoAuxBytesUntilItInitsAgain) {
  ThreadContext context;
  ASSERT_EQ(context.init(config_), 0);
  SampleRegs child = kRegs;
  child.pid = child.tid = 9000;
  EXPECT_EQ(context.overflow(child).aux_bytes, 0u);
  config_.tid = 9000;
  ASSERT_EQ(context.init(config_), 0);
  EXPECT_EQ(context.overflow(child).aux_bytes, 4096u);
}

TEST_F(ThreadContextTest, ShutdownWritesNothingToSharedMemory) {
  ThreadContext context;
  ASSERT_EQ(context.init(config_), 0);
  context.overflow(kRegs);
  const perf_event_mmap_page page = *memory_.control();
  const Bytes data(memory_.data(), memory_.data() + memory_.data_bytes());
  context.shutdown();
  EXPECT_EQ(std::memcmp(&page, memory_.control(), sizeof(page)), 0);
  EXPECT_EQ(data, Bytes(memory_.data(), memory_.data() + memory_.data_bytes()));
}

TEST_F(ThreadContextTest, ASlotIsReusedWithoutTheReaderNoticing) {
  for (int user = 0; user < 50; ++user) {
    ThreadContext context;
    ASSERT_EQ(context.init(config_), 0);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(context.overflow(kRegs).outcome, Outcome::kWritten);
    EXPECT_EQ(drain(reader_).size(), 3u);
  }
  EXPECT_EQ(reader_.counters().bad_heads, 0u);
}

TEST_F(ThreadContextTest, LostSamplesAreCountedAndReported) {
  ThreadContext context;
  ASSERT_EQ(context.init(config_), 0);
  uint64_t written = 0;
  while (context.overflow(kRegs).outcome == Outcome::kWritten) ++written;
  EXPECT_EQ(written, (memory_.data_bytes() - 1) / 4160);
  EXPECT_EQ(context.overflow(kRegs).aux_bytes, 0u);
  EXPECT_EQ(context.lost(), 2u);
}

// Overflows from a timer signal interrupt overflows of the main loop wherever they like, while
// another thread drains. Every attempt is either in a well-formed record or in a LOST count,
// nothing is there twice.
struct NestedSignals {
  static inline ThreadContext context;
  static inline std::atomic<uint64_t> inner_attempts{0};
  static inline std::atomic<uint64_t> nested_hits{0};

  static void on_alarm(int) {
    const int saved_errno = errno;
    if (context.ring().nesting() != 0) nested_hits.fetch_add(1, std::memory_order_relaxed);
    inner_attempts.fetch_add(1, std::memory_order_relaxed);
    context.overflow({2, 4700, kTid, 0, 0, inner_attempts.load(std::memory_order_relaxed), 0});
    errno = saved_errno;
  }
};

TEST_F(ThreadContextTest, C7_RealSignalsNestedAnywhereLeaveEveryRecordWellFormed) {
  ASSERT_EQ(NestedSignals::context.init(config_), 0);
  const Bytes packets = pattern(memory_.aux_bytes());
  NestedSignals::context.aux().write(packets.data(), packets.size());
  const Bytes expected_aux(packets.end() - 4096, packets.end());

  uint64_t outer_seen = 0, inner_seen = 0, lost = 0, odd = 0, inner_without_aux = 0;
  uint64_t last_outer = 0, last_inner = 0;
  auto scratch = std::make_unique<RecordScratch>();
  const auto check = [&](std::span<const std::byte> bytes) {
    const Bytes record = to_bytes(bytes);
    Fields fields(record);
    if (header_of(record).type == PERF_RECORD_LOST) {
      (void)fields.u64();
      lost += fields.u64();
      return;
    }
    (void)fields.u64();
    const uint64_t ip = fields.u64();
    (void)fields.bytes(24);
    const uint64_t number = fields.u64();
    const uint64_t aux_size = fields.u64();
    uint64_t& last = ip == 1 ? last_outer : last_inner;
    (ip == 1 ? outer_seen : inner_seen) += 1;
    if (number <= last) ++odd;  // each kind in order, nothing twice
    last = number;
    if (ip == 1 && aux_size != 4096) ++odd;
    if (ip == 2 && aux_size == 0) ++inner_without_aux;
    if (aux_size != 0 && fields.bytes(aux_size) != expected_aux) ++odd;
    if (fields.left() != 0) ++odd;
  };
  std::atomic<bool> stop{false};
  sigset_t alarm_set;
  sigemptyset(&alarm_set);
  sigaddset(&alarm_set, SIGALRM);
  pthread_sigmask(SIG_BLOCK, &alarm_set, nullptr);  // the reader must not run the handler
  std::thread reader([&] {
    while (!stop.load(std::memory_order_acquire)) reader_.drain(*scratch, check);
    reader_.drain(*scratch, check);
  });
  struct sigaction action {};
  action.sa_handler = NestedSignals::on_alarm;
  sigaction(SIGALRM, &action, nullptr);
  pthread_sigmask(SIG_UNBLOCK, &alarm_set, nullptr);

  uint64_t attempts = 0;
  const itimerval timer{{0, 50}, {0, 50}};
  setitimer(ITIMER_REAL, &timer, nullptr);
  const timespec pause{0, 20000};
  // How many signals meet the sampling path depends on the machine's load.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(40);
  bool in_time = true;
  while (NestedSignals::nested_hits < 300 && in_time) {
    ++attempts;
    NestedSignals::context.overflow({1, 4700, kTid, 0, 0, attempts, 0});
    if (attempts % 64 != 0) continue;
    nanosleep(&pause, nullptr);
    in_time = std::chrono::steady_clock::now() < deadline;
  }
  const itimerval off{};
  setitimer(ITIMER_REAL, &off, nullptr);
  pthread_sigmask(SIG_BLOCK, &alarm_set, nullptr);
  signal(SIGALRM, SIG_IGN);
  pthread_sigmask(SIG_UNBLOCK, &alarm_set, nullptr);
  stop.store(true, std::memory_order_release);
  reader.join();

  EXPECT_GE(NestedSignals::nested_hits, 300u);
  EXPECT_EQ(odd, 0u);
  EXPECT_EQ(outer_seen + inner_seen + lost + NestedSignals::context.ring().lost_pending(),
            attempts + NestedSignals::inner_attempts);
  EXPECT_EQ(NestedSignals::context.ring().nesting(), 0u);
  EXPECT_EQ(reader_.counters().corrupt_headers + reader_.counters().bad_heads, 0u);
  EXPECT_FALSE(NestedSignals::context.aux().in_sampling());
  RecordProperty("nested_hits", static_cast<int>(NestedSignals::nested_hits));
  RecordProperty("inner_without_aux", static_cast<int>(inner_without_aux));
  NestedSignals::context.shutdown();
}

}  // namespace
}  // namespace auxtrail::event
