// Comparison: the states of a pair's two processes at the same position of the program.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mutation.h"
#include "pair.h"
#include "state.h"

namespace auxtrail::lockstep {

class Comparison {
 public:
  Comparison(Pair& pair, const std::string& unit_path) : pair_(pair), memory_(unit_path) {}

  // `traced` is the traced process's registers in the program's own terms; `with_mask` says that
  // its signal mask is the program's, too. Messages, one per difference. The plain process may
  // stand within a repeated string instruction whose iterations the traced one has not ended
  // either.
  std::vector<std::string> compare(Registers traced, bool with_mask, Mutation falsified);

  // All writable memory.
  std::vector<std::string> compare_memory();

  [[nodiscard]] uint64_t memory_bytes() const { return memory_.bytes_compared(); }

 private:
  void finish_iterations(const Registers& traced);
  std::vector<std::string> compare_some_memory(const Registers& registers);

  Pair& pair_;
  MemoryComparison memory_;
  uint64_t count_ = 0;
};

}  // namespace auxtrail::lockstep
