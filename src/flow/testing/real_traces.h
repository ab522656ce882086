// Real traces with the code they ran through, for tests. They are not ours to copy: tests skip
// where AUXTRAIL_TEST_DATA does not have them.
//
//   kvm_pt    user code under KVM, return compression off, memory dumps of pages
//   perf_pt   threads of programs, return compression on, the programs' ELF files
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <string>
#include <vector>

#include "flow/code_memory.h"
#include "pt/trace_config.h"

namespace auxtrail::flow::test {

// A piece of a file at an address, as libipt wants it, too.
struct FileSection {
  std::string file;
  uint64_t offset = 0;
  uint64_t size_bytes = 0;
  uint64_t address = 0;
};

struct RealTrace {
  std::string title;
  std::string obstacle;  // why it is not there; empty if it is
  std::vector<std::byte> trace;
  std::vector<FileSection> sections;
  pt::Cpu cpu;
  uint64_t filter_start = 0;  // both 0: none
  uint64_t filter_end = 0;

  // `code_storage` must outlive the memory.
  CodeMemory code(std::deque<std::vector<uint8_t>>& code_storage) const;
  [[nodiscard]] pt::TraceConfig config(bool with_errata) const;
};

// "Unzip", "foo", "avscript_32", "dyn_test".
RealTrace kvm_trace(const std::string& title);
// "intelpt-trace", "intelpt-trace-multi-file".
RealTrace perf_trace(const std::string& title);

}  // namespace auxtrail::flow::test
