// The running kernel as the oracle: its samples, taken apart and written again by us, give the same
// bytes; its rings fill, lose and report as ours do. Skipped where perf_event_open is denied.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <random>

#include "abi/sample.h"
#include "base/unique_fd.h"
#include "event/sample.h"
#include "event/test_support.h"

namespace auxtrail::event {
namespace {

using namespace testing;

// A CPU clock event on this thread, and its ring. Nothing to do with AUX hardware: PERF_SAMPLE_AUX
// without aux_sample_size is accepted by every kernel since 5.5 and yields size 0.
class KernelEvent {
 public:
  KernelEvent(perf_event_attr attr, size_t data_pages) : attr_(attr) {
    fd_ = UniqueFd(static_cast<int>(syscall(SYS_perf_event_open, &attr_, 0, -1, -1, 0)));
    if (!fd_) {
      error_ = errno;
      return;
    }
    const size_t bytes = (1 + data_pages) * 4096;
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
    if (memory == MAP_FAILED) {
      error_ = errno;
      return;
    }
    map_ = Mapping(memory, bytes);
    reader_ = RingReader(control(), map_.data() + 4096, data_pages * 4096);
  }
  int error() const { return error_; }
  perf_event_mmap_page* control() { return reinterpret_cast<perf_event_mmap_page*>(map_.data()); }
  RingReader& reader() { return reader_; }
  // Runs for `ns` of CPU time; the event samples meanwhile.
  static void spin(uint64_t ns) {
    const auto now = [] {
      timespec t{};
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
      return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(t.tv_nsec);
    };
    for (const uint64_t end = now() + ns; now() < end;) {
      volatile uint64_t sink = 0;
      for (int i = 0; i < 1000; ++i) sink = sink + 1;
    }
  }

 private:
  perf_event_attr attr_;
  UniqueFd fd_;
  Mapping map_;
  RingReader reader_;
  int error_ = 0;
};

perf_event_attr clock_attr(uint64_t sample_type) {
  perf_event_attr attr = sampler_attr(sample_type, 0);
  attr.sample_period = 100'000;
  attr.exclude_kernel = 1;
  attr.exclude_hv = 1;
  attr.exclude_callchain_kernel = 1;
  attr.use_clockid = 1;
  attr.clockid = CLOCK_MONOTONIC;
  attr.sample_regs_user = 0x1ff;  // ax to ip
  attr.sample_regs_intr = 0x180;  // sp, ip
  attr.sample_stack_user = 64;
  return attr;
}

// Everything that needs neither privileges nor hardware.
constexpr uint64_t kUnprivilegedTypes =
    PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_ADDR | PERF_SAMPLE_ID |
    PERF_SAMPLE_STREAM_ID | PERF_SAMPLE_CPU | PERF_SAMPLE_PERIOD | PERF_SAMPLE_READ |
    PERF_SAMPLE_CALLCHAIN | PERF_SAMPLE_RAW | PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER |
    PERF_SAMPLE_WEIGHT | PERF_SAMPLE_DATA_SRC | PERF_SAMPLE_TRANSACTION | PERF_SAMPLE_REGS_INTR |
    PERF_SAMPLE_DATA_PAGE_SIZE | PERF_SAMPLE_CODE_PAGE_SIZE | PERF_SAMPLE_AUX |
    PERF_SAMPLE_IDENTIFIER;

// Our engine over memory of its own, writing what a parsed kernel record says.
class Rewriter {
 public:
  explicit Rewriter(const perf_event_attr& attr, uint64_t id) : reader_(memory_.reader()) {
    EXPECT_EQ(ring_.attach(memory_.control(), memory_.data(), memory_.data_bytes()), 0);
    EXPECT_EQ(event_.init(attr, id, kSoftwareTrigger, nullptr), 0);
    event_.ring = &ring_;
    EXPECT_EQ(event_.schedule_in(kTid, 0), 0);
  }
  ~Rewriter() { close_event(event_); }

