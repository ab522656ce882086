// CodeMemory: the bytes of a program's code by address, for decoding.
//
// Sections of files, mapped read-only once and shared between all address spaces that show them.
// Later sections hide what they overlap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace auxtrail::flow {

// A piece of code in memory: [address, address + bytes.size()).
struct CodeSection {
  uint64_t address = 0;
  std::span<const uint8_t> bytes;
};

class CodeMemory {
 public:
  // `bytes` must outlive the memory. An empty section is ignored, one beyond 2^64 is cut.
  void add(uint64_t address, std::span<const uint8_t> bytes);

  // The section that holds `address`; nullptr if none does. Valid until the next add().
  [[nodiscard]] const CodeSection* find(uint64_t address) const;

  // Copies up to `count` bytes from `address` on, across adjoining sections; how many there were.
  size_t read(uint64_t address, uint8_t* to, size_t count) const;

  // Sorted by address, without overlaps.
  [[nodiscard]] std::span<const CodeSection> sections() const { return sections_; }

 private:
  std::vector<CodeSection> sections_;
};

}  // namespace auxtrail::flow
