// libdw behind SourceLines.
#include "image/source_lines.h"

#include <dwarf.h>

#include <algorithm>
#include <optional>

#include "image/demangle.h"

namespace auxtrail::image {
namespace {

std::string function_name(Dwarf_Die* die, bool demangle_names) {
  for (const unsigned attribute : {DW_AT_linkage_name, DW_AT_MIPS_linkage_name}) {
    Dwarf_Attribute value;
    if (dwarf_attr_integrate(die, attribute, &value) == nullptr) continue;
    const char* text = dwarf_formstring(&value);
    if (text != nullptr) return demangle_names ? demangle(text) : text;
  }
  const char* text = dwarf_diename(die);
  return text != nullptr ? text : std::string(kUnknown);
}

std::optional<Dwarf_Word> number(Dwarf_Die* die, unsigned attribute) {
  Dwarf_Attribute value;
  Dwarf_Word result = 0;
  if (dwarf_attr(die, attribute, &value) == nullptr) return std::nullopt;
  if (dwarf_formudata(&value, &result) != 0) return std::nullopt;
  return result;
}

struct SourcePlace {
  std::string file;
  int line = 0;
};

SourcePlace line_at(Dwarf_Die* unit, uint64_t address) {
  SourcePlace place;
  Dwarf_Line* line = dwarf_getsrc_die(unit, address);
  if (line == nullptr) return place;
  (void)dwarf_lineno(line, &place.line);
  const char* file = dwarf_linesrc(line, nullptr, nullptr);
  if (file != nullptr) place.file = file;
  return place;
}

// Where the function that `inlined` was made from was called.
SourcePlace call_place(Dwarf_Die* unit, Dwarf_Die* inlined) {
  SourcePlace place;
  place.line = static_cast<int>(number(inlined, DW_AT_call_line).value_or(0));
  const auto file_index = number(inlined, DW_AT_call_file);
  Dwarf_Files* files = nullptr;
  size_t count = 0;
  if (!file_index || dwarf_getsrcfiles(unit, &files, &count) != 0 || *file_index >= count) {
    return place;
  }
  const char* file = dwarf_filesrc(files, *file_index, nullptr, nullptr);
  if (file != nullptr) place.file = file;
  return place;
}

bool holds_functions(int tag) {
  return tag == DW_TAG_namespace || tag == DW_TAG_module || tag == DW_TAG_class_type ||
         tag == DW_TAG_structure_type || tag == DW_TAG_union_type;
}

// Finds the scopes that hold an address. dwarf_getscopes() is not used: it follows the first child
// that holds the address, which in clang's output is not always the one with the inlined function.
// The deepest chain of scopes is taken.
class ScopeSearch {
 public:
  explicit ScopeSearch(uint64_t address) : address_(address) {}

  // Outermost first.
  std::vector<Dwarf_Die> below(Dwarf_Die* unit) {
    visit_children(unit, 0);
    return std::move(deepest_);
  }

 private:
  static constexpr int kMaxDepth = 256;  // a damaged file may nest without end

  void visit_children(Dwarf_Die* parent, int depth) {
    Dwarf_Die child;
    if (depth > kMaxDepth || dwarf_child(parent, &child) != 0) return;
    do {
      const bool is_around = is_scope(dwarf_tag(&child)) && dwarf_haspc(&child, address_) > 0;
      if (is_around) path_.push_back(child);
      if (path_.size() > deepest_.size()) deepest_ = path_;
      if (is_around || holds_functions(dwarf_tag(&child))) visit_children(&child, depth + 1);
      if (is_around) path_.pop_back();
    } while (dwarf_siblingof(&child, &child) == 0);
  }

  static bool is_scope(int tag) {
    return tag == DW_TAG_subprogram || tag == DW_TAG_inlined_subroutine ||
           tag == DW_TAG_lexical_block || tag == DW_TAG_try_block || tag == DW_TAG_catch_block;
  }

  uint64_t address_;
  std::vector<Dwarf_Die> path_;
  std::vector<Dwarf_Die> deepest_;
};

}  // namespace

SourceLines::SourceLines(Dwfl_Module* module) {
  GElf_Addr elf_bias = 0;
  Dwarf_Addr dwarf_bias = 0;
  (void)dwfl_module_getelf(module, &elf_bias);
  if (dwfl_module_getdwarf(module, &dwarf_bias) == nullptr) return;
  dwarf_shift_ = elf_bias - dwarf_bias;
  Dwarf_Addr unit_bias = 0;
  for (Dwarf_Die* unit = dwfl_module_nextcu(module, nullptr, &unit_bias); unit != nullptr;
       unit = dwfl_module_nextcu(module, unit, &unit_bias)) {
    Dwarf_Addr base = 0;
    Dwarf_Addr start = 0;
    Dwarf_Addr end = 0;
    for (ptrdiff_t at = 0; (at = dwarf_ranges(unit, at, &base, &start, &end)) > 0;) {
      if (start < end) ranges_.push_back({start, end, *unit});
    }
  }
  std::sort(ranges_.begin(), ranges_.end(),
            [](const UnitRange& a, const UnitRange& b) { return a.start < b.start; });
}

Dwarf_Die* SourceLines::unit_at(uint64_t dwarf_address) {
  const auto behind = std::partition_point(
      ranges_.begin(), ranges_.end(),
      [dwarf_address](const UnitRange& range) { return range.start <= dwarf_address; });
  if (behind == ranges_.begin()) return nullptr;
  UnitRange& range = *std::prev(behind);
  return dwarf_address < range.end ? &range.unit : nullptr;
}

std::vector<SourceFrame> SourceLines::frames(uint64_t address, bool demangle_names) {
  const uint64_t dwarf_address = address + dwarf_shift_;
  Dwarf_Die* unit = unit_at(dwarf_address);
  if (unit == nullptr) return {};
  SourcePlace place = line_at(unit, dwarf_address);

  std::vector<SourceFrame> frames;
  const auto chain = ScopeSearch(dwarf_address).below(unit);
  for (auto scope = chain.rbegin(); scope != chain.rend(); ++scope) {
    Dwarf_Die die = *scope;
    const int tag = dwarf_tag(&die);
    if (tag != DW_TAG_inlined_subroutine && tag != DW_TAG_subprogram) continue;
    const bool inlined = tag == DW_TAG_inlined_subroutine;
    frames.push_back({function_name(&die, demangle_names), place.file, place.line, inlined});
    if (!inlined) break;
    place = call_place(unit, &die);
  }
  if (frames.empty() && place.line != 0) frames.push_back({{}, place.file, place.line, false});
  return frames;
}

}  // namespace auxtrail::image
