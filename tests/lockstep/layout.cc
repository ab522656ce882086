// See layout.h.
#include "layout.h"

#include <elf.h>

#include <algorithm>
#include <fstream>
#include <utility>

namespace auxtrail::lockstep {
namespace {

template <class T>
T ReadAt(std::ifstream& file, uint64_t offset) {
  T value{};
  file.seekg(static_cast<std::streamoff>(offset));
  file.read(reinterpret_cast<char*>(&value), sizeof value);
  return value;
}

// Of the symbol table of type `table_type`.
std::vector<Symbol> DefinedSymbols(const std::string& path, uint32_t table_type) {
  std::vector<Symbol> symbols;
  std::ifstream file(path, std::ios::binary);
  const auto header = ReadAt<Elf64_Ehdr>(file, 0);
  const auto section = [&](uint64_t index) {
    return ReadAt<Elf64_Shdr>(file, header.e_shoff + index * header.e_shentsize);
  };
  for (uint64_t i = 0; file && i < header.e_shnum; ++i) {
    const auto table = section(i);
    if (table.sh_type != table_type) continue;
    const auto strings = section(table.sh_link);
    for (uint64_t at = 0; at < table.sh_size; at += sizeof(Elf64_Sym)) {
      const auto symbol = ReadAt<Elf64_Sym>(file, table.sh_offset + at);
      if (symbol.st_shndx == SHN_UNDEF) continue;
      file.seekg(static_cast<std::streamoff>(strings.sh_offset + symbol.st_name));
      std::string name;
      std::getline(file, name, '\0');
      symbols.push_back({name, symbol.st_value, symbol.st_value + symbol.st_size});
    }
  }
  return symbols;
}

// Hidden in the library, so it stands in the table that stripping removes.
uint64_t GateAfter(const std::string& unit_path) {
  for (const auto& symbol : DefinedSymbols(unit_path, SHT_SYMTAB)) {
    if (symbol.name == "auxtrail_gate_after") return symbol.start;
  }
  Die("no symbol auxtrail_gate_after in " + unit_path);
}

bool Contains(const std::vector<MapLine>& lines, uint64_t address) {
  return std::any_of(lines.begin(), lines.end(),
                     [address](const MapLine& line) { return line.contains(address); });
}

bool SameSections(const image::CodeMap& left, const image::CodeMap& right) {
  return std::equal(left.sections.begin(), left.sections.end(), right.sections.begin(),
                    right.sections.end(), [](const auto& a, const auto& b) {
                      return a.file == b.file && a.offset == b.offset && a.address == b.address &&
                             a.size_bytes == b.size_bytes;
                    });
}

uint64_t next_code_id = 1;

}  // namespace

Layout::Layout(const Tracee& tracee, std::string unit_path)
    : tracee_(tracee),
      unit_path_(std::move(unit_path)),
      exports_(DefinedSymbols(unit_path_, SHT_DYNSYM)),
      gate_after_(GateAfter(unit_path_)) {
  refresh();
}

void Layout::refresh() {
  program_code_.clear();
  unit_code_.clear();
  writable_.clear();
  image::CodeMap code;
  bool in_unit = false;
  for (const auto& line : tracee_.maps()) {
    const bool file = !line.path.empty() && line.path[0] == '/';
    const bool continues = line.path.empty() && in_unit;  // the unit's .bss
    in_unit = line.path == unit_path_ || (continues && line.writable());
    if (in_unit) {
      if (line.executable()) unit_code_.push_back(line);
      if (line.offset == 0 && !continues) unit_base_ = line.start;
      continue;
    }
    if (line.executable() && file) {
      program_code_.push_back(line);
      code.sections.push_back({line.path, line.offset, line.end - line.start, line.start});
    }
    if (line.writable() && line.readable() && line.is_private()) writable_.push_back(line);
  }
  for (const auto& function : exports_) {
    if (function.name != "syscall") continue;
    wrapper_.start = unit_base_ + function.start;
    wrapper_.end = unit_base_ + function.end;
  }
  if (SameSections(code, code_)) return;
  code_ = std::move(code);
  code_.id = next_code_id++;
}

bool Layout::is_program_code(uint64_t address) const {
  return Contains(program_code_, address) || wrapper_.contains(address);
}

bool Layout::is_unit_code(uint64_t address) const {
  return Contains(unit_code_, address) && !wrapper_.contains(address);
}

bool Layout::is_unit_entry(uint64_t address) const {
  return std::any_of(exports_.begin(), exports_.end(), [&](const Symbol& function) {
    return unit_base_ + function.start == address;
  });
}

}  // namespace auxtrail::lockstep
