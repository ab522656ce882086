// See state.h.
#include "state.h"

#include <elf.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <fstream>

namespace auxtrail::lockstep {
namespace {

constexpr uint64_t kDebuggerFlags = 0x100 | 0x10000;  // TF, RF
constexpr uint64_t kBelowThreadPointer = 4096;  // where static TLS of preloaded libraries lies
constexpr size_t kMaxMessages = 12;

struct NamedRegister {
  const char* name;
  unsigned long long Registers::*member;
};
constexpr NamedRegister kRegisters[] = {{"rip", &Registers::rip},
                                        {"rax", &Registers::rax},
                                        {"rbx", &Registers::rbx},
                                        {"rcx", &Registers::rcx},
                                        {"rdx", &Registers::rdx},
                                        {"rsi", &Registers::rsi},
                                        {"rdi", &Registers::rdi},
                                        {"rbp", &Registers::rbp},
                                        {"rsp", &Registers::rsp},
                                        {"r8", &Registers::r8},
                                        {"r9", &Registers::r9},
                                        {"r10", &Registers::r10},
                                        {"r11", &Registers::r11},
                                        {"r12", &Registers::r12},
                                        {"r13", &Registers::r13},
                                        {"r14", &Registers::r14},
                                        {"r15", &Registers::r15},
                                        {"fs_base", &Registers::fs_base},
                                        {"gs_base", &Registers::gs_base},
                                        {"cs", &Registers::cs},
                                        {"ss", &Registers::ss},
                                        {"ds", &Registers::ds},
                                        {"es", &Registers::es},
                                        {"fs", &Registers::fs},
                                        {"gs", &Registers::gs}};

// Bytes of the XSAVE area that are no state: x87 FOP, FIP, FDP; the kernel's words for user space;
// XSTATE_BV, which only says what is stored, not its value (components that are not stored read as
// their initial values here).
bool IsIgnoredExtended(size_t offset) {
  return (offset >= 6 && offset < 24) || (offset >= 464 && offset < 528);
}

uint64_t TlsBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  Elf64_Ehdr header{};
  file.read(reinterpret_cast<char*>(&header), sizeof header);
  for (unsigned i = 0; file && i < header.e_phnum; ++i) {
    Elf64_Phdr segment{};
    file.seekg(static_cast<std::streamoff>(header.e_phoff + i * sizeof segment));
    file.read(reinterpret_cast<char*>(&segment), sizeof segment);
    if (segment.p_type == PT_TLS) return segment.p_memsz;
  }
  Die("no TLS segment in " + path);
}

}  // namespace

std::vector<std::string> CompareRegisters(const Registers& traced, const Registers& plain) {
  std::vector<std::string> messages;
  for (const auto& [name, member] : kRegisters) {
    if (traced.*member != plain.*member) {
      messages.push_back(
          fmt::format("{}: traced {:#x}, plain {:#x}", name, traced.*member, plain.*member));
    }
  }
  const uint64_t flags = (traced.eflags ^ plain.eflags) & ~kDebuggerFlags;
  if (flags != 0) {
    messages.push_back(fmt::format("flags: traced {:#x}, plain {:#x}, differing bits {:#x}",
                                   traced.eflags, plain.eflags, flags));
  }
  return messages;
}

std::vector<std::string> CompareExtended(std::span<const std::byte> traced,
                                         std::span<const std::byte> plain) {
  std::vector<std::string> messages;
  if (traced.size() != plain.size()) return {"extended state: sizes differ"};
  for (size_t i = 0; i < traced.size() && messages.size() < kMaxMessages; ++i) {
    if (traced[i] == plain[i] || IsIgnoredExtended(i)) continue;
    messages.push_back(fmt::format("extended state, byte {}: traced {:02x}, plain {:02x}", i,
                                   static_cast<unsigned>(traced[i]),
                                   static_cast<unsigned>(plain[i])));
  }
  return messages;
}

MemoryComparison::MemoryComparison(const std::string& unit_path)
    : unit_tls_bytes_(TlsBytes(unit_path)) {}

bool MemoryComparison::is_unit_block(uint64_t address, uint64_t thread_pointer) {
  if (address >= thread_pointer || thread_pointer - address > kBelowThreadPointer) return false;
  const uint64_t start = block_end_ == 0 ? address : std::min(block_start_, address);
  const uint64_t end = std::max(block_end_, address + 1);
  if (end - start > unit_tls_bytes_) return false;
  block_start_ = start;
  block_end_ = end;
  return true;
}

std::vector<std::string> MemoryComparison::compare(const Tracee& traced, const Tracee& plain,
                                                   const std::vector<MapLine>& lines,
                                                   const Registers& registers) {
  std::vector<std::string> messages;
  for (const auto& line : lines) {
    uint64_t start = line.start;
    if (line.contains(registers.rsp))
      start = std::max<uint64_t>(start, registers.rsp - kRedZoneBytes);
    const size_t size = line.end - start;
    traced_bytes_.assign(size, std::byte{});
    plain_bytes_.assign(size, std::byte{});
    const size_t got_traced = traced.read(start, traced_bytes_);
    const size_t got_plain = plain.read(start, plain_bytes_);
    bytes_compared_ += got_plain;
    if (got_traced != got_plain) {
      messages.push_back(fmt::format("memory {:#x}-{:#x} {}: readable {} and {} bytes", start,
                                     line.end, line.path, got_traced, got_plain));
    }
    if (std::memcmp(traced_bytes_.data(), plain_bytes_.data(), size) == 0) continue;
    for (size_t i = 0; i < size && messages.size() < kMaxMessages; ++i) {
      if (traced_bytes_[i] == plain_bytes_[i]) continue;
      if (is_unit_block(start + i, registers.fs_base)) continue;
      messages.push_back(fmt::format("memory {:#x} ({}): traced {:02x}, plain {:02x}", start + i,
                                     line.path.empty() ? "anonymous" : line.path,
                                     static_cast<unsigned>(traced_bytes_[i]),
                                     static_cast<unsigned>(plain_bytes_[i])));
    }
  }
  return messages;
}

}  // namespace auxtrail::lockstep
