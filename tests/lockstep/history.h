// History: what a sample claims that the program did: decoded branches, and the raw outcomes beside
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

struct History {
  std::vector<Transfer> transfers;  // in order of execution
  std::vector<bool> outcomes;       // of the TNT packets, one per conditional branch, oldest first
  uint64_t first_ip = 0;
  uint64_t final_ip = 0;
  std::string error;  // why it could not be decoded; empty if all is well
};

class HistoryDecoder {
 public:
  HistoryDecoder() : decoder_(decode::make_libipt_decoder()) {}
  History decode(const image::CodeMap& code, std::span<const std::byte> aux);

 private:
  std::unique_ptr<decode::BranchDecoder> decoder_;
};

}  // namespace auxtrail::lockstep
