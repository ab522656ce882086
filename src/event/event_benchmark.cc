// What one overflow costs the traced thread: a sample with AUX bytes through prepare, reserve,
// snapshot, publish. Peer: copying the same number of bytes with memcpy. The reader's tail is moved
// along, so nothing is ever lost.
#include <benchmark/benchmark.h>

#include "event/test_support.h"
#include "event/thread_context.h"

namespace auxtrail::event {
namespace {

using namespace testing;

int64_t newest(Event& leader, OutputHandle& handle, uint64_t size_bytes) {
  return leader.aux->copy_newest(handle, size_bytes);
}
constexpr Pmu kPlainPmu{.name = "plain", .setup_aux = accept_aux, .snapshot_aux = newest};

void overflow(benchmark::State& state) {
  const auto aux_bytes = static_cast<uint32_t>(state.range(0));
  Memory memory(1 << 18, 1 << 16);
  const perf_event_attr leader = leader_attr();
  const perf_event_attr sampler = sampler_attr(kUsualSampleType, aux_bytes);
  ThreadConfig config;
  config.leader = &leader;
  config.sampler = &sampler;
  config.leader_pmu = &kPlainPmu;
  config.tid = kTid;
  config.control = memory.control();
  config.data = memory.data();
  config.data_bytes = memory.data_bytes();
  config.aux = memory.aux();
  config.aux_bytes = memory.aux_bytes();
  ThreadContext context;
  if (context.init(config) != 0) return state.SkipWithError("init");
  const Bytes packets = pattern(memory.aux_bytes());
  context.aux().write(packets.data(), packets.size());
  for (auto _ : state) {
    const auto result = context.overflow({0x401000, 4700, kTid, 1, 0, 1, 0});
    if (result.outcome != Outcome::kWritten) return state.SkipWithError("lost");
    memory.control()->data_tail = memory.control()->data_head;
  }
  state.SetBytesProcessed(state.iterations() * aux_bytes);
}
BENCHMARK(overflow)->Arg(0)->Arg(64)->Arg(600)->Arg(4096)->Arg(32768);

void peer_memcpy(benchmark::State& state) {
  const auto size = static_cast<size_t>(state.range(0));
  const Bytes from = pattern(1 << 16);
  Bytes to(1 << 18);
  size_t at = 0;
  for (auto _ : state) {
    std::memcpy(to.data() + at, from.data(), size);
    benchmark::ClobberMemory();
    at = (at + size + 64) % (to.size() - 65536);
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(size));
}
BENCHMARK(peer_memcpy)->Arg(64)->Arg(600)->Arg(4096)->Arg(32768);

void drain_ring(benchmark::State& state) {
  Memory memory(1 << 18, 4096);
  DataRing ring;
  if (ring.attach(memory.control(), memory.data(), memory.data_bytes()) != 0) return;
  RingReader reader = memory.reader();
  auto scratch = std::make_unique<RecordScratch>();
  uint64_t records = 0;
  for (auto _ : state) {
    state.PauseTiming();
    for (int i = 0; i < 50; ++i) {
      OutputHandle handle;
      uint64_t lost = 0;
      if (!ring.begin(handle, 4160, 0, lost)) return state.SkipWithError("full");
      handle.put(perf_event_header{PERF_RECORD_SAMPLE, 0, 4160});
      ring.end(handle);
    }
    state.ResumeTiming();
    records += reader.drain(*scratch, [](std::span<const std::byte> record) {
      benchmark::DoNotOptimize(record.data());
    });
  }
  state.SetItemsProcessed(static_cast<int64_t>(records));
}
BENCHMARK(drain_ring);

}  // namespace
}  // namespace auxtrail::event
