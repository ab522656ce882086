// libelf behind ElfFile.
#include "image/elf_file.h"

#include <elfutils/libdwelf.h>
#include <fcntl.h>
#include <gelf.h>
#include <sys/stat.h>

#include <memory>

#include "base/unique_fd.h"

namespace auxtrail::image {
namespace {

struct ElfEnd {
  void operator()(Elf* elf) const { elf_end(elf); }
};
using ElfHandle = std::unique_ptr<Elf, ElfEnd>;

BuildId build_id_of(Elf* elf) {
  const void* bytes = nullptr;
  const ssize_t size_bytes = dwelf_elf_gnu_build_id(elf, &bytes);
  if (size_bytes <= 0) return {};
  const auto* first = static_cast<const uint8_t*>(bytes);
  return {first, first + size_bytes};
}

std::vector<ElfSegment> segments_of(Elf* elf) {
  std::vector<ElfSegment> segments;
  size_t count = 0;
  if (elf_getphdrnum(elf, &count) != 0) return segments;
  for (size_t i = 0; i < count; ++i) {
    GElf_Phdr header;
    if (gelf_getphdr(elf, static_cast<int>(i), &header) == nullptr) continue;
    if (header.p_type != PT_LOAD) continue;
    segments.push_back({header.p_offset, header.p_filesz, header.p_vaddr});
  }
  return segments;
}

ElfFacts facts_of(Elf* elf, uint64_t size_bytes) {
  ElfFacts facts;
  facts.size_bytes = size_bytes;
  facts.is_elf = elf != nullptr && elf_kind(elf) == ELF_K_ELF;
  if (!facts.is_elf) return facts;
  facts.build_id = build_id_of(elf);
  facts.segments = segments_of(elf);
  return facts;
}

}  // namespace

Result<ElfFacts> read_elf_facts(const std::string& path) {
  elf_version(EV_CURRENT);
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) return fail_errno("open", path, errno);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return fail_errno("stat", path, errno);
  if (!S_ISREG(status.st_mode)) return fail({"open", path, "not a regular file", ""});
  const ElfHandle elf(elf_begin(file.get(), ELF_C_READ_MMAP, nullptr));
  return facts_of(elf.get(), static_cast<uint64_t>(status.st_size));
}

Result<ElfFacts> read_elf_facts(char* image, size_t size_bytes) {
  elf_version(EV_CURRENT);
  const ElfHandle elf(elf_memory(image, size_bytes));
  if (!elf) return fail({"read ELF image", "", elf_errmsg(-1), ""});
  return facts_of(elf.get(), size_bytes);
}

}  // namespace auxtrail::image
