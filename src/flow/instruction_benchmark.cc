// The decoder on the code of a large program, with isa/'s and Zydis (full and minimal mode) as
// peers.
#include <Zydis/Zydis.h>
#include <benchmark/benchmark.h>

#include "flow/instruction.h"
#include "isa/elf_code.h"
#include "isa/insn.h"

namespace auxtrail::flow {
namespace {

// The largest executable section, or nothing.
const isa::Code& subject() {
  static const isa::Code code = [] {
    isa::Code largest;
    for (isa::Code& section : isa::executable_sections("/usr/bin/python3")) {
      if (section.size() > largest.size()) largest = std::move(section);
    }
    return largest;
  }();
  return code;
}

template <typename Length>
void sweep(benchmark::State& state, Length length_at) {
  const isa::Code& code = subject();
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

// In 32-bit mode the same bytes mean something else: all goes through the general path.
void flow(benchmark::State& state, ExecMode mode) {
  sweep(state, [mode](const uint8_t* code, size_t size) {
    Instruction insn;
    const bool ok = decode_instruction(code, size, mode, insn);
    benchmark::DoNotOptimize(insn);
    return ok ? size_t{insn.length} : size_t{0};
  });
}
void BM_Flow(benchmark::State& state) { flow(state, ExecMode::k64); }
BENCHMARK(BM_Flow)->Unit(benchmark::kMillisecond);
void BM_Flow32(benchmark::State& state) { flow(state, ExecMode::k32); }
BENCHMARK(BM_Flow32)->Unit(benchmark::kMillisecond);

void BM_Isa(benchmark::State& state) {
  sweep(state, [](const uint8_t* code, size_t size) {
    isa::Insn insn = isa::decode(code, size);
    benchmark::DoNotOptimize(insn);
    return size_t{insn.length};
  });
}
BENCHMARK(BM_Isa)->Unit(benchmark::kMillisecond);

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
}  // namespace auxtrail::flow
