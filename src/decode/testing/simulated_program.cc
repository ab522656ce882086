// The templates that code is made of, and how sections are laid out and linked.
#include "decode/testing/simulated_program.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string_view>

namespace auxtrail::decode::testing {
namespace {

using flow::ExecMode;
using namespace std::string_view_literals;

// `weight` is how often it is taken, relative to the others. A displacement is at the end.
struct Template {
  SimOp op;
  uint8_t weight;
  uint8_t displacement_bytes;
  std::string_view bytes;
};

constexpr std::array kCommon = {
    Template{SimOp::kOther, 20, 0, "\x90"sv},
    Template{SimOp::kOther, 8, 0, "\x66\x90"sv},
    Template{SimOp::kOther, 8, 0, "\x89\xd8"sv},
    Template{SimOp::kOther, 8, 0, "\x83\xc0\x01"sv},
    Template{SimOp::kOther, 6, 0, "\xf7\xd8"sv},
    Template{SimOp::kOther, 4, 0, "\xf6\xc1\x01"sv},      // test: group 3 with an immediate
    Template{SimOp::kOther, 4, 0, "\xc8\x10\x00\x01"sv},  // enter: two immediates
    Template{SimOp::kOther, 4, 0, "\xf3\xa4"sv},
    Template{SimOp::kConditional, 30, 1, "\x74\0"sv},
    Template{SimOp::kConditional, 14, 1, "\x7f\0"sv},
    Template{SimOp::kConditional, 4, 1, "\x2e\x75\0"sv},
    Template{SimOp::kConditional, 4, 1, "\xe2\0"sv},  // loop
    Template{SimOp::kConditional, 4, 1, "\xe3\0"sv},
    Template{SimOp::kJump, 14, 1, "\xeb\0"sv},
    Template{SimOp::kReturn, 16, 0, "\xc3"sv},
    Template{SimOp::kReturn, 3, 0, "\xc2\x08\x00"sv},
    Template{SimOp::kReturn, 2, 0, "\xf3\xc3"sv},
    Template{SimOp::kJumpIndirect, 8, 0, "\xff\xe0"sv},
    Template{SimOp::kCallIndirect, 10, 0, "\xff\xd3"sv},
    Template{SimOp::kSyscall, 2, 0, "\xcd\x80"sv},
    Template{SimOp::kFar, 1, 0, "\xcc"sv},
    Template{SimOp::kFar, 2, 0, "\xcf"sv},  // iret
    Template{SimOp::kFar, 1, 0, "\xcb"sv},
    Template{SimOp::kFar, 1, 0, "\xca\x04\x00"sv},
    Template{SimOp::kMovToCr3, 2, 0, "\x0f\x22\xd8"sv},
    Template{SimOp::kMwait, 1, 0, "\x0f\x01\xc9"sv},
};

constexpr std::array k64 = {
    Template{SimOp::kOther, 8, 0, "\x0f\x1f\x44\x00\x00"sv},
    Template{SimOp::kOther, 4, 0, "\x66\x0f\x1f\x84\x00\0\0\0\0"sv},
    Template{SimOp::kOther, 3, 0, "\x66\x66\x2e\x0f\x1f\x84\x00\0\0\0\0"sv},
    Template{SimOp::kOther, 6, 0, "\x48\x8b\x05\x10\x20\x30\x40"sv},
    Template{SimOp::kOther, 4, 0, "\x48\xb8\xe8\x01\x02\x03\x04\x05\x06\x07"sv},
    Template{SimOp::kOther, 3, 0, "\x66\x05\x34\x12"sv},
    Template{SimOp::kOther, 3, 0, "\x48\x05\x78\x56\x34\x12"sv},
    Template{SimOp::kOther, 3, 0, "\x66\x48\x05\x78\x56\x34\x12"sv},  // REX.W wins
    Template{SimOp::kOther, 3, 0, "\x64\x48\x8b\x04\x25\x28\0\0\0"sv},
    Template{SimOp::kOther, 3, 0, "\x8d\x84\x24\x80\0\0\0"sv},
    Template{SimOp::kOther, 2, 0, "\xa0\x01\x02\x03\x04\x05\x06\x07\x08"sv},
    Template{SimOp::kOther, 2, 0, "\x67\xa0\x01\x02\x03\x04"sv},
    Template{SimOp::kOther, 3, 0, "\xf3\x0f\x1e\xfa"sv},
    Template{SimOp::kOther, 2, 0, "\xf0\x48\x0f\xb1\x0b"sv},
    Template{SimOp::kOther, 2, 0, "\x66\x0f\x3a\x0f\xc1\x08"sv},
    Template{SimOp::kOther, 2, 0, "\xc5\xf8\x77"sv},
    Template{SimOp::kOther, 2, 0, "\xc4\xe3\x7d\x39\xc1\x01"sv},
    Template{SimOp::kOther, 2, 0, "\x62\xf1\x7c\x48\x28\xc1"sv},
    Template{SimOp::kOther, 2, 0, "\x62\xf1\x7c\x48\x28\x84\x88\x01\x02\x03\x04"sv},
    Template{SimOp::kConditional, 14, 4, "\x0f\x84\0\0\0\0"sv},
    Template{SimOp::kConditional, 2, 4, "\x3e\x0f\x8f\0\0\0\0"sv},
    Template{SimOp::kJump, 8, 4, "\xe9\0\0\0\0"sv},
    Template{SimOp::kJump, 2, 4, "\xf2\xe9\0\0\0\0"sv},
    Template{SimOp::kCall, 24, 4, "\xe8\0\0\0\0"sv},
    Template{SimOp::kCall, 2, 4, "\x48\xe8\0\0\0\0"sv},
    Template{SimOp::kReturn, 1, 0, "\xf2\xc3"sv},
    Template{SimOp::kJumpIndirect, 3, 0, "\xff\x25\x10\0\0\0"sv},
    Template{SimOp::kJumpIndirect, 2, 0, "\x3e\x41\xff\xe3"sv},
    Template{SimOp::kCallIndirect, 3, 0, "\xff\x15\x10\0\0\0"sv},
    Template{SimOp::kCallIndirect, 2, 0, "\x41\xff\x14\x24"sv},
    Template{SimOp::kSyscall, 4, 0, "\x0f\x05"sv},
    Template{SimOp::kSyscall, 1, 0, "\x0f\x34"sv},
    Template{SimOp::kFar, 2, 0, "\x48\xcf"sv},
    Template{SimOp::kFar, 2, 0, "\x48\x0f\x07"sv},
    Template{SimOp::kFar, 1, 0, "\x0f\x35"sv},
    Template{SimOp::kFar, 1, 0, "\xff\x18"sv},
    Template{SimOp::kFar, 1, 0, "\xff\x6c\x24\x08"sv},
    Template{SimOp::kFar, 1, 0, "\x0f\x01\xc1"sv},  // vmcall
    Template{SimOp::kFar, 1, 0, "\x0f\x01\xc3"sv},  // vmresume
    Template{SimOp::kPtwrite, 3, 0, "\xf3\x0f\xae\xe0"sv},
    Template{SimOp::kPtwrite, 2, 0, "\xf3\x48\x0f\xae\x64\x24\x08"sv},
    Template{SimOp::kVmptrld, 1, 0, "\x0f\xc7\x30"sv},
    Template{SimOp::kXbegin, 2, 4, "\xc7\xf8\0\0\0\0"sv},
    Template{SimOp::kXend, 2, 0, "\x0f\x01\xd5"sv},
    Template{SimOp::kXabort, 1, 0, "\xc6\xf8\x01"sv},
};

constexpr std::array k32 = {
    Template{SimOp::kOther, 8, 0, "\x40"sv},  // inc, not a prefix
    Template{SimOp::kOther, 4, 0, "\xa1\x01\x02\x03\x04"sv},
    Template{SimOp::kOther, 3, 0, "\x67\xa1\x01\x02"sv},
    Template{SimOp::kOther, 3, 0, "\x8b\x05\x10\x20\x30\x40"sv},
    Template{SimOp::kOther, 3, 0, "\x67\x8b\x06\x10\x20"sv},
    Template{SimOp::kOther, 3, 0, "\x66\x05\x34\x12"sv},
    Template{SimOp::kOther, 3, 0, "\x05\x78\x56\x34\x12"sv},
    Template{SimOp::kOther, 2, 0, "\xc5\x00"sv},          // lds
    Template{SimOp::kOther, 2, 0, "\x62\x44\x24\x08"sv},  // bound
    Template{SimOp::kOther, 2, 0, "\xc5\xf8\x77"sv},
    Template{SimOp::kConditional, 14, 4, "\x0f\x84\0\0\0\0"sv},
    Template{SimOp::kJump, 8, 4, "\xe9\0\0\0\0"sv},
    Template{SimOp::kCall, 24, 4, "\xe8\0\0\0\0"sv},
    Template{SimOp::kFar, 1, 0, "\x9a\x01\x02\x03\x04\x33\x00"sv},
    Template{SimOp::kFar, 1, 0, "\xea\x01\x02\x03\x04\x33\x00"sv},
    Template{SimOp::kPtwrite, 3, 0, "\xf3\x0f\xae\x20"sv},
    Template{SimOp::kXbegin, 2, 4, "\xc7\xf8\0\0\0\0"sv},
    Template{SimOp::kXend, 2, 0, "\x0f\x01\xd5"sv},
};

constexpr std::array k16 = {
    Template{SimOp::kOther, 8, 0, "\x40"sv},
    Template{SimOp::kOther, 4, 0, "\xb8\x01\x02"sv},
    Template{SimOp::kOther, 4, 0, "\x66\xb8\x01\x02\x03\x04"sv},
    Template{SimOp::kOther, 3, 0, "\x8b\x46\x10"sv},
    Template{SimOp::kOther, 3, 0, "\x8b\x06\x10\x20"sv},
    Template{SimOp::kOther, 3, 0, "\x67\x8b\x84\x24\x10\x20\x30\x40"sv},
    Template{SimOp::kOther, 2, 0, "\xa1\x01\x02"sv},
    Template{SimOp::kConditional, 10, 2, "\x0f\x84\0\0"sv},
    Template{SimOp::kConditional, 4, 4, "\x66\x0f\x84\0\0\0\0"sv},
    Template{SimOp::kJump, 8, 2, "\xe9\0\0"sv},
    Template{SimOp::kCall, 20, 2, "\xe8\0\0"sv},
    Template{SimOp::kCall, 3, 4, "\x66\xe8\0\0\0\0"sv},
    Template{SimOp::kFar, 1, 0, "\x9a\x01\x02\x33\x00"sv},
    Template{SimOp::kFar, 1, 0, "\xea\x01\x02\x33\x00"sv},
};

// How sections end, so that nothing falls out of them.
constexpr std::array kEnds = {
    Template{SimOp::kReturn, 2, 0, "\xc3"sv},
    Template{SimOp::kJumpIndirect, 2, 0, "\xff\xe0"sv},
    Template{SimOp::kFar, 1, 0, "\xcf"sv},
};

const Template& pick(std::span<const Template> templates, Random& random) {
  size_t sum = 0;
  for (const Template& entry : templates) sum += entry.weight;
  size_t place = random.below(sum);
  for (const Template& entry : templates) {
    if (place < entry.weight) return entry;
    place -= entry.weight;
  }
  return templates.front();
}

std::span<const Template> templates_of(ExecMode mode) {
  if (mode == ExecMode::k64) return k64;
  if (mode == ExecMode::k32) return k32;
  return k16;
}

bool fits(int64_t displacement, size_t bytes) {
  const int unused = static_cast<int>(64 - 8 * bytes);
  return displacement ==
         static_cast<int64_t>(static_cast<uint64_t>(displacement) << unused) >> unused;
}

}  // namespace

SimulatedProgram::SimulatedProgram(uint64_t seed) {
  Random random(seed);
  constexpr std::array<uint64_t, 4> kBases = {0x401000, 0x5555'5555'4000, 0x7fff'f781'9000,
                                              0xffff'ffff'8100'0000};
  const size_t first_base = random.below(kBases.size());
  const size_t count = random.between(1, 3);
  for (size_t i = 0; i < count; ++i) {
    const uint64_t base = kBases[(first_base + i) % kBases.size()] + random.below(0x1000);
    add_section(base, ExecMode::k64, random);
    // A neighbour that direct branches reach, sometimes right behind.
    if (random.one_in(2)) {
      const uint64_t gap = random.one_in(3) ? 0 : random.below(0x20000);
      add_section(base + sections_.back().bytes.size() + gap, ExecMode::k64, random);
    }
  }
  if (random.percent(40)) add_section(0x80'0000 + random.below(0x1000), ExecMode::k32, random);
  if (random.percent(25)) add_section(0x2000 + random.below(0x1000), ExecMode::k16, random);
  link(random);
  write_file(random, seed | 1);
}

void SimulatedProgram::add_section(uint64_t address, ExecMode mode, Random& random) {
  SimSection section;
  section.address = address;
  section.mode = mode;
  section.first = static_cast<uint32_t>(insns_.size());
  const size_t count = random.one_in(8) ? random.between(200, 600) : random.between(10, 100);
  for (size_t i = 0; i < count; ++i) {
    const auto templates =
        random.one_in(2) ? std::span<const Template>(kCommon) : templates_of(mode);
    const Template& entry =
        pick(i + 1 == count ? std::span<const Template>(kEnds) : templates, random);
    insns_.push_back({address + section.bytes.size(), static_cast<uint8_t>(entry.bytes.size()),
                      entry.op, static_cast<uint16_t>(sections_.size()), 0});
    displacement_bytes_.push_back(entry.displacement_bytes);
    section.bytes.insert(section.bytes.end(), entry.bytes.begin(), entry.bytes.end());
  }
  section.end = static_cast<uint32_t>(insns_.size());
  sections_.push_back(std::move(section));
}

uint32_t SimulatedProgram::random_near(uint32_t from, Random& random) const {
  const ExecMode wanted = mode(from);
  for (int tries = 0; tries < 8; ++tries) {
    const uint32_t to = random_insn(random);
    if (mode(to) == wanted) return to;
  }
  const SimSection& section = sections_[insns_[from].section];
  return section.first + static_cast<uint32_t>(random.below(section.end - section.first));
}

void SimulatedProgram::link(Random& random) {
  for (uint32_t i = 0; i < insns_.size(); ++i) {
    const size_t bytes = displacement_bytes_[i];
    if (bytes == 0) continue;
    SimInsn& insn = insns_[i];
    SimSection& section = sections_[insn.section];
    insn.target = i + 1;
    for (int tries = 0; tries < 8; ++tries) {
      const uint32_t near =
          random.one_in(12) ? i + 1 : i + static_cast<uint32_t>(random.below(40)) - 20;
      const uint32_t to = bytes == 4 && random.one_in(2) ? random_near(i, random) : near;
      if (to >= insns_.size() || sections_[insns_[to].section].mode != section.mode) continue;
      if (!fits(static_cast<int64_t>(insns_[to].ip - insn.next_ip()), bytes)) continue;
      insn.target = to;
      break;
    }
    const uint64_t displacement = insns_[insn.target].ip - insn.next_ip();
    const size_t place = insn.next_ip() - section.address - bytes;
    for (size_t k = 0; k < bytes; ++k) {
      section.bytes[place + k] = static_cast<uint8_t>(displacement >> (8 * k));
    }
  }
  displacement_bytes_.clear();
}

void SimulatedProgram::write_file(Random& random, uint64_t id) {
  file_.reset(::memfd_create("simulated_program", MFD_CLOEXEC));
  if (!file_) throw std::runtime_error("memfd_create failed");
  const std::string path = fmt::format("/proc/self/fd/{}", file_.get());
  const size_t missing = random.below(sections_.size());
  uint64_t offset = 0;
  for (size_t i = 0; i < sections_.size(); ++i) {
    const SimSection& section = sections_[i];
    const auto size = section.bytes.size();
    if (::write(file_.get(), section.bytes.data(), size) != static_cast<ssize_t>(size)) {
      throw std::runtime_error("writing code failed");
    }
    const size_t cut = random.one_in(3) ? random.between(1, size - 1) : size;
    code_.sections.push_back({path, offset, cut, section.address});
    if (cut < size) {
      code_.sections.push_back({path, offset + cut, size - cut, section.address + cut});
    }
    if (i != missing) incomplete_code_.sections.push_back({path, offset, size, section.address});
    offset += size;
  }
  code_.id = id << 1;
  incomplete_code_.id = id << 1 | 1;
}

std::span<const uint8_t> SimulatedProgram::bytes_at(uint64_t address) const {
  for (const SimSection& section : sections_) {
    const uint64_t offset = address - section.address;
    if (offset < section.bytes.size()) return std::span(section.bytes).subspan(offset);
  }
  return {};
}

BranchKind branch_kind(SimOp op) {
  switch (op) {
    case SimOp::kConditional:
      return BranchKind::kConditional;
    case SimOp::kJump:
      return BranchKind::kJump;
    case SimOp::kCall:
      return BranchKind::kCall;
    case SimOp::kJumpIndirect:
      return BranchKind::kJumpIndirect;
    case SimOp::kCallIndirect:
      return BranchKind::kCallIndirect;
    case SimOp::kReturn:
      return BranchKind::kReturn;
    case SimOp::kSyscall:
      return BranchKind::kSyscall;
    default:
      return BranchKind::kFar;
  }
}

}  // namespace auxtrail::decode::testing
