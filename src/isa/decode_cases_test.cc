// Cases written from the manuals (Intel SDM vol. 2, AMD APM vol. 3), the fields the oracle test
// cannot see, and the bounds: cut-short input and reads next to an unmapped page.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <initializer_list>
#include <random>
#include <vector>

#include "isa/insn.h"
#include "isa/zydis_oracle.h"

namespace auxtrail::isa {
namespace {

Insn decode_bytes(std::initializer_list<unsigned> bytes) {
  std::vector<uint8_t> code;
  for (const unsigned byte : bytes) code.push_back(static_cast<uint8_t>(byte));
  return decode(code.data(), code.size());
}

struct Case {
  const char* name;
  std::initializer_list<unsigned> bytes;
  InsnClass cls;
};

TEST(DecodeCases, Classes) {
  using enum InsnClass;
  const Case cases[] = {
      {"nop", {0x90}, kOther},
      {"endbr64", {0xF3, 0x0F, 0x1E, 0xFA}, kOther},
      {"rdsspq rax", {0xF3, 0x48, 0x0F, 0x1E, 0xC8}, kOther},
      {"je rel8", {0x74, 0x10}, kCondJump},
      {"je rel8, hint", {0x3E, 0x74, 0x10}, kCondJump},
      {"bnd jne rel32", {0xF2, 0x0F, 0x85, 1, 0, 0, 0}, kCondJump},
      {"jrcxz", {0xE3, 0x05}, kLoop},
      {"jecxz", {0x67, 0xE3, 0x05}, kLoop},
      {"loop", {0xE2, 0xFE}, kLoop},
      {"jmp rel8", {0xEB, 0xFE}, kJump},
      {"bnd jmp rel32", {0xF2, 0xE9, 0, 0, 0, 0}, kJump},
      {"call rel32", {0xE8, 0, 0, 0, 0}, kCall},
      {"data16 rex.w call (TLS sequence)", {0x66, 0x66, 0x48, 0xE8, 0, 0, 0, 0}, kCall},
      {"notrack jmp rax", {0x3E, 0xFF, 0xE0}, kJumpIndirect},
      {"bnd jmp [rip+8]", {0xF2, 0xFF, 0x25, 8, 0, 0, 0}, kJumpIndirect},
      {"call r11", {0x41, 0xFF, 0xD3}, kCallIndirect},
      {"data16 rex.w call [rip] (TLS sequence)",
       {0x66, 0x48, 0xFF, 0x15, 0, 0, 0, 0},
       kCallIndirect},
      {"ret", {0xC3}, kReturn},
      {"repz ret", {0xF3, 0xC3}, kReturn},
      {"ret 8", {0xC2, 8, 0}, kReturn},
      {"lret", {0xCB}, kFar},
      {"iretq", {0x48, 0xCF}, kFar},
      {"ljmp [rax]", {0xFF, 0x28}, kFar},
      {"int 0x21", {0xCD, 0x21}, kFar},
      {"vmlaunch", {0x0F, 0x01, 0xC2}, kFar},
      {"sysret", {0x48, 0x0F, 0x07}, kFar},
      {"int 0x80", {0xCD, 0x80}, kSyscall},
      {"syscall", {0x0F, 0x05}, kSyscall},
      {"sysenter", {0x0F, 0x34}, kSyscall},
      {"int3", {0xCC}, kTrap},
      {"int1", {0xF1}, kTrap},
      {"ud2", {0x0F, 0x0B}, kTrap},
      {"ud1 eax, eax", {0x0F, 0xB9, 0xC0}, kTrap},
      {"ud0 eax, eax", {0x0F, 0xFF, 0xC0}, kTrap},
      {"hlt", {0xF4}, kTrap},
      {"xbegin", {0xC7, 0xF8, 0, 0, 0, 0}, kSpecial},
      {"xabort", {0xC6, 0xF8, 1}, kSpecial},
      {"xend", {0x0F, 0x01, 0xD5}, kSpecial},
      {"xtest", {0x0F, 0x01, 0xD6}, kSpecial},
      {"popf", {0x9D}, kSpecial},
      {"wrfsbase rax", {0xF3, 0x48, 0x0F, 0xAE, 0xD0}, kSpecial},
      {"rdfsbase rax", {0xF3, 0x48, 0x0F, 0xAE, 0xC0}, kOther},
      {"wrpkru", {0x0F, 0x01, 0xEF}, kSpecial},
      {"rdpkru", {0x0F, 0x01, 0xEE}, kOther},
      {"mov ss, eax", {0x8E, 0xD0}, kSpecial},
      {"pop fs", {0x0F, 0xA1}, kSpecial},
      {"in al, dx", {0xEC}, kSpecial},
      {"cli", {0xFA}, kSpecial},
      {"lgdt [rax]", {0x0F, 0x01, 0x10}, kSpecial},
      {"xsetbv", {0x0F, 0x01, 0xD1}, kSpecial},
      {"xgetbv", {0x0F, 0x01, 0xD0}, kOther},
      {"incsspq rax", {0xF3, 0x48, 0x0F, 0xAE, 0xE8}, kSpecial},
      {"senduipi rax", {0xF3, 0x0F, 0xC7, 0xF0}, kSpecial},
      {"rdrand eax", {0x0F, 0xC7, 0xF0}, kOther},
      {"xrstor [rsp]", {0x0F, 0xAE, 0x2C, 0x24}, kOther},
      {"fxrstor [rsp]", {0x0F, 0xAE, 0x0C, 0x24}, kOther},
      {"cpuid", {0x0F, 0xA2}, kOther},
      {"rdtscp", {0x0F, 0x01, 0xF9}, kOther},
      {"lock cmpxchg [rdi], ecx", {0xF0, 0x0F, 0xB1, 0x0F}, kOther},
      {"lock cmpxchg16b [rdi]", {0xF0, 0x48, 0x0F, 0xC7, 0x0F}, kOther},
      {"vzeroupper", {0xC5, 0xF8, 0x77}, kOther},
      {"vpaddd zmm", {0x62, 0xF1, 0x7D, 0x48, 0xFE, 0xC0}, kOther},
  };
  for (const Case& c : cases) {
    const Insn insn = decode_bytes(c.bytes);
    EXPECT_EQ(insn.cls, c.cls) << c.name;
    EXPECT_EQ(insn.length, c.bytes.size()) << c.name;
  }
}

TEST(DecodeCases, Refused) {
  const Case cases[] = {
      {"near branches with operand size 16: jmp", {0x66, 0xE9, 0, 0, 0, 0}, {}},
      {"je", {0x66, 0x74, 0}, {}},
      {"call", {0x66, 0xE8, 0, 0, 0, 0}, {}},
      {"ret", {0x66, 0xC3}, {}},
      {"jmp rax", {0x66, 0xFF, 0xE0}, {}},
      {"push es", {0x06}, {}},
      {"daa", {0x27}, {}},
      {"far call ptr", {0x9A, 0, 0, 0, 0, 0, 0}, {}},
      {"into", {0xCE}, {}},
      {"aam", {0xD4, 0x0A}, {}},
      {"REX2", {0xD5, 0x00, 0x90}, {}},
      {"EVEX map 4 (APX)", {0x62, 0xF4, 0x7C, 0x08, 0x01, 0xC0}, {}},
      {"lock with a register", {0xF0, 0x01, 0xC0}, {}},
      {"lock with a load", {0xF0, 0x8B, 0x07}, {}},
      {"lock cmp", {0xF0, 0x39, 0x07}, {}},
      {"lea with a register", {0x8D, 0xC0}, {}},
      {"mov cs, eax", {0x8E, 0xC8}, {}},
      {"ff /7", {0xFF, 0xF8}, {}},
      {"callf with a register", {0xFF, 0xD8}, {}},
      {"66 before VEX", {0x66, 0xC5, 0xF8, 0x77}, {}},
      {"REX before VEX", {0x48, 0xC5, 0xF8, 0x77}, {}},
      {"gather, destination is index", {0xC4, 0xE2, 0x69, 0x92, 0x0C, 0x08}, {}},
      {"repeat prefixes that contradict", {0xF2, 0xF3, 0xA4}, {}},
      {"segments that contradict", {0x64, 0x65, 0x8B, 0x07}, {}},
      {"3DNow!", {0x0F, 0x0F, 0xC1, 0x9E}, {}},
      {"prefixes alone", {0x66, 0x48}, {}},
      {"sixteen bytes",
       {0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66,
        0x90},
       {}},
  };
  for (const Case& c : cases) {
    const Insn insn = decode_bytes(c.bytes);
    EXPECT_EQ(insn.cls, InsnClass::kInvalid) << c.name;
    EXPECT_EQ(insn.length, 0) << c.name;
  }
}

TEST(DecodeCases, FifteenBytesAreTheLimit) {
  const Insn insn = decode_bytes(
      {0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x90});
  EXPECT_EQ(insn.length, 15);
}

TEST(DecodeCases, Targets) {
  EXPECT_EQ(decode_bytes({0xEB, 0xFE}).target(0x1000), 0x1000u);
  EXPECT_EQ(decode_bytes({0xE8, 0xFB, 0xFF, 0xFF, 0xFF}).target(0x1000), 0x1000u);
  EXPECT_EQ(decode_bytes({0x0F, 0x84, 0x10, 0, 0, 0x80}).relative, -0x7FFFFFF0);
  EXPECT_EQ(decode_bytes({0xC2, 0x34, 0x12}).return_pop, 0x1234);
}

TEST(DecodeCases, Prefixes) {
  const Insn fs = decode_bytes({0x64, 0x48, 0x8B, 0x04, 0x25, 0x28, 0, 0, 0});  // mov rax, fs:0x28
  EXPECT_EQ(fs.segment, 0x64);
  EXPECT_EQ(fs.rex, 0x48);
  EXPECT_EQ(fs.modrm_offset, 3);
  EXPECT_EQ(fs.disp_offset, 5);
  EXPECT_EQ(fs.disp_size, 4);
  EXPECT_FALSE(fs.rip_relative);
  EXPECT_EQ(decode_bytes({0x2E, 0x8B, 0x07}).segment, 0) << "cs has no effect";
  EXPECT_EQ(decode_bytes({0x48, 0x66, 0x90}).rex, 0) << "a REX before another prefix has no effect";
  EXPECT_TRUE(decode_bytes({0x66, 0x89, 0xC0}).operand_size_16);
  EXPECT_FALSE(decode_bytes({0x66, 0x48, 0x89, 0xC0}).operand_size_16) << "REX.W is stronger";
  const Insn rip = decode_bytes({0x48, 0x8D, 0x05, 1, 2, 3, 4});
  EXPECT_TRUE(rip.rip_relative);
  EXPECT_EQ(rip.disp_offset, 3);
  EXPECT_TRUE(decode_bytes({0x67, 0x8D, 0x05, 1, 2, 3, 4}).address_size_32);
}

TEST(DecodeCases, Maps) {
  EXPECT_EQ(decode_bytes({0x90}).map, 0);
  EXPECT_EQ(decode_bytes({0x0F, 0xA2}).map, 1);
  EXPECT_EQ(decode_bytes({0x66, 0x0F, 0x38, 0x00, 0xC0}).map, 2);
  EXPECT_EQ(decode_bytes({0x66, 0x0F, 0x3A, 0x0F, 0xC0, 1}).map, 3);
  EXPECT_EQ(decode_bytes({0xC5, 0xF9, 0xEF, 0xC0}).map, 1);
  EXPECT_EQ(decode_bytes({0xC4, 0xE2, 0x7D, 0x58, 0xC0}).map, 2);
  EXPECT_EQ(decode_bytes({0x62, 0xF5, 0x7C, 0x48, 0x58, 0xC0}).map, 5);
}

// Page, then PROT_NONE: any read past the end is a fault.
class GuardedBytes {
 public:
  GuardedBytes() : page_(static_cast<size_t>(sysconf(_SC_PAGESIZE))) {
    void* area =
        mmap(nullptr, 2 * page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    base_ = static_cast<uint8_t*>(area);
    mprotect(base_ + page_, page_, PROT_NONE);
  }
  ~GuardedBytes() { munmap(base_, 2 * page_); }
  GuardedBytes(const GuardedBytes&) = delete;
  GuardedBytes& operator=(const GuardedBytes&) = delete;

  const uint8_t* place(const uint8_t* bytes, size_t size) {
    uint8_t* at = base_ + page_ - size;
    if (size != 0) std::memcpy(at, bytes, size);
    return at;
  }

 private:
  size_t page_;
  uint8_t* base_;
};

// Every prefix of a byte string: cut short means invalid, complete means the same answer as before.
TEST(DecodeBounds, NeverReadsPastTheEnd) {
  GuardedBytes guarded;
  std::mt19937_64 random(7);
  static constexpr uint8_t kStarts[] = {0xC4, 0xC5, 0x62, 0x0F, 0x66, 0x8F, 0xF3, 0x48};
  unsigned complete = 0;
  for (unsigned round = 0; round < 200'000; ++round) {
    std::array<uint8_t, 16> code;
    const uint64_t low = random(), high = random();
    std::memcpy(code.data(), &low, 8);
    std::memcpy(code.data() + 8, &high, 8);
    if ((round & 1) != 0) code[0] = kStarts[(round >> 1) & 7];
    const Insn whole = decode(code.data(), code.size());
    for (size_t size = 0; size <= code.size(); ++size) {
      const Insn part = decode(guarded.place(code.data(), size), size);
      const bool enough = whole.length != 0 && size >= whole.length;
      ASSERT_EQ(part.length, enough ? whole.length : 0) << hex(code.data(), size);
      ASSERT_EQ(part.cls, enough ? whole.cls : InsnClass::kInvalid);
      complete += enough;
    }
  }
  EXPECT_GT(complete, 100'000u);
}

}  // namespace
}  // namespace auxtrail::isa
