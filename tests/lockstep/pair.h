// Pair: one program in two processes, kept in the same state.
//
// Both run the same binary with the same environment, layout, random bytes, ids and clocks, the
// unit preloaded in both. The *traced* one gets windows; the *plain* one never does: it only steps.
// Between windows both execute the same instructions natively, system calls included; in continuous
// trace the traced one's calls come through the unit's gate. What may differ is the unit's own
// memory and where the kernel puts new mappings: the plain process asks for the address that the
// traced one got.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "fixed_results.h"
#include "instruction.h"
#include "layout.h"
#include "recorder.h"
#include "tracee.h"

namespace auxtrail::lockstep {

enum class Native : uint8_t { kOk, kExited, kDiverged };

class Pair {
 public:
  // Starts both and runs them to the program's entry point, where the unit has started.
  Pair(const LaunchOptions& options, Recorder& recorder, const std::string& unit_path);

  Tracee& traced() { return traced_; }
  Tracee& plain() { return plain_; }
  Channel& channel() { return *channel_; }
  InstructionTable& instructions() { return instructions_; }
  [[nodiscard]] const Layout& traced_layout() const { return traced_layout_; }
  [[nodiscard]] const Layout& plain_layout() const { return plain_layout_; }

  // One instruction in both; a function of the unit that the program called counts as one.
  Native step();
  // Runs both natively until `count` system calls are done.
  Native run_system_calls(uint64_t count);
  // Runs both natively until they reach `address` for the `count`th time.
  Native run_to(uint64_t address, uint64_t count);

  // Continuous trace: the traced one stands at the entry of call `number` in the gate. Runs the
  // plain one natively to the entry of its next call.
  Native meet_call(uint64_t number);
  // Both stand at the entry of the same call: makes it.
  Native make_call(uint64_t number);

  // Memory below the red zone is any signal's to overwrite, and programs load bytes of it (buffers
  // not set yet, vector loads past a string's end). Gives the plain process the traced one's. Call
  // where a signal frame was written.
  void share_dead_stack();

  // Why kDiverged was returned.
  [[nodiscard]] const std::string& problem() const { return problem_; }

 private:
  struct EntryStop {
    Native status = Native::kOk;
    bool breakpoint = false;
    uint64_t number = 0;
  };
  static void run_to_entry(Tracee& tracee, FixedResults& results, const std::string& unit_path);
  EntryStop run_to_program_call(Tracee& tracee, const Layout& layout);
  Native next_system_call(bool* breakpoint);
  Native call_unit();
  Native leave_unit();
  Native diverged(const std::string& why);
  void mappings_changed();
  void share_start_state();

  FixedResults traced_results_;
  FixedResults plain_results_;
  Tracee traced_;
  std::unique_ptr<Channel> channel_;
  Tracee plain_;
  std::unique_ptr<Channel> plain_channel_;  // keeps the unit's memory alive, nothing is read
  Layout traced_layout_;
  Layout plain_layout_;
  InstructionTable instructions_;  // of the plain process
  std::string problem_;
};

}  // namespace auxtrail::lockstep
