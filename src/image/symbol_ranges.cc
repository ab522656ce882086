#include "image/symbol_ranges.h"

#include <fcntl.h>
#include <gelf.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>

#include "base/unique_fd.h"
#include "image/elf_file.h"

namespace auxtrail::image {
namespace {

struct NamedRange {
  std::string_view name;
  uint64_t address = 0;
  SymbolRange range;
};

using Elf_ = std::unique_ptr<Elf, decltype(&elf_end)>;

Elf_Scn* symbol_section(Elf* elf) {
  Elf_Scn* dynamic = nullptr;
  for (Elf_Scn* section = elf_nextscn(elf, nullptr); section != nullptr;
       section = elf_nextscn(elf, section)) {
    GElf_Shdr header;
    if (gelf_getshdr(section, &header) == nullptr) continue;
    if (header.sh_type == SHT_SYMTAB) return section;
    if (header.sh_type == SHT_DYNSYM) dynamic = section;
  }
  return dynamic;
}

std::optional<uint64_t> file_offset(const std::vector<ElfSegment>& segments, uint64_t address) {
  for (const ElfSegment& segment : segments) {
    if (address - segment.address < segment.size_bytes) {
      return address - segment.address + segment.offset;
    }
  }
  return std::nullopt;
}

std::vector<NamedRange> functions_of(Elf* elf, const std::vector<ElfSegment>& segments) {
  std::vector<NamedRange> functions;
  Elf_Scn* section = symbol_section(elf);
  GElf_Shdr header;
  if (section == nullptr || gelf_getshdr(section, &header) == nullptr) return functions;
  Elf_Data* data = elf_getdata(section, nullptr);
  if (data == nullptr || header.sh_entsize == 0) return functions;
  const auto count = static_cast<int>(header.sh_size / header.sh_entsize);
  for (int i = 0; i < count; ++i) {
    GElf_Sym symbol;
    if (gelf_getsym(data, i, &symbol) == nullptr) break;
    const int type = GELF_ST_TYPE(symbol.st_info);
    if ((type != STT_FUNC && type != STT_GNU_IFUNC && type != STT_NOTYPE) ||
        symbol.st_shndx == SHN_UNDEF) {
      continue;
    }
    const char* name = elf_strptr(elf, header.sh_link, symbol.st_name);
    const auto offset = file_offset(segments, symbol.st_value);
    if (name == nullptr || *name == '\0' || !offset) continue;
    if (type == STT_NOTYPE && symbol.st_size == 0 && GELF_ST_BIND(symbol.st_info) == STB_LOCAL) {
      continue;  // a label
    }
    functions.push_back({name,
                         symbol.st_value,
                         {*offset, symbol.st_size, GELF_ST_BIND(symbol.st_info) != STB_LOCAL}});
  }
  std::stable_sort(functions.begin(), functions.end(),
                   [](const NamedRange& a, const NamedRange& b) { return a.address < b.address; });
  return functions;
}

// Symbols without a size, of assembly code mostly, end where the next one begins.
void give_sizes(std::vector<NamedRange>& functions) {
  for (auto at = functions.begin(); at != functions.end(); ++at) {
    if (at->range.size_bytes != 0) continue;
    const auto next = std::find_if(
        at, functions.end(), [&](const NamedRange& other) { return other.address > at->address; });
    if (next != functions.end()) at->range.size_bytes = next->address - at->address;
  }
}

}  // namespace

Result<std::vector<SymbolRange>> find_symbol_ranges(const std::string& path,
                                                    std::string_view name) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return fail_errno("open the file", path, errno);
  AUXTRAIL_ASSIGN(const ElfFacts facts, read_elf_facts(path));
  elf_version(EV_CURRENT);
  const Elf_ elf(elf_begin(fd.get(), ELF_C_READ_MMAP, nullptr), &elf_end);
  if (!facts.is_elf || !elf) {
    return fail({"read the symbols", path, "it is no ELF file", "name a program or a library"});
  }
  auto functions = functions_of(elf.get(), facts.segments);
  give_sizes(functions);
  std::vector<SymbolRange> found;
  for (const NamedRange& function : functions) {
    if (name == "*" || function.name == name) found.push_back(function.range);
  }
  return found;
}

}  // namespace auxtrail::image
