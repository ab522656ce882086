// The decoder on the code of a large program, with Zydis (full and minimal mode) as the peer.
#include <Zydis/Zydis.h>
#include <benchmark/benchmark.h>

#include "isa/elf_code.h"
#include "isa/insn.h"

namespace auxtrail::isa {
namespace {

// The largest executable section, or nothing.
const Code& subject() {
  static const Code code = [] {
    Code largest;
    for (Code& section : executable_sections("/usr/bin/python3")) {
      if (section.size() > largest.size()) largest = std::move(section);
    }
    return largest;
  }();
  return code;
}

template <typename Length>
void sweep(benchmark::State& state, Length length_at) {
  const Code& code = subject();
  if (code.empty()) {
    state.SkipWithError("no program to decode found");
    return;
  }
  int64_t instructions = 0;
  for (auto _ : state) {
    for (size_t at = 0; at < code.size(); ++instructions) {
      const size_t length = length_at(code.data() + at, code.size() - at);
      at += length != 0 ? length : 1;
    }
  }
  state.SetItemsProcessed(instructions);
  state.counters["per_insn"] = benchmark::Counter(
      static_cast<double>(instructions), benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void BM_Decode(benchmark::State& state) {
  sweep(state, [](const uint8_t* code, size_t size) {
    Insn insn = decode(code, size);
    benchmark::DoNotOptimize(insn);
    return size_t{insn.length};
  });
}
BENCHMARK(BM_Decode)->Unit(benchmark::kMillisecond);

void zydis(benchmark::State& state, bool minimal) {
  ZydisDecoder decoder;
  ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
  ZydisDecoderEnableMode(&decoder, ZYDIS_DECODER_MODE_MINIMAL, minimal);
  sweep(state, [&decoder](const uint8_t* code, size_t size) {
    ZydisDecodedInstruction insn;
    const bool ok =
        ZYAN_SUCCESS(ZydisDecoderDecodeInstruction(&decoder, nullptr, code, size, &insn));
    benchmark::DoNotOptimize(insn);
    return ok ? size_t{insn.length} : size_t{0};
  });
}
void BM_Zydis(benchmark::State& state) { zydis(state, false); }
BENCHMARK(BM_Zydis)->Unit(benchmark::kMillisecond);
void BM_ZydisMinimal(benchmark::State& state) { zydis(state, true); }
BENCHMARK(BM_ZydisMinimal)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace auxtrail::isa
