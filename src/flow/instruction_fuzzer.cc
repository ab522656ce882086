// Differential fuzzing of the instruction decoder against Zydis over a whole byte string, one
// offset after another, in every mode.
#include <cstdio>
#include <cstdlib>

#include "flow/zydis_instruction_oracle.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using auxtrail::flow::ExecMode;
  using auxtrail::flow::test::ZydisInstructionOracle;
  static const ZydisInstructionOracle oracles[] = {ZydisInstructionOracle(ExecMode::k16),
                                                   ZydisInstructionOracle(ExecMode::k32),
                                                   ZydisInstructionOracle(ExecMode::k64)};
  for (const auto& oracle : oracles) {
    for (size_t at = 0; at < size; ++at) {
      const std::string text = oracle.difference({data + at, size - at});
      if (!text.empty()) {
        std::fprintf(stderr, "%s\n", text.c_str());
        std::abort();
      }
    }
  }
  return 0;
}
