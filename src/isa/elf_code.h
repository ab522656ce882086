// The executable sections of an ELF file, for tests that walk real programs.
#pragma once

#include <elf.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace auxtrail::isa {

using Code = std::vector<uint8_t>;

// Empty when the file is absent or not a little-endian ELF64 file with section headers.
inline std::vector<Code> executable_sections(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::vector<uint8_t> file{std::istreambuf_iterator<char>(in), {}};
  std::vector<Code> sections;
  Elf64_Ehdr header;
  if (file.size() < sizeof header) return sections;
  std::memcpy(&header, file.data(), sizeof header);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_machine != EM_X86_64)
    return sections;
  for (unsigned i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section;
    const uint64_t at = header.e_shoff + uint64_t{i} * sizeof section;
    if (at + sizeof section > file.size()) break;
    std::memcpy(&section, file.data() + at, sizeof section);
    if (section.sh_type != SHT_PROGBITS || (section.sh_flags & SHF_EXECINSTR) == 0) continue;
    if (section.sh_offset > file.size() || section.sh_size > file.size() - section.sh_offset)
      continue;
    const uint8_t* start = file.data() + section.sh_offset;
    sections.emplace_back(start, start + section.sh_size);
  }
  return sections;
}

}  // namespace auxtrail::isa
