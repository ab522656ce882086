// CodeMap: where the bytes of a process's code can be read from, for the decoders.
//
// A plain list of file sections: decoders need no idea of processes, DSOs or time. Built from a
// Layout, or by hand for memory dumps.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "image/address_space.h"

namespace auxtrail::image {

// Bytes [offset, offset + size_bytes) of `file` lie at `address`.
struct CodeSection {
  std::string file;
  uint64_t offset = 0;
  uint64_t size_bytes = 0;
  uint64_t address = 0;
};

struct CodeMap {
  uint64_t id = 0;  // equal ids mean equal sections: decoders cache by it
  std::vector<CodeSection> sections;
};

// The sections of the layout whose files are there; the rest is left out (DsoTable::problems() has
// it).
CodeMap make_code_map(const Layout& layout, DsoTable& dsos);

}  // namespace auxtrail::image