  std::vector<Bytes> rewrite(const abi::Sample& sample, uint64_t lost_before) {
    SampleData data;
    data.misc = sample.misc;
    data.ip = sample.ip;
    data.pid = sample.id.pid;
    data.tid = sample.id.tid;
    data.time_ns = sample.id.time_ns;
    data.addr = sample.address;
    data.cpu = sample.id.cpu;
    data.period = sample.period;
    if (sample.read.size() == 1) {
      event_.count = sample.read[0].value;
      event_.time_enabled = sample.read.time_enabled;
      event_.time_running = sample.read.time_running;
      event_.lost.store(sample.read[0].lost);
    }
    const std::vector<uint64_t> chain(sample.callchain.begin(), sample.callchain.end());
    data.callchain = {chain.data(), static_cast<uint32_t>(chain.size())};
    // The kernel counts its padding in: raw.size() is the size field, "no data" is 4.
    if (sample.raw.size() > 4) data.raw = view(sample.raw);
    const std::vector<uint64_t> user(sample.regs_user.values.begin(),
                                     sample.regs_user.values.end());
    const std::vector<uint64_t> intr(sample.regs_intr.values.begin(),
                                     sample.regs_intr.values.end());
    data.regs_user = {sample.regs_user.abi, user.data()};
    data.regs_intr = {sample.regs_intr.abi, intr.data()};
    if (!sample.stack_user.empty()) data.user_stack = view(sample.stack_user);
    data.weight = sample.weight;
    data.data_src = sample.data_source;
    data.transaction = sample.transaction;
    data.data_page_size = sample.data_page_bytes;
    data.code_page_size = sample.code_page_bytes;
    if (lost_before != 0) ring_.count_lost(lost_before);
    EXPECT_EQ(event_output(event_, data), Outcome::kWritten);
    return drain(reader_);
  }

