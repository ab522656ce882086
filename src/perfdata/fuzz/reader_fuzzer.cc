// libFuzzer target: any bytes as a perf.data file. Seeds: reader_corpus/ (made by
// make_reader_corpus).
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>

#include "perfdata/testing/exercise.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto outcome = auxtrail::perfdata::testing::exercise(std::as_bytes(std::span(data, size)));
  if (!outcome.broken.empty()) {
    std::fprintf(stderr, "property broken: %s\n", outcome.broken.c_str());
    std::abort();
  }
  return 0;
}
