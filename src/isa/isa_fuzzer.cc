// Differential fuzzing of the decoder against Zydis over a whole byte string, one offset after
// another.
#include <cstdio>
#include <cstdlib>

#include "isa/insn.h"
#include "isa/zydis_oracle.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auxtrail::isa::ZydisOracle oracle;
  for (size_t at = 0; at < size; ++at) {
    const auxtrail::isa::Insn insn = auxtrail::isa::decode(data + at, size - at);
    const std::string text = oracle.difference(insn, data + at, size - at);
    if (!text.empty()) {
      std::fprintf(stderr, "%s\n", text.c_str());
      std::abort();
    }
  }
  return 0;
}
