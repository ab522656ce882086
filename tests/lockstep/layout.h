// Layout: what lies where in a traced process: the program's code, the unit's, and memory to
// compare.
#pragma once

#include <string>
#include <vector>

#include "image/code_map.h"
#include "tracee.h"

namespace auxtrail::lockstep {

struct Symbol {
  std::string name;
  uint64_t start = 0;  // in the file
  uint64_t end = 0;
};

class Layout {
 public:
  Layout(const Tracee& tracee, std::string unit_path);

  // Reads the mappings anew.
  void refresh();

  // Code of the program or its libraries, as opposed to the unit's and its code cache. The unit's
  // syscall() counts as the program's: it makes the program's own system calls.
  [[nodiscard]] bool is_program_code(uint64_t address) const;
  [[nodiscard]] bool is_unit_code(uint64_t address) const;
  // The first instruction of a function that the unit interposes.
  [[nodiscard]] bool is_unit_entry(uint64_t address) const;
  // Behind the instruction with which the unit makes the program's system calls in continuous
  // trace.
  [[nodiscard]] bool is_behind_gate_call(uint64_t address) const {
    return address == unit_base_ + gate_after_;
  }
  // For the decoder: the program's code by file.
  [[nodiscard]] const image::CodeMap& code() const { return code_; }
  // Private writable memory that is not the unit's.
  [[nodiscard]] const std::vector<MapLine>& writable() const { return writable_; }

 private:
  const Tracee& tracee_;
  std::string unit_path_;
  std::vector<Symbol> exports_;  // of the unit
  uint64_t gate_after_ = 0;      // in the unit's file
  uint64_t unit_base_ = 0;
  MapLine wrapper_;  // syscall(), where it lies in the process
  std::vector<MapLine> program_code_;
  std::vector<MapLine> unit_code_;
  std::vector<MapLine> writable_;
  image::CodeMap code_;
};

}  // namespace auxtrail::lockstep
