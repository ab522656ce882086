// The packet layer against libipt's on real and made traces, and the search for PSBs.
//
// One iteration reads the trace with both, one after the other, so that both see the same machine;
// the figures are medians over the iterations: `ours` and `libipt` in nanoseconds per byte and
// `ratio`, libipt's time over ours.
#include <benchmark/benchmark.h>
#include <intel-pt.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "pt/packet_reader.h"
#include "pt/psb_search.h"

namespace auxtrail::pt {
namespace {

using Trace = std::vector<std::byte>;

// Long enough that the clock's own cost is nothing.
constexpr size_t kBytesPerIteration = size_t{1} << 20;

std::filesystem::path trace_folder() {
  const char* variable = std::getenv("AUXTRAIL_TEST_DATA");
  return variable != nullptr ? variable : AUXTRAIL_TEST_DATA_DEFAULT;
}

Trace trace_of(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  const std::string content{std::istreambuf_iterator<char>(stream), {}};
  const auto bytes = std::as_bytes(std::span(content));
  return {bytes.begin(), bytes.end()};
}

// Packets in the proportions that a trace of cycles has: random branches, calls through pointers,
// a CYC packet before most of them, a PSB every 4 KB.
Trace made_trace(size_t size_bytes) {
  Trace trace;
  std::mt19937_64 random(1);
  const auto put = [&](std::initializer_list<uint64_t> bytes) {
    for (const uint64_t byte : bytes) trace.push_back(static_cast<std::byte>(byte));
  };
  size_t next_psb = 0;
  while (trace.size() < size_bytes) {
    if (trace.size() >= next_psb) {
      for (int pair = 0; pair < 8; ++pair) put({0x02, 0x82});
      put({0x19, random() & 0xff, 1, 2, 3, 4, 5, 6, 0x99, 0x01, 0x02, 0x23});
      next_psb += 4096;
    }
    const uint64_t bits = random();
    if (bits % 4 != 0) put({(bits >> 8 & 0x1f) << 3 | 3});
    switch (bits >> 16 & 15) {
      case 0:
        put({0x6d, bits >> 24 & 0xff, bits >> 32 & 0xff, 0x40, 0, 0, 0});
        break;
      case 1:
      case 2:
        put({0x4d, bits >> 24 & 0xff, bits >> 32 & 0xff, 0x40, 0});
        break;
      case 3:
      case 4:
        put({0x2d, bits >> 24 & 0xff, bits >> 32 & 0xff});
        break;
      case 5:
        put({0x02, 0xa3, bits >> 24 & 0xff, bits >> 32 & 0xff, 3, 4, 5, 6});
        break;
      case 6:
        put({0x59, bits >> 24 & 0xff});
        break;
      case 7:
        put({0, 0, 0, 0});
        break;
      default:
        put({(bits >> 24 & 0x7e) | 0x80});
        break;
    }
  }
  return trace;
}

struct Sum {
  uint64_t packets = 0;
  uint64_t numbers = 0;
};

Sum read_ours(const Trace& trace, Padding padding) {
  Sum sum;
  PacketReader reader(trace, {}, padding);
  Packet packet;
  while (true) {
    const ReadStatus status = reader.next(packet);
    if (status == ReadStatus::kPacket) {
      ++sum.packets;
      sum.numbers += packet.payload + static_cast<uint64_t>(packet.kind);
      continue;
    }
    if (status == ReadStatus::kEnd || !reader.sync_forward()) return sum;
  }
}

uint64_t number_of(const pt_packet& packet) {
  switch (packet.type) {
    case ppt_tnt_8:
    case ppt_tnt_64:
      return packet.payload.tnt.payload;
    case ppt_tip:
    case ppt_fup:
    case ppt_tip_pge:
    case ppt_tip_pgd:
      return packet.payload.ip.ip;
    default:
      return 0;
  }
}

class Libipt {
 public:
  explicit Libipt(Trace& trace) {
    pt_config config;
    pt_config_init(&config);
    config.begin = reinterpret_cast<uint8_t*>(trace.data());
    config.end = config.begin + trace.size();
    decoder_.reset(pt_pkt_alloc_decoder(&config));
  }

  Sum read() {
    Sum sum;
    pt_packet packet{};
    pt_pkt_sync_set(decoder_.get(), 0);
    while (true) {
      const int status = pt_pkt_next(decoder_.get(), &packet, sizeof(packet));
      if (status >= 0) {
        ++sum.packets;
        sum.numbers += number_of(packet) + static_cast<uint64_t>(packet.type);
        continue;
      }
      if (status == -pte_eos || pt_pkt_sync_forward(decoder_.get()) < 0) return sum;
    }
  }

