// A program that patches its own code: mprotect to read-write, another immediate, another branch
// condition, back to read-execute, call. By libc's mprotect, by the raw system call (which no
// wrapper sees), with the page writable and executable all the time, and through /proc/self/mem.
// Each call must run the code of the moment.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "check.h"

namespace {

extern "C" unsigned char PatchBegin[], PatchImmediate[], PatchCondition[], PatchEnd[];
extern "C" uint64_t Patched(uint64_t rounds);
// Adds PatchImmediate per round, or subtracts it, as the condition says. The function has its own
// pages.
asm(R"(
    .pushsection .text.patched, "ax", @progbits
    .p2align 12
    .globl PatchBegin
PatchBegin:
    .globl Patched
    .type Patched, @function
Patched:
    xor %eax, %eax
1:  test $1, %dil
    .globl PatchCondition
PatchCondition:
    jz 2f
    .byte 0x48, 0x05            # add $imm32, %rax
    .globl PatchImmediate
PatchImmediate:
    .long 1
    jmp 3f
2:  sub $1, %rax
3:  dec %rdi
    jnz 1b
    ret
    .size Patched, .-Patched
    .p2align 12
    .globl PatchEnd
PatchEnd:
    .popsection
)");

uint64_t Expected(uint64_t rounds, uint32_t immediate, bool when_odd) {
  uint64_t sum = 0;
  for (uint64_t i = rounds; i != 0; --i) {
    if (((i & 1) != 0) == when_odd) {
      sum += static_cast<uint64_t>(static_cast<int64_t>(static_cast<int32_t>(immediate)));
    } else {
      sum -= 1;
    }
  }
  return sum;
}

enum class Way { kLibc, kRawSyscall, kAlwaysWritable, kProcMem };

void Protect(Way way, int protection) {
  const size_t size = static_cast<size_t>(PatchEnd - PatchBegin);
  if (way == Way::kLibc) CHECK(mprotect(PatchBegin, size, protection) == 0);
  if (way == Way::kRawSyscall) {
    long result = 0;
    asm volatile("syscall"
                 : "=a"(result)
                 : "a"(SYS_mprotect), "D"(PatchBegin), "S"(size), "d"(protection)
                 : "rcx", "r11", "memory");
    CHECK(result == 0);
  }
}

void Write(Way way, int memory, unsigned char* at, const void* bytes, size_t size) {
  if (way == Way::kProcMem) {
    CHECK(pwrite(memory, bytes, size, static_cast<off_t>(reinterpret_cast<uintptr_t>(at))) ==
          static_cast<ssize_t>(size));
  } else {
    std::memcpy(at, bytes, size);
  }
}

uint64_t Rounds(Way way, int loops) {
  const int memory = open("/proc/self/mem", O_RDWR);
  CHECK(memory >= 0);
  uint64_t sum = 0;
  for (int loop = 0; loop < loops; ++loop) {
    const uint32_t immediate = static_cast<uint32_t>(loop * 7 + static_cast<int>(way));
    const bool when_odd = loop % 3 != 0;
    const unsigned char condition = when_odd ? 0x74 : 0x75;  // jz, jnz
    Protect(way, PROT_READ | PROT_WRITE);
    Write(way, memory, PatchImmediate, &immediate, sizeof immediate);
    Write(way, memory, PatchCondition, &condition, 1);
    Protect(way, PROT_READ | PROT_EXEC);
    const uint64_t rounds = 20000 + static_cast<uint64_t>(loop % 5);
    const uint64_t result = Patched(rounds);
    CHECK(result == Expected(rounds, immediate, when_odd));
    sum += result;
  }
  close(memory);
  return sum;
}

}  // namespace

int main() {
  std::printf("libc %016llx\n", check::Llu(Rounds(Way::kLibc, 4000)));
  std::printf("raw %016llx\n", check::Llu(Rounds(Way::kRawSyscall, 4000)));
  std::printf("/proc/self/mem %016llx\n", check::Llu(Rounds(Way::kProcMem, 4000)));
  const size_t size = static_cast<size_t>(PatchEnd - PatchBegin);
  CHECK(mprotect(PatchBegin, size, PROT_READ | PROT_WRITE | PROT_EXEC) == 0);
  std::printf("writable %016llx\n", check::Llu(Rounds(Way::kAlwaysWritable, 4000)));
  return 0;
}
