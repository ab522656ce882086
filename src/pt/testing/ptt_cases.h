// libipt's textual trace tests: assembly, packets, options, expected output.
//
// They are not in this repository: libipt_ptt.tar.xz in AUXTRAIL_TEST_DATA is unpacked into a
// temporary directory, which lives as long as the PttArchive.
//
//   NAME.ptt                        the source; we read its `org` and its `opt:TOOL` lines
//   NAME.bin, NAME.pt               the code, at `org`, and the packets
//   NAME-TOOL[-cpu_F_M[_S]].exp     what TOOL (ptdump, ptxed) prints, with that CPU's errata
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "pt/trace_config.h"

namespace auxtrail::pt::test {

// One expected output.
struct PttCase {
  std::string name;  // of the .exp file
  std::string base;  // NAME
  Cpu cpu;
  std::vector<std::string> options;  // of the tool
  uint64_t org = 0;
  std::vector<std::string> expected;

  [[nodiscard]] bool has(const std::string& option) const;
  // The number behind an option; 0 without it.
  [[nodiscard]] uint32_t number(const std::string& option) const;
};

// The trace's circumstances as a case's CPU and options tell them.
TraceConfig config_of(const PttCase& ptt);

class PttArchive {
 public:
  PttArchive();
  ~PttArchive();
  PttArchive(const PttArchive&) = delete;
  PttArchive& operator=(const PttArchive&) = delete;

  // Why there are no cases; nothing if there are.
  [[nodiscard]] const std::optional<std::string>& obstacle() const { return obstacle_; }
  // All cases of `tool`, by name.
  [[nodiscard]] std::vector<PttCase> cases(const std::string& tool) const;
  [[nodiscard]] std::vector<uint8_t> bytes(const std::string& file) const;
  [[nodiscard]] std::string path(const std::string& file) const { return directory_ / file; }

 private:
  std::filesystem::path directory_;
  std::optional<std::string> obstacle_;
};

std::vector<std::string> words(const std::string& line);

// Lines without comments (#), every run of blanks one blank, none at the ends.
std::vector<std::string> normalised_lines(const std::string& text);

// Where real traces are looked for: AUXTRAIL_TEST_DATA, or beside the repository.
std::filesystem::path data_directory();

}  // namespace auxtrail::pt::test
