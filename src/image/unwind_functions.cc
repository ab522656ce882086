// Reading .eh_frame_hdr.
#include "image/unwind_functions.h"

#include <fmt/format.h>
#include <gelf.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string_view>

namespace auxtrail::image {
namespace {

// How the header's fields are encoded, always so by GNU ld, gold and lld.
constexpr uint8_t kVersion = 1;
constexpr uint8_t kFramePointerForm = 0x1b;  // DW_EH_PE_pcrel | sdata4
constexpr uint8_t kCountForm = 0x03;         // DW_EH_PE_udata4
constexpr uint8_t kTableForm = 0x3b;         // DW_EH_PE_datarel | sdata4
constexpr size_t kTableOffset = 12;
constexpr size_t kEntryBytes = 8;  // the function's start, its FDE; both from the section's start

struct Code {
  uint64_t start = 0;
  uint64_t end = 0;
};

struct Sections {
  std::span<const std::byte> header;  // .eh_frame_hdr
  uint64_t header_address = 0;
  std::vector<Code> code;  // sorted
};

Sections read_sections(Elf* elf) {
  Sections sections;
  size_t names_index = 0;
  if (elf == nullptr || elf_getshdrstrndx(elf, &names_index) != 0) return sections;
  for (Elf_Scn* scn = elf_nextscn(elf, nullptr); scn != nullptr; scn = elf_nextscn(elf, scn)) {
    GElf_Shdr header;
    if (gelf_getshdr(scn, &header) == nullptr || header.sh_type == SHT_NOBITS) continue;
    if ((header.sh_flags & SHF_EXECINSTR) != 0) {
      sections.code.push_back({header.sh_addr, header.sh_addr + header.sh_size});
    }
    const char* name = elf_strptr(elf, names_index, header.sh_name);
    if (name == nullptr || std::string_view(name) != ".eh_frame_hdr") continue;
    const Elf_Data* data = elf_rawdata(scn, nullptr);
    if (data == nullptr || data->d_buf == nullptr) continue;
    sections.header = {static_cast<const std::byte*>(data->d_buf), data->d_size};
    sections.header_address = header.sh_addr;
  }
  std::sort(sections.code.begin(), sections.code.end(),
            [](const Code& a, const Code& b) { return a.start < b.start; });
  return sections;
}

template <class T>
T load(std::span<const std::byte> bytes, size_t offset) {
  T value{};
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

bool has_usual_form(std::span<const std::byte> header) {
  return header.size() >= kTableOffset && load<uint8_t>(header, 0) == kVersion &&
         load<uint8_t>(header, 1) == kFramePointerForm && load<uint8_t>(header, 2) == kCountForm &&
         load<uint8_t>(header, 3) == kTableForm;
}

std::vector<uint64_t> read_starts(const Sections& sections) {
  std::vector<uint64_t> starts;
  if (!has_usual_form(sections.header)) return starts;
  const size_t room = (sections.header.size() - kTableOffset) / kEntryBytes;
  const size_t count = std::min<size_t>(load<uint32_t>(sections.header, 8), room);
  starts.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const auto distance = load<int32_t>(sections.header, kTableOffset + i * kEntryBytes);
    starts.push_back(sections.header_address + static_cast<uint64_t>(int64_t{distance}));
  }
  std::sort(starts.begin(), starts.end());
  starts.erase(std::unique(starts.begin(), starts.end()), starts.end());
  return starts;
}

// The end of the code section that holds `address`; `address` itself if none does.
uint64_t section_end(const std::vector<Code>& code, uint64_t address) {
  for (const Code& section : code) {
    if (address >= section.start && address < section.end) return section.end;
  }
  return address;
}

}  // namespace

std::vector<Function> read_unwind_functions(Elf* elf, const Dso* dso) {
  const Sections sections = read_sections(elf);
  const std::vector<uint64_t> starts = read_starts(sections);
  std::vector<Function> functions;
  for (size_t i = 0; i < starts.size(); ++i) {
    uint64_t end = section_end(sections.code, starts[i]);
    if (i + 1 < starts.size()) end = std::min(end, starts[i + 1]);
    if (end <= starts[i]) continue;
    Function function;
    function.name = fmt::format("[{}+{:#x}]", dso->short_name(), starts[i]);
    function.raw_name = function.name;
    function.dso = dso;
    function.address = starts[i];
    function.size_bytes = end - starts[i];
    functions.push_back(std::move(function));
  }
  return functions;
}

}  // namespace auxtrail::image
