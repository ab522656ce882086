// ElfFile: the two things a DsoTable wants from a file: its build id and its loadable segments.
//
// Reads through libelf; a file that is no ELF file is told apart from one that cannot be opened.
// Only regular files are opened (a recorded path may name a FIFO or a device).
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "image/dso.h"

namespace auxtrail::image {

struct ElfFacts {
  bool is_elf = false;
  uint64_t size_bytes = 0;
  BuildId build_id;
  std::vector<ElfSegment> segments;
};

Result<ElfFacts> read_elf_facts(const std::string& path);

// A memory image of an ELF file, such as the vdso.
Result<ElfFacts> read_elf_facts(char* image, size_t size_bytes);

}  // namespace auxtrail::image
