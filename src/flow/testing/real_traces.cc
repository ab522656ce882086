#include "flow/testing/real_traces.h"

#include <elf.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <span>

#include "pt/testing/ptt_cases.h"

namespace auxtrail::flow::test {
namespace {

std::string file_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::vector<std::byte> file_bytes(const std::filesystem::path& path) {
  const std::string text = file_text(path);
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

// STEM.addr holds u64 page addresses; page i of STEM.dump lies at the i-th.
std::vector<FileSection> page_dump(const std::filesystem::path& stem) {
  constexpr uint64_t kPageBytes = 4096;
  const std::string addresses = file_text(stem.string() + ".addr");
  std::vector<FileSection> sections;
  for (size_t page = 0; (page + 1) * 8 <= addresses.size(); ++page) {
    uint64_t address = 0;
    std::memcpy(&address, addresses.data() + page * 8, 8);
    sections.push_back({stem.string() + ".dump", page * kPageBytes, kPageBytes, address});
  }
  return sections;
}

void add_elf(std::vector<FileSection>& sections, const std::filesystem::path& path,
             uint64_t load_address) {
  const std::string elf = file_text(path);
  Elf64_Ehdr header{};
  std::memcpy(&header, elf.data(), sizeof(header));
  for (size_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment{};
    std::memcpy(&segment, elf.data() + header.e_phoff + i * sizeof(segment), sizeof(segment));
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_X) == 0) continue;
    const uint64_t base = header.e_type == ET_DYN ? load_address : 0;
    sections.push_back({path.string(), segment.p_offset, segment.p_filesz, base + segment.p_vaddr});
  }
}

struct KvmFiles {
  const char* title;
  const char* trace;
  const char* pages;
  uint64_t filter_start;
  uint64_t filter_end;
};

constexpr KvmFiles kKvmFiles[] = {
    {"Unzip", "trace", "data", 0x400000, 0x427000},
    {"foo", "trace", "data", 0x7ffff7819000, 0x7ffff79ca000},
    {"avscript_32", "failed_trace_12709_1", "page_cache", 0x1000, 0x7ffffffff000},
    {"dyn_test", "sample_raw_0", "page_cache", 0x1000, 0x7ffffffff000},
};

}  // namespace

CodeMemory RealTrace::code(std::deque<std::vector<uint8_t>>& code_storage) const {
  CodeMemory memory;
  std::string file;
  std::string text;
  for (const FileSection& section : sections) {
    if (section.file != file) text = file_text(file = section.file);
    if (section.offset >= text.size()) continue;
    const std::string bytes = text.substr(section.offset, section.size_bytes);
    code_storage.emplace_back(bytes.begin(), bytes.end());
    memory.add(section.address, code_storage.back());
  }
  return memory;
}

pt::TraceConfig RealTrace::config(bool with_errata) const {
  pt::TraceConfig config;
  if (with_errata) (void)pt::errata_of(cpu, config.errata);
  if (filter_end != 0) {
    config.ranges[0] = {pt::AddressRange::Kind::kFilter, filter_start, filter_end};
  }
  return config;
}

RealTrace kvm_trace(const std::string& title) {
  RealTrace real;
  real.title = title;
  const auto folder = pt::test::data_directory() / "kvm_pt" / title;
  if (!std::filesystem::exists(folder)) {
    real.obstacle = "no " + folder.string();
    return real;
  }
  for (const KvmFiles& files : kKvmFiles) {
    if (title != files.title) continue;
    real.trace = file_bytes(folder / files.trace);
    real.sections = page_dump(folder / files.pages);
    real.filter_start = files.filter_start;
    real.filter_end = files.filter_end;
  }
  real.cpu = {true, 6, 94, 0};
  return real;
}

RealTrace perf_trace(const std::string& title) {
  RealTrace real;
  real.title = title;
  const auto folder = pt::test::data_directory() / "perf_pt" / title;
  if (!std::filesystem::exists(folder)) {
    real.obstacle = "no " + folder.string();
    return real;
  }
  add_elf(real.sections, folder / "a.out", 0);
  if (title == "intelpt-trace") {
    real.trace = file_bytes(folder / "3842849.trace");
  } else {
    real.trace = file_bytes(folder / "multi-file.trace");
    add_elf(real.sections, folder / "libfoo.so", 0x7ffff7bd9000);
    add_elf(real.sections, folder / "libbar.so", 0x7ffff79d7000);
  }
  real.cpu = {true, 6, 79, 1};
  return real;
}

}  // namespace auxtrail::flow::test
