// See rseq.h. Signal safe: raw system calls, no allocation.
#include "unit/rseq.h"

#include <elf.h>
#include <fcntl.h>

#include "unit/sys.h"

namespace auxtrail::unit {
namespace {

struct Sequence {
  uint64_t start;
  uint64_t end;
  uint64_t abort;
  uint64_t key;  // of the module
};
// What the ABI calls struct rseq_cs.
struct Descriptor {
  uint32_t version;
  uint32_t flags;
  uint64_t start_ip;
  uint64_t post_commit_offset;
  uint64_t abort_ip;
};

constexpr size_t kMaxSequences = 512;
Sequence sequences[kMaxSequences];
size_t sequence_count;

bool read_at(int fd, uint64_t offset, void* to, size_t bytes) {
  return sys::call(SYS_pread64, fd, sys::arg(to), static_cast<long>(bytes),
                   static_cast<long>(offset)) == static_cast<long>(bytes);
}

// The difference between addresses in the file and in memory.
bool load_bias(int fd, const Elf64_Ehdr& header, uint64_t start, uint64_t offset, uint64_t* bias) {
  for (uint16_t i = 0; i < header.e_phnum && i < 64; ++i) {
    Elf64_Phdr segment;
    if (!read_at(fd, header.e_phoff + i * sizeof segment, &segment, sizeof segment)) return false;
    if (segment.p_type == PT_LOAD && sys::page_down(segment.p_offset) == offset) {
      *bias = start - sys::page_down(segment.p_vaddr);
      return true;
    }
  }
  return false;
}

// Descriptors come as loaded data of whole descriptors: few sections do.
bool is_data(const Elf64_Shdr& section) {
  return (section.sh_flags & (SHF_ALLOC | SHF_EXECINSTR)) == SHF_ALLOC &&
         section.sh_type == SHT_PROGBITS && section.sh_size != 0 &&
         section.sh_size % sizeof(Descriptor) == 0;
}

bool is_named(int fd, const Elf64_Shdr& names, const Elf64_Shdr& section, const char* expected,
              size_t bytes) {
  char name[16];
  return bytes <= sizeof name && read_at(fd, names.sh_offset + section.sh_name, name, bytes) &&
         __builtin_memcmp(name, expected, bytes) == 0;
}

bool find_section(int fd, const Elf64_Ehdr& header, Elf64_Shdr* found) {
  static constexpr char kName[] = "__rseq_cs";
  Elf64_Shdr names;
  if (header.e_shentsize != sizeof names || header.e_shstrndx >= header.e_shnum) return false;
  if (!read_at(fd, header.e_shoff + header.e_shstrndx * sizeof names, &names, sizeof names)) {
    return false;
  }
  constexpr uint16_t kBlock = 16;
  for (uint16_t first = 0; first < header.e_shnum; first = static_cast<uint16_t>(first + kBlock)) {
    Elf64_Shdr sections[kBlock];
    const auto left = static_cast<uint16_t>(header.e_shnum - first);
    const uint16_t count = left < kBlock ? left : kBlock;
    if (!read_at(fd, header.e_shoff + first * sizeof names, sections, count * sizeof names)) {
      return false;
    }
    for (uint16_t i = 0; i < count; ++i) {
      if (!is_data(sections[i]) || !is_named(fd, names, sections[i], kName, sizeof kName)) continue;
      *found = sections[i];
      return true;
    }
  }
  return false;
}

// The descriptors are read from memory, where their addresses are relocated, through the kernel:
// the section may be unmapped at any time.
bool add_descriptors(uint64_t address, uint64_t bytes, uint64_t key) {
  for (uint64_t at = address; at + sizeof(Descriptor) <= address + bytes;
       at += sizeof(Descriptor)) {
    Descriptor descriptor;
    const struct {
      void* base;
      size_t length;
    } to{&descriptor, sizeof descriptor}, from{reinterpret_cast<void*>(at), sizeof descriptor};
    if (sys::call(SYS_process_vm_readv, sys::getpid(), sys::arg(&to), 1, sys::arg(&from), 1) !=
        sizeof descriptor) {
      return true;
    }
    if (descriptor.start_ip == 0) continue;
    if (sequence_count == kMaxSequences) return false;
    sequences[sequence_count++] = {descriptor.start_ip,
                                   descriptor.start_ip + descriptor.post_commit_offset,
                                   descriptor.abort_ip, key};
  }
  return true;
}

}  // namespace

bool rseq_add_module(const char* path, uint64_t start, uint64_t offset, uint64_t key) {
  bool all = true;
  const long opened = sys::call(SYS_openat, AT_FDCWD, sys::arg(path), O_RDONLY | O_CLOEXEC);
  if (sys::is_error(opened)) return true;
  const int fd = static_cast<int>(opened);
  Elf64_Ehdr header;
  Elf64_Shdr section;
  uint64_t bias = 0;
  if (read_at(fd, 0, &header, sizeof header) &&
      __builtin_memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 &&
      header.e_ident[EI_CLASS] == ELFCLASS64 && find_section(fd, header, &section) &&
      load_bias(fd, header, start, offset, &bias)) {
    all = add_descriptors(section.sh_addr + bias, section.sh_size, key);
  }
  sys::close(fd);
  return all;
}

void rseq_forget(uint64_t start, uint64_t end, uint64_t key) {
  size_t kept = 0;
  for (size_t i = 0; i < sequence_count; ++i) {
    const Sequence& one = sequences[i];
    if (one.key != key || one.start < start || one.start >= end) sequences[kept++] = one;
  }
  sequence_count = kept;
}

uint64_t rseq_abort_of(uint64_t pc) {
  for (size_t i = 0; i < sequence_count; ++i) {
    if (pc >= sequences[i].start && pc < sequences[i].end) return sequences[i].abort;
  }
  return 0;
}

}  // namespace auxtrail::unit