 private:
  static View<std::byte> view(std::span<const std::byte> bytes) {
    return {bytes.data(), static_cast<uint32_t>(bytes.size())};
  }
  Memory memory_{1 << 16, 4096};
  DataRing ring_;
  RingReader reader_;
  Event event_;
};

abi::Sample parse(const Bytes& bytes, const perf_event_attr& attr) {
  abi::Record record;
  EXPECT_EQ(abi::first_record(bytes, record), abi::RecordStatus::kOk);
  abi::Sample sample;
  EXPECT_EQ(abi::parse_sample(record, abi::SampleFormat::from_attr(attr), sample),
            abi::ParseStatus::kOk);
  return sample;
}

uint64_t event_id_in(const Bytes& sample_bytes, const perf_event_attr& attr) {
  return parse(sample_bytes, attr).id.id;
}

#define SKIP_IF_DENIED(event)                                                              \
  if ((event).error() != 0) {                                                              \
    GTEST_SKIP() << "perf_event_open is not possible here: " << strerror((event).error()); \
  }

TEST(KernelOracle, C_SamplesRewrittenByUsAreTheKernelsByteForByte) {
  std::mt19937_64 random(7);
  size_t compared = 0;
  for (int round = 0; round < 40; ++round) {
    uint64_t type = round == 0 ? kUnprivilegedTypes : kUnprivilegedTypes & random();
    if (round % 5 == 4) type = kUsualSampleType;
    if ((type & (PERF_SAMPLE_ID | PERF_SAMPLE_IDENTIFIER)) == 0) type |= PERF_SAMPLE_IDENTIFIER;
    perf_event_attr attr = clock_attr(type);
    attr.read_format = random() & (PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING |
                                   PERF_FORMAT_ID | PERF_FORMAT_LOST);
    KernelEvent event(attr, 16);
    SKIP_IF_DENIED(event);
    KernelEvent::spin(2'000'000);
    const auto records = drain(event.reader());
    EXPECT_EQ(event.reader().counters().corrupt_headers, 0u);
    for (const Bytes& record : records) {
      if (header_of(record).type != PERF_RECORD_SAMPLE) continue;
      const abi::Sample sample = parse(record, attr);
      Rewriter rewriter(attr, event_id_in(record, attr));
      const auto ours = rewriter.rewrite(sample, 0);
      ASSERT_EQ(ours.size(), 1u);
      ASSERT_EQ(ours[0], record) << "sample_type " << std::hex << type;
      ++compared;
    }
  }
  EXPECT_GT(compared, 100u);
}

TEST(KernelOracle, D1_D2_ARingFillsLosesAndReportsAsOurs) {
  perf_event_attr attr = clock_attr(kUsualSampleType | PERF_SAMPLE_ID | PERF_SAMPLE_STREAM_ID);
  KernelEvent event(attr, 1);
  SKIP_IF_DENIED(event);
  const auto full = [&] { KernelEvent::spin(20'000'000); };
  full();
  const auto first = drain(event.reader());
  ASSERT_FALSE(first.empty());
  const size_t sample_bytes = first.front().size();
  EXPECT_EQ(first.size(), (4096 - 1) / sample_bytes);  // D1

  // With the ring drained the next overflow writes LOST and SAMPLE in one go.
  full();
  const auto second = drain(event.reader());
  ASSERT_GE(second.size(), 2u);
  ASSERT_EQ(header_of(second[0]).type, static_cast<uint32_t>(PERF_RECORD_LOST));
  Fields lost(second[0]);
  const uint64_t id = lost.u64();
  const uint64_t count = lost.u64();
  EXPECT_GT(count, 0u);
  Rewriter rewriter(attr, id);
  const auto ours = rewriter.rewrite(parse(second[1], attr), count);
  ASSERT_EQ(ours.size(), 2u);
  EXPECT_EQ(ours[0], second[0]);  // header, id, count and trailer
  EXPECT_EQ(ours[1], second[1]);
}

TEST(KernelOracle, B3_ControlPageFields) {
  KernelEvent event(clock_attr(kUsualSampleType), 4);
  SKIP_IF_DENIED(event);
  perf_event_mmap_page ours;
  DataRing::init_control_page(ours, 4096, 4 * 4096);
  const perf_event_mmap_page& kernel = *event.control();
  EXPECT_EQ(ours.version, kernel.version);
  EXPECT_EQ(ours.compat_version, kernel.compat_version);
  EXPECT_EQ(ours.size, kernel.size);
  EXPECT_EQ(ours.data_offset, kernel.data_offset);
  EXPECT_EQ(ours.data_size, kernel.data_size);
  EXPECT_EQ(ours.cap_bit0_is_deprecated, kernel.cap_bit0_is_deprecated);
  EXPECT_EQ(ours.aux_offset, kernel.aux_offset);
  EXPECT_EQ(ours.aux_size, kernel.aux_size);
}

// A kernel ring under load, records wrapping all the time.
TEST(KernelOracle, D9_ReaderFollowsAKernelRing) {
  perf_event_attr attr = clock_attr(kUnprivilegedTypes);
  attr.sample_period = 50'000;
  KernelEvent event(attr, 1);
  SKIP_IF_DENIED(event);
  uint64_t last_time = 0;
  for (int pass = 0; pass < 300; ++pass) {
    KernelEvent::spin(150'000);
    for (const Bytes& record : drain(event.reader())) {
      if (header_of(record).type != PERF_RECORD_SAMPLE) continue;
      const abi::Sample sample = parse(record, attr);
      EXPECT_GE(sample.id.time_ns, last_time);
      last_time = sample.id.time_ns;
    }
  }
  EXPECT_GT(event.reader().tail(), 3u * 4096);
  EXPECT_EQ(event.reader().counters().corrupt_headers, 0u);
  EXPECT_EQ(event.reader().counters().bad_heads, 0u);
}

}  // namespace
}  // namespace auxtrail::event
