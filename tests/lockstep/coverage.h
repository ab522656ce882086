// Coverage: at which instructions windows started, against those that the program executed.
#pragma once

#include <Zydis/Zydis.h>

#include <array>
#include <cstdint>
#include <string>

#include "instruction.h"

namespace auxtrail::lockstep {

class Coverage {
 public:
  void executed(const Instruction& instruction);
  void started(const Instruction& instruction);

  // Whether a window starting here is worth more than the usual one: few have started at this
  // mnemonic.
  [[nodiscard]] bool is_rare(const Instruction& instruction) const;

  // Whether too few windows started at this instruction's kind, and whether there is any such kind.
  [[nodiscard]] bool is_wanted(const Instruction& instruction) const;
  [[nodiscard]] bool wants_any() const;

  // Kinds that make up a fair share of the program and at which too few windows started; empty: all
  // is well.
  [[nodiscard]] std::string missing() const;
  // "COND_BR 20.1%:31, ...": share of executed instructions and windows by kind.
  [[nodiscard]] std::string kinds() const;
  [[nodiscard]] size_t mnemonics_executed() const;
  [[nodiscard]] size_t mnemonics_started() const;

 private:
  struct Counts {
    uint64_t executed = 0;
    uint64_t started = 0;
  };
  [[nodiscard]] bool lacks(const Counts& counts) const;

  std::array<Counts, ZYDIS_MNEMONIC_MAX_VALUE + 1> mnemonics_{};
  std::array<Counts, ZYDIS_CATEGORY_MAX_VALUE + 1> categories_{};
  uint64_t executed_ = 0;
  uint64_t started_ = 0;
};

}  // namespace auxtrail::lockstep
