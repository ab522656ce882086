// Code made at run time: in an anonymous read-write-execute page, in a page that flips between
// write and execute, in a memfd mapped twice, and in file mappings that are replaced in place (mmap
// MAP_FIXED over code by a raw system call, mremap). Each generation of code has another result;
// each call is checked.
#include <sys/mman.h>
#include <sys/syscall.h>

#include "check.h"

namespace {

using Function = uint64_t (*)(uint64_t rounds);
constexpr size_t kPage = 4096;

// xor eax,eax; 1: add rax, imm32; dec rdi; jnz 1b; ret
size_t Assemble(unsigned char* to, uint32_t immediate) {
  const unsigned char head[] = {0x31, 0xc0, 0x48, 0x05};
  const unsigned char tail[] = {0x48, 0xff, 0xcf, 0x75, 0xf5, 0xc3};
  std::memcpy(to, head, sizeof head);
  std::memcpy(to + sizeof head, &immediate, sizeof immediate);
  std::memcpy(to + sizeof head + sizeof immediate, tail, sizeof tail);
  return sizeof head + sizeof immediate + sizeof tail;
}

constexpr uint64_t kRounds = 20000;

// Counted in the program's own code, so that windows lead from there into code made at run time.
uint64_t Expected(uint32_t immediate) {
  uint64_t sum = 0;
  for (uint64_t round = 0; round < kRounds; round += 4) {
    sum += uint64_t{4} * immediate;
    asm volatile("" : "+r"(sum));
  }
  return sum;
}

uint64_t Call(void* code, uint32_t immediate) {
  const uint64_t result = reinterpret_cast<Function>(code)(kRounds);
  CHECK(result == Expected(immediate));
  return result;
}

unsigned char* Map(int protection, int flags, int fd) {
  void* at = mmap(nullptr, kPage, protection, flags, fd, 0);
  CHECK(at != MAP_FAILED);
  return static_cast<unsigned char*>(at);
}

uint64_t Anonymous(uint32_t loops) {
  unsigned char* code = Map(PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1);
  uint64_t sum = 0;
  for (uint32_t i = 1; i <= loops; ++i) {
    Assemble(code, i);
    sum += Call(code, i);
  }
  return sum;
}

uint64_t Flipping(uint32_t loops) {
  unsigned char* code = Map(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
  uint64_t sum = 0;
  for (uint32_t i = 1; i <= loops; ++i) {
    CHECK(mprotect(code, kPage, PROT_READ | PROT_WRITE) == 0);
    Assemble(code, i);
    CHECK(mprotect(code, kPage, PROT_READ | PROT_EXEC) == 0);
    sum += Call(code, i);
  }
  return sum;
}

uint64_t TwoViews(uint32_t loops) {
  const int fd = memfd_create("code", 0);
  CHECK(fd >= 0 && ftruncate(fd, kPage) == 0);
  unsigned char* writable = Map(PROT_READ | PROT_WRITE, MAP_SHARED, fd);
  unsigned char* code = Map(PROT_READ | PROT_EXEC, MAP_SHARED, fd);
  close(fd);
  uint64_t sum = 0;
  for (uint32_t i = 1; i <= loops; ++i) {
    Assemble(writable, i);
    sum += Call(code, i);
  }
  return sum;
}

int CodeFile(uint32_t immediate) {
  unsigned char bytes[kPage] = {};
  Assemble(bytes, immediate);
  const int fd = memfd_create("file", 0);
  CHECK(fd >= 0 && write(fd, bytes, kPage) == static_cast<ssize_t>(kPage));
  return fd;
}

// Two files, mapped in turns over the same address: the mapping changes, no page is ever written.
uint64_t Replaced(uint32_t loops, bool by_mremap) {
  const int files[2] = {CodeFile(3), CodeFile(5)};
  unsigned char* code = Map(PROT_READ | PROT_EXEC, MAP_PRIVATE, files[0]);
  uint64_t sum = 0;
  for (uint32_t i = 1; i <= loops; ++i) {
    const int fd = files[i % 2];
    if (by_mremap) {
      unsigned char* fresh = Map(PROT_READ | PROT_EXEC, MAP_PRIVATE, fd);
      CHECK(mremap(fresh, kPage, kPage, MREMAP_MAYMOVE | MREMAP_FIXED, code) == code);
    } else {
      const long at =
          syscall(SYS_mmap, code, kPage, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, fd, 0);
      CHECK(at == reinterpret_cast<long>(code));
    }
    sum += Call(code, i % 2 == 0 ? 3 : 5);
  }
  for (int fd : files) close(fd);
  return sum;
}

}  // namespace

int main() {
  std::printf("anonymous %llu\n", check::Llu(Anonymous(8000)));
  std::printf("flipping %llu\n", check::Llu(Flipping(8000)));
  std::printf("two views %llu\n", check::Llu(TwoViews(8000)));
  std::printf("replaced by mmap %llu\n", check::Llu(Replaced(8000, false)));
  std::printf("replaced by mremap %llu\n", check::Llu(Replaced(8000, true)));
  return 0;
}
