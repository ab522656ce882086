#include "record/elf_probe.h"

#include <elf.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/bytes.h"
#include "base/unique_fd.h"

namespace auxtrail::record {
namespace {

constexpr size_t kMaxHeaders = 4096;
constexpr size_t kMaxPartBytes = 1 << 20;  // interpreter paths are far smaller

// `size` bytes at `offset`, fewer at the end of the file.
std::vector<std::byte> read_part(int fd, uint64_t offset, uint64_t size) {
  std::vector<std::byte> part(std::min<uint64_t>(size, kMaxPartBytes));
  size_t filled = 0;
  while (filled < part.size()) {
    const ssize_t got = ::pread(fd, part.data() + filled, part.size() - filled,
                                static_cast<off_t>(offset + filled));
    if (got <= 0) break;
    filled += static_cast<size_t>(got);
  }
  part.resize(filled);
  return part;
}

// The two classes differ in their structures only.
template <class Ehdr, class Phdr>
Result<ElfFacts> probe_class(int fd, const std::string& path, ElfFacts facts) {
  const auto head = read_part(fd, 0, sizeof(Ehdr));
  ByteReader reader(head);
  const auto header = reader.read<Ehdr>();
  facts.machine = header.e_machine;
  facts.type = header.e_type;
  const size_t count = header.e_phnum;
  const auto table = read_part(fd, header.e_phoff, count * sizeof(Phdr));
  if (reader.failed() || count > kMaxHeaders || table.size() != count * sizeof(Phdr) ||
      (count != 0 && header.e_phentsize != sizeof(Phdr))) {
    return fail({"read program headers", path, "the ELF file is truncated or damaged", ""});
  }
  ByteReader headers(table);
  for (size_t i = 0; i < count; ++i) {
    const auto segment = headers.read<Phdr>();
    if (segment.p_type == PT_INTERP) {
      const auto text = read_part(fd, segment.p_offset, segment.p_filesz);
      facts.interpreter = ByteReader(text).text(text.size());
    }
  }
  return facts;
}

}  // namespace

Result<std::optional<ElfFacts>> probe_elf(const std::string& path) {
  // O_NONBLOCK: a FIFO must not hold us up.
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return fail_errno("open program file", path, errno);
  const auto ident = read_part(fd.get(), 0, EI_NIDENT);
  if (ident.size() < EI_NIDENT || std::memcmp(ident.data(), ELFMAG, SELFMAG) != 0) {
    return std::nullopt;
  }
  ElfFacts facts;
  facts.is_64bit = static_cast<uint8_t>(ident[EI_CLASS]) == ELFCLASS64;
  auto probed = facts.is_64bit ? probe_class<Elf64_Ehdr, Elf64_Phdr>(fd.get(), path, facts)
                               : probe_class<Elf32_Ehdr, Elf32_Phdr>(fd.get(), path, facts);
  if (!probed) return fail(std::move(probed).error());
  return std::optional<ElfFacts>(std::move(*probed));
}

}  // namespace auxtrail::record