 private:
  std::unique_ptr<pt_packet_decoder, decltype(&pt_pkt_free_decoder)> decoder_{nullptr,
                                                                              &pt_pkt_free_decoder};
};

template <typename Read>
double seconds(int times, Read read) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < times; ++i) {
    Sum sum = read();
    benchmark::DoNotOptimize(sum);
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void compare(benchmark::State& state, Trace trace, Padding padding) {
  if (trace.empty()) {
    state.SkipWithError("no trace; see AUXTRAIL_TEST_DATA");
    return;
  }
  Libipt libipt(trace);
  const Sum ours = read_ours(trace, Padding::kRead);
  if (ours.packets != libipt.read().packets) {
    state.SkipWithError("libipt reads other packets");
    return;
  }
  const int times = static_cast<int>(std::max<size_t>(kBytesPerIteration / trace.size(), 1));
  const double bytes = static_cast<double>(trace.size()) * times;
  std::vector<double> our_times;
  std::vector<double> their_times;
  std::vector<double> ratios;
  for (auto _ : state) {
    our_times.push_back(seconds(times, [&] { return read_ours(trace, padding); }));
    their_times.push_back(seconds(times, [&] { return libipt.read(); }));
    ratios.push_back(their_times.back() / our_times.back());
    state.SetIterationTime(our_times.back());
  }
  state.SetBytesProcessed(static_cast<int64_t>(bytes) * static_cast<int64_t>(state.iterations()));
  state.counters["ours"] = median(our_times) * 1e9 / bytes;
  state.counters["libipt"] = median(their_times) * 1e9 / bytes;
  state.counters["ratio"] = median(ratios);
  state.counters["bytes_per_packet"] =
      static_cast<double>(trace.size()) / static_cast<double>(ours.packets);
}

void BM_Trace(benchmark::State& state, const char* file, Padding padding) {
  compare(state, trace_of(trace_folder() / file), padding);
}
BENCHMARK_CAPTURE(BM_Trace, Unzip, "kvm_pt/Unzip/trace", Padding::kRead)->UseManualTime();
BENCHMARK_CAPTURE(BM_Trace, foo, "kvm_pt/foo/trace", Padding::kRead)->UseManualTime();
BENCHMARK_CAPTURE(BM_Trace, avscript, "kvm_pt/avscript_32/failed_trace_12709_1", Padding::kRead)
    ->UseManualTime();
BENCHMARK_CAPTURE(BM_Trace, dyn_test, "kvm_pt/dyn_test/sample_raw_0", Padding::kRead)
    ->UseManualTime();
BENCHMARK_CAPTURE(BM_Trace, avscript_no_pad, "kvm_pt/avscript_32/failed_trace_12709_1",
                  Padding::kSkip)
    ->UseManualTime();

void BM_MadeTrace(benchmark::State& state, Padding padding) {
  compare(state, made_trace(size_t{8} << 20), padding);
}
BENCHMARK_CAPTURE(BM_MadeTrace, read, Padding::kRead)->UseManualTime();
BENCHMARK_CAPTURE(BM_MadeTrace, no_pad, Padding::kSkip)->UseManualTime();

// A trace of `range` bytes whose only PSB is the last of them.
void BM_FindPsb(benchmark::State& state) {
  Trace trace(static_cast<size_t>(state.range(0)), std::byte{0x6c});
  for (size_t i = trace.size() - kPsbBytes; i < trace.size(); i += 2) {
    trace[i] = std::byte{0x02};
    trace[i + 1] = std::byte{0x82};
  }
  for (auto _ : state) {
    auto psb = find_psb(trace);
    benchmark::DoNotOptimize(psb);
  }
  state.SetBytesProcessed(state.range(0) * static_cast<int64_t>(state.iterations()));
}
BENCHMARK(BM_FindPsb)->Arg(1 << 18)->Arg(1 << 26);

void BM_FindPsbBackward(benchmark::State& state) {
  Trace trace(static_cast<size_t>(state.range(0)), std::byte{0x6c});
  for (size_t i = 0; i < kPsbBytes; i += 2) {
    trace[i] = std::byte{0x02};
    trace[i + 1] = std::byte{0x82};
  }
  for (auto _ : state) {
    auto psb = find_psb_backward(trace, trace.size());
    benchmark::DoNotOptimize(psb);
  }
  state.SetBytesProcessed(state.range(0) * static_cast<int64_t>(state.iterations()));
}
BENCHMARK(BM_FindPsbBackward)->Arg(1 << 26);

}  // namespace
}  // namespace auxtrail::pt
