// Reading ELF symbols and PLT stubs through libdwfl.
#include "image/symbol_table.h"

#include <gelf.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <tuple>
#include <unordered_map>

#include "image/demangle.h"
#include "image/unwind_functions.h"

namespace auxtrail::image {
namespace {

// A symbol before aliases are settled.
struct Candidate {
  std::string name;
  uint64_t address = 0;
  uint64_t size_bytes = 0;
  int binding_rank = 0;  // 0 global, 1 weak, 2 local

  [[nodiscard]] size_t underscores() const {
    return std::min(name.find_first_not_of('_'), name.size());
  }
  [[nodiscard]] auto order() const {
    return std::tuple(address, size_bytes == 0, binding_rank, underscores(), name.size(),
                      std::string_view(name));
  }
};

bool is_code(const GElf_Sym& symbol, Elf* elf, GElf_Word section) {
  const auto type = GELF_ST_TYPE(symbol.st_info);
  if (type == STT_FUNC || type == STT_GNU_IFUNC) return section != SHN_UNDEF;
  if (type != STT_NOTYPE || section == SHN_UNDEF || section >= SHN_LORESERVE) return false;
  GElf_Shdr header;
  Elf_Scn* scn = elf_getscn(elf, section);
  return scn != nullptr && gelf_getshdr(scn, &header) != nullptr &&
         (header.sh_flags & SHF_EXECINSTR) != 0;
}

int binding_rank(const GElf_Sym& symbol) {
  switch (GELF_ST_BIND(symbol.st_info)) {
    case STB_GLOBAL:
      return 0;
    case STB_WEAK:
      return 1;
    default:
      return 2;
  }
}

void read_symbols(Dwfl_Module* module, uint64_t bias, std::vector<Candidate>& candidates) {
  const int count = dwfl_module_getsymtab(module);
  for (int i = 0; i < count; ++i) {
    GElf_Sym symbol;
    GElf_Addr address = 0;
    GElf_Word section = 0;
    Elf* elf = nullptr;
    Dwarf_Addr symbol_bias = 0;
    const char* symbol_name =
        dwfl_module_getsym_info(module, i, &symbol, &address, &section, &elf, &symbol_bias);
    if (symbol_name == nullptr || *symbol_name == '\0') continue;
    if (!is_code(symbol, elf, section)) continue;
    // "memcpy@@GLIBC_2.14": the version is nothing a profile wants to tell apart.
    std::string name(symbol_name);
    name.resize(std::min(name.find('@', 1), name.size()));
    candidates.push_back({std::move(name), address - bias, symbol.st_size, binding_rank(symbol)});
  }
}

// Which function each GOT slot will hold, from the relocations that fill it.
using SlotNames = std::unordered_map<uint64_t, std::string>;

void read_slots(Elf* elf, Elf_Scn* scn, const GElf_Shdr& header, SlotNames& slots) {
  Elf_Scn* symbols_scn = elf_getscn(elf, header.sh_link);
  GElf_Shdr symbols_header;
  if (symbols_scn == nullptr || gelf_getshdr(symbols_scn, &symbols_header) == nullptr) return;
  Elf_Data* relocations = elf_getdata(scn, nullptr);
  Elf_Data* symbols = elf_getdata(symbols_scn, nullptr);
  if (relocations == nullptr || symbols == nullptr || header.sh_entsize == 0) return;
  const auto count = static_cast<int>(header.sh_size / header.sh_entsize);
  for (int i = 0; i < count; ++i) {
    GElf_Rela relocation;
    GElf_Sym symbol;
    if (gelf_getrela(relocations, i, &relocation) == nullptr) break;
    const auto type = GELF_R_TYPE(relocation.r_info);
    if (type != R_X86_64_JUMP_SLOT && type != R_X86_64_GLOB_DAT) continue;
    const auto index = static_cast<int>(GELF_R_SYM(relocation.r_info));
    if (gelf_getsym(symbols, index, &symbol) == nullptr) continue;
    const char* symbol_name = elf_strptr(elf, symbols_header.sh_link, symbol.st_name);
    if (symbol_name != nullptr && *symbol_name != '\0') slots[relocation.r_offset] = symbol_name;
  }
}

// Every stub jumps through its GOT slot: "jmp *disp(%rip)" (ff 25), perhaps behind endbr64 or bnd.
void read_stubs(Elf_Scn* scn, const GElf_Shdr& header, const SlotNames& slots,
                std::vector<Candidate>& candidates) {
  Elf_Data* data = elf_getdata(scn, nullptr);
  if (data == nullptr || data->d_buf == nullptr) return;
  const std::span bytes(static_cast<const uint8_t*>(data->d_buf), data->d_size);
  const size_t stub_bytes = header.sh_entsize >= 8 ? header.sh_entsize : 16;
  for (size_t stub = 0; stub + stub_bytes <= bytes.size(); stub += stub_bytes) {
    for (size_t at = stub; at + 6 <= stub + stub_bytes; ++at) {
      if (bytes[at] != 0xff || bytes[at + 1] != 0x25) continue;
      int32_t displacement = 0;
      std::memcpy(&displacement, &bytes[at + 2], sizeof(displacement));
      const uint64_t slot = header.sh_addr + at + 6 + static_cast<uint64_t>(int64_t{displacement});
      const auto found = slots.find(slot);
      if (found == slots.end()) break;
      candidates.push_back({found->second + "@plt", header.sh_addr + stub, stub_bytes, 0});
      break;
    }
  }
}

void read_plt(Elf* elf, std::vector<Candidate>& candidates) {
  size_t names_index = 0;
  if (elf == nullptr || elf_getshdrstrndx(elf, &names_index) != 0) return;
  SlotNames slots;
  std::vector<std::pair<Elf_Scn*, GElf_Shdr>> stub_sections;
  for (Elf_Scn* scn = elf_nextscn(elf, nullptr); scn != nullptr; scn = elf_nextscn(elf, scn)) {
    GElf_Shdr header;
    if (gelf_getshdr(scn, &header) == nullptr) continue;
    if (header.sh_type == SHT_RELA) read_slots(elf, scn, header, slots);
    const char* section_name = elf_strptr(elf, names_index, header.sh_name);
    if (section_name != nullptr && header.sh_type == SHT_PROGBITS &&
        std::string_view(section_name).starts_with(".plt")) {
      stub_sections.emplace_back(scn, header);
    }
  }
  for (const auto& [scn, header] : stub_sections) read_stubs(scn, header, slots, candidates);
}

const Function* find_in(const std::vector<Function>& functions, uint64_t address) {
  // Sized functions may enclose others, so some steps back are worth a look.
  constexpr int kMaxStepsBack = 8;
  auto place = std::partition_point(functions.begin(), functions.end(),
                                    [address](const Function& f) { return f.address <= address; });
  for (int step = 0; step < kMaxStepsBack && place != functions.begin(); ++step) {
    --place;
    if (address - place->address < place->size_bytes) return &*place;
  }
  return nullptr;
}

}  // namespace

SymbolTable SymbolTable::read(Dwfl_Module* module, const Dso* dso, bool demangle_names) {
  GElf_Addr bias = 0;
  Elf* elf = dwfl_module_getelf(module, &bias);
  std::vector<Candidate> candidates;
  read_symbols(module, bias, candidates);
  read_plt(elf, candidates);
  std::sort(candidates.begin(), candidates.end(),
            [](const Candidate& a, const Candidate& b) { return a.order() < b.order(); });

  SymbolTable table;
  table.functions_.reserve(candidates.size());
  uint64_t sized_end = 0;  // the end of the sized functions so far
  for (auto& candidate : candidates) {
    const bool is_alias =
        !table.functions_.empty() && table.functions_.back().address == candidate.address;
    const bool is_label = candidate.size_bytes == 0 && candidate.address < sized_end;
    if (is_alias || is_label) continue;
    sized_end = std::max(sized_end, candidate.address + candidate.size_bytes);
    Function function;
    function.name = demangle_names ? demangle(candidate.name) : candidate.name;
    function.raw_name = std::move(candidate.name);
    function.dso = dso;
    function.address = candidate.address;
    function.size_bytes = candidate.size_bytes;
    table.functions_.push_back(std::move(function));
  }
  // A function of unknown size reaches to the next one, or for the last one some bytes further.
  constexpr uint64_t kLastUnsizedBytes = 4096;
  for (size_t i = 0; i < table.functions_.size(); ++i) {
    Function& function = table.functions_[i];
    if (function.size_bytes != 0) continue;
    const bool is_last = i + 1 == table.functions_.size();
    function.size_bytes =
        is_last ? kLastUnsizedBytes : table.functions_[i + 1].address - function.address;
  }
  table.unnamed_ = read_unwind_functions(elf, dso);
  return table;
}

const Function* SymbolTable::find(uint64_t address) const { return find_in(functions_, address); }

const Function* SymbolTable::find_unnamed(uint64_t address) const {
  return find_in(unnamed_, address);
}

}  // namespace auxtrail::image
