#include "cli/decode_inputs.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "image/elf_file.h"

namespace auxtrail::cli {
namespace {

constexpr uint64_t kPageBytes = 4096;

Result<Mapping> map_file(std::string_view what, const std::string& path) {
  // Not to wait for the writer of a FIFO.
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (!fd || ::fstat(fd.get(), &status) != 0) {
    return fail_errno(fmt::format("open the {}", what), path, errno);
  }
  const auto refuse = [&](std::string why, std::string fix) {
    return fail({fmt::format("open the {}", what), path, std::move(why), std::move(fix)});
  };
  if (!S_ISREG(status.st_mode)) return refuse("not a regular file", "copy the data into one");
  if (status.st_size == 0) return refuse("the file is empty", "");
  const auto size = static_cast<size_t>(status.st_size);
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (address == MAP_FAILED) return fail_errno(fmt::format("map the {}", what), path, errno);
  return Mapping(address, size);
}

// The range's end, which must lie in the file.
Result<uint64_t> checked_end(std::string_view what, const FileRange& range, uint64_t file_bytes) {
  const uint64_t end = range.to.value_or(file_bytes);
  if (range.from < end && end <= file_bytes) return end;
  return fail({fmt::format("read the {}", what), range.path,
               fmt::format("the range {:#x}-{:#x} is not in the file, which has {:#x} bytes",
                           range.from, end, file_bytes),
               "give a range within it"});
}

void add_section(image::CodeMap& map, image::CodeSection section) {
  // Pages that follow each other, here and in the file, are one piece of code.
  if (!map.sections.empty()) {
    image::CodeSection& last = map.sections.back();
    if (last.file == section.file && last.address + last.size_bytes == section.address &&
        last.offset + last.size_bytes == section.offset) {
      last.size_bytes += section.size_bytes;
      return;
    }
  }
  map.sections.push_back(std::move(section));
}

Status add_raw(const RawCode& code, image::CodeMap& map) {
  AUXTRAIL_ASSIGN(const Mapping file, map_file("code", code.file.path));
  AUXTRAIL_ASSIGN(const uint64_t end, checked_end("code", code.file, file.size_bytes()));
  map.sections.push_back({code.file.path, code.file.from, end - code.file.from, code.address});
  return {};
}

Status add_elf(const ElfCode& code, image::CodeMap& map) {
  AUXTRAIL_ASSIGN(const image::ElfFacts facts, image::read_elf_facts(code.path));
  if (!facts.is_elf) {
    return fail({"read the code", code.path, "not an ELF file",
                 "give bytes without a format with --raw FILE:ADDRESS"});
  }
  uint64_t lowest = std::numeric_limits<uint64_t>::max();
  for (const image::ElfSegment& segment : facts.segments) {
    lowest = std::min(lowest, segment.address);
  }
  size_t added = 0;
  for (const image::ElfSegment& segment : facts.segments) {
    if (segment.size_bytes == 0 || segment.offset >= facts.size_bytes) continue;
    const uint64_t address = code.base ? segment.address - lowest + *code.base : segment.address;
    map.sections.push_back({code.path, segment.offset, segment.size_bytes, address});
    ++added;
  }
  if (added != 0) return {};
  return fail({"read the code", code.path, "the ELF file has no loadable segments",
               "give a program or a library, not an object file or its debug information"});
}

Status add_pages(const PagesCode& code, image::CodeMap& map) {
  AUXTRAIL_ASSIGN(const Mapping addresses, map_file("page addresses", code.addresses));
  AUXTRAIL_ASSIGN(const Mapping dump, map_file("pages", code.dump));
  const size_t count = addresses.size_bytes() / sizeof(uint64_t);
  if (addresses.size_bytes() % sizeof(uint64_t) != 0 || count * kPageBytes != dump.size_bytes()) {
    return fail({"read the pages", code.dump,
                 fmt::format("{} holds {} bytes, which is not 8 for each of {} bytes' pages of "
                             "{}",
                             code.addresses, addresses.size_bytes(), dump.size_bytes(), kPageBytes),
                 "give the dump and the addresses that belong together, as ADDRESSES:DUMP"});
  }
  for (size_t page = 0; page < count; ++page) {
    uint64_t address = 0;
    std::memcpy(&address, addresses.data() + page * sizeof(address), sizeof(address));
    add_section(map, {code.dump, page * kPageBytes, kPageBytes, address});
  }
  return {};
}

}  // namespace

Result<TraceFile> TraceFile::open(const FileRange& range) {
  TraceFile file;
  AUXTRAIL_ASSIGN(file.mapping_, map_file("trace", range.path));
  AUXTRAIL_ASSIGN(const uint64_t end, checked_end("trace", range, file.mapping_.size_bytes()));
  file.bytes_ = file.mapping_.bytes().subspan(range.from, end - range.from);
  return file;
}

Result<image::CodeMap> open_code(const DecodeArguments& arguments) {
  image::CodeMap map;
  map.id = 1;
  for (const ElfCode& code : arguments.elf) AUXTRAIL_TRY(add_elf(code, map));
  for (const PagesCode& code : arguments.pages) AUXTRAIL_TRY(add_pages(code, map));
  for (const RawCode& code : arguments.raw) AUXTRAIL_TRY(add_raw(code, map));
  return map;
}

}  // namespace auxtrail::cli
