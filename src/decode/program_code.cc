// Mapping files and sharing what is the same.
#include "decode/program_code.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>

namespace auxtrail::decode {
namespace {

Mapping map_file(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  if (!fd || ::fstat(fd.get(), &status) != 0 || status.st_size <= 0) return {};
  const auto size = static_cast<size_t>(status.st_size);
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  return address == MAP_FAILED ? Mapping() : Mapping(address, size);
}

// Equal strings mean equal code. Bytes, not text: there may be very many sections.
std::string describe(const image::CodeMap& code) {
  std::string bytes;
  const std::string* file = nullptr;
  for (const image::CodeSection& section : code.sections) {
    const std::array<uint64_t, 3> numbers = {section.address, section.size_bytes, section.offset};
    bytes.append(reinterpret_cast<const char*>(numbers.data()), sizeof numbers);
    if (file == nullptr || *file != section.file) bytes += section.file;
    bytes += '\0';
    file = &section.file;
  }
  return bytes;
}

}  // namespace

CodeGraph& ProgramCode::graph(flow::ExecMode mode) {
  const std::lock_guard lock(making_);
  auto& graph = graphs_[static_cast<size_t>(mode) - 1];
  if (!graph) graph = std::make_unique<CodeGraph>(memory_, mode);
  return *graph;
}

std::shared_ptr<const Mapping> ProgramCache::file(const std::string& path) {
  auto& mapping = files_[path];
  if (!mapping) mapping = std::make_shared<const Mapping>(map_file(path));
  return mapping;
}

std::shared_ptr<ProgramCode> ProgramCache::get(const image::CodeMap& code) {
  const std::lock_guard lock(mutex_);
  if (code.id != 0) {
    const auto known = by_id_.find(code.id);
    if (known != by_id_.end()) return known->second;
  }
  if (by_sections_.size() >= kMaxPrograms) {
    by_sections_.clear();
    by_id_.clear();
  }
  auto& program = by_sections_[describe(code)];
  if (!program) program = build(code);
  if (code.id != 0) by_id_[code.id] = program;
  return program;
}

std::shared_ptr<ProgramCode> ProgramCache::build(const image::CodeMap& code) {
  auto program = std::make_shared<ProgramCode>();
  std::shared_ptr<const Mapping> mapping;
  const std::string* path = nullptr;
  for (const image::CodeSection& section : code.sections) {
    if (path == nullptr || *path != section.file) {
      mapping = file(section.file);
      program->files_.push_back(mapping);
    }
    path = &section.file;
    if (section.offset >= mapping->size_bytes()) continue;
    const auto bytes = mapping->bytes().subspan(section.offset);
    const size_t size = std::min<uint64_t>(section.size_bytes, bytes.size());
    program->memory_.add(section.address, {reinterpret_cast<const uint8_t*>(bytes.data()), size});
  }
  return program;
}

}  // namespace auxtrail::decode
