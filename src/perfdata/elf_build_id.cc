#include "perfdata/elf_build_id.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cstring>

#include "base/bytes.h"
#include "base/unique_fd.h"

namespace auxtrail::perfdata {
namespace {

using Bytes = std::span<const std::byte>;

size_t align4(size_t size) { return (size + 3) & ~size_t{3}; }

// The description of the GNU build-id note among the notes of one segment.
std::optional<std::vector<std::byte>> find_note(Bytes notes) {
  ByteReader in(notes);
  while (in.remaining() >= sizeof(Elf64_Nhdr)) {
    const auto note = in.read<Elf64_Nhdr>();
    const auto name = in.take(align4(note.n_namesz));
    const auto description = in.take(align4(note.n_descsz));
    if (in.failed()) return std::nullopt;
    const bool gnu = note.n_namesz == 4 && std::memcmp(name.data(), "GNU", 4) == 0;
    if (gnu && note.n_type == NT_GNU_BUILD_ID && note.n_descsz >= 1 && note.n_descsz <= 20) {
      return std::vector<std::byte>(description.begin(), description.begin() + note.n_descsz);
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::vector<std::byte>> elf_build_id(Bytes image) {
  ByteReader in(image);
  const auto header = in.read<Elf64_Ehdr>();
  if (in.failed() || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
      header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phoff > image.size()) {
    return std::nullopt;
  }
  ByteReader segments(image.subspan(header.e_phoff));
  for (unsigned at = 0; at < header.e_phnum; ++at) {
    const auto segment = segments.read<Elf64_Phdr>();
    if (segments.failed()) return std::nullopt;
    if (segment.p_type != PT_NOTE || segment.p_offset > image.size() ||
        segment.p_filesz > image.size() - segment.p_offset) {
      continue;
    }
    if (auto id = find_note(image.subspan(segment.p_offset, segment.p_filesz))) return id;
  }
  return std::nullopt;
}

std::optional<std::vector<std::byte>> elf_build_id(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (!fd || ::fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_size <= 0) {
    return std::nullopt;
  }
  const auto size = static_cast<size_t>(info.st_size);
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (address == MAP_FAILED) return std::nullopt;
  const Mapping mapping(address, size);
  return elf_build_id(mapping.bytes());
}

}  // namespace auxtrail::perfdata
