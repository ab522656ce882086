// Fuzzes the decoder with hostile packets over hostile code.
//
// Input: u16 size of the code, the code (which lies at kCodeAddress), the trace. Decoding must end,
// and what the consumer saw must be what the summary says.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "base/unique_fd.h"
#include "decode/libipt_decoder.h"
#include "history/branch_history.h"

namespace {

using namespace auxtrail;  // NOLINT(google-build-using-namespace): one file, one function

constexpr uint64_t kCodeAddress = 0x401000;

void require(bool condition) {
  if (!condition) std::abort();
}

class Checker : public history::BranchHistory {
 public:
  Checker() : BranchHistory(Options{.blocks = true, .errors = true}) {}
  [[nodiscard]] unsigned wants() const override { return decode::kWantsAll; }
  void on_not_taken(uint64_t) override { ++not_taken; }
  void on_gap(const decode::Gap&) override { ++gaps; }
  uint64_t not_taken = 0;
  uint64_t gaps = 0;
};

void check(const Checker& seen, const decode::DecodeSummary& summary) {
  uint64_t branches = 0;
  for (const auto& branch : seen.branches()) {
    require(branch.kind < decode::BranchKind::kCount);
    branches += branch.is_marker() ? 0 : 1;
  }
  uint64_t instructions = 0;
  for (const auto& block : seen.blocks()) instructions += block.instructions;
  require(branches == summary.branches);
  require(instructions == summary.instructions);
  require(seen.blocks().size() == summary.blocks);
  require(seen.not_taken == summary.not_taken);
  require(seen.gaps == summary.gaps);
  require(history::brstack(seen.branches()).size() < 32 * 64);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  uint16_t code_bytes = 0;
  if (size < sizeof(code_bytes)) return 0;
  std::memcpy(&code_bytes, data, sizeof(code_bytes));
  data += sizeof(code_bytes);
  size -= sizeof(code_bytes);
  code_bytes = static_cast<uint16_t>(std::min<size_t>(code_bytes, size));

  const UniqueFd file(::memfd_create("code", MFD_CLOEXEC));
  require(::write(file.get(), data, code_bytes) == code_bytes);
  image::CodeMap code;
  if (code_bytes > 0) {
    code.id = 1;
    code.sections.push_back(
        {"/proc/self/fd/" + std::to_string(file.get()), 0, code_bytes, kCodeAddress});
  }
  const auto trace = std::as_bytes(std::span(data + code_bytes, size - code_bytes));
  const auto decoder = decode::make_libipt_decoder();
  Checker seen;
  const auto summary = decoder->decode(code, trace, seen);
  check(seen, summary);
  return 0;
}
