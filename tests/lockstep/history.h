// History: what packets claim that the program did: decoded branches, and the raw outcomes beside
// them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "decode/branch_decoder.h"
#include "decode/libipt_decoder.h"

namespace auxtrail::lockstep {

// A branch that was taken, or a conditional one that was not (`to` is 0 then).
struct Transfer {
  uint64_t from = 0;
  uint64_t to = 0;
  bool operator==(const Transfer&) const = default;
};

// What one TNT bit or TIP packet says. A compressed return is a kTaken.
enum class Outcome : uint8_t { kNotTaken, kTaken, kTarget };

// A stretch of the program's way, from where tracing began to where it ended.
struct History {
  std::vector<Transfer> transfers;  // in order of execution
  std::vector<Outcome> outcomes;    // of the packets, oldest first
  uint64_t first_ip = 0;
  uint64_t final_ip = 0;  // not executed
  std::string error;      // why it could not be decoded; empty if all is well
};

class HistoryDecoder {
 public:
  HistoryDecoder() : decoder_(decode::make_libipt_decoder()) {}
  // A window's sample: one stretch.
  History decode(const image::CodeMap& code, std::span<const std::byte> aux);
  // All stretches from the first PSB on. What could not be decoded is the last one's error.
  std::vector<History> decode_stretches(const image::CodeMap& code, std::span<const std::byte> aux);

 private:
  std::unique_ptr<decode::BranchDecoder> decoder_;
};

}  // namespace auxtrail::lockstep
