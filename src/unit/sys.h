// Raw system calls. The unit makes its own: libc's wrappers set errno, may be interposed (by the
// program or by ourselves) and may be cancellation points; none of that is allowed where the traced
// program can see it. Every function returns what the kernel returned: a value, or -errno.
// Async-signal-safe.
#pragma once

#include <sys/mman.h>
#include <sys/syscall.h>

#include <cstddef>
#include <cstdint>

namespace auxtrail::unit::sys {

inline long call(long number, long a = 0, long b = 0, long c = 0, long d = 0, long e = 0,
                 long f = 0) {
  long result;
  register long r10 asm("r10") = d;
  register long r8 asm("r8") = e;
  register long r9 asm("r9") = f;
  asm volatile("syscall"
               : "=a"(result)
               : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
               : "rcx", "r11", "memory");
  return result;
}

constexpr uint64_t page_down(uint64_t address) { return address & ~uint64_t{4095}; }
constexpr uint64_t page_up(uint64_t address) { return page_down(address + 4095); }

inline bool is_error(long result) { return result < 0 && result > -4096; }
template <class T>
long arg(T* pointer) {
  return reinterpret_cast<long>(pointer);
}

// What the unit itself has mapped, and whether it may map more: a program that limits its address
// space must find in it what it would find without us (memory_limit.cc).
inline uint64_t mapped_bytes = 0;
inline bool may_map = true;

inline void* mmap(void* hint, size_t bytes, int prot, int flags, int fd = -1, long offset = 0) {
  if (!may_map) return nullptr;
  const long result = call(SYS_mmap, arg(hint), static_cast<long>(bytes), prot, flags, fd, offset);
  if (is_error(result)) return nullptr;
  __atomic_fetch_add(&mapped_bytes, page_up(bytes), __ATOMIC_RELAXED);
  return reinterpret_cast<void*>(result);
}
// Room for so many, of which only what is used costs memory.
template <class T>
T* reserve(size_t count) {
  constexpr int kLazy = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  return static_cast<T*>(mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE, kLazy));
}
// Asks for the memory of many pages at once; older kernels than 5.14 refuse, and fault page by
// page.
inline void populate(uint64_t from, uint64_t to) {
  constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE
  (void)call(SYS_madvise, static_cast<long>(from), static_cast<long>(to - from), kPopulateWrite);
}
inline void munmap(void* at, size_t bytes) {
  (void)call(SYS_munmap, arg(at), static_cast<long>(bytes));
  __atomic_fetch_sub(&mapped_bytes, page_up(bytes), __ATOMIC_RELAXED);
}
// Has the system give memory for all pages of [from, to), and the process a page of its own where a
// fork left it a shared one. What is there is overwritten.
inline void touch(uint64_t from, uint64_t to) {
  populate(page_down(from), page_up(to));
  for (uint64_t at = page_down(from); at < to; at += 4096) {
    *reinterpret_cast<volatile char*>(at) = 0;
  }
}
inline int gettid() { return static_cast<int>(call(SYS_gettid)); }
inline int getpid() { return static_cast<int>(call(SYS_getpid)); }
inline void close(int fd) { (void)call(SYS_close, fd); }
inline void sched_yield() { (void)call(SYS_sched_yield); }

}  // namespace auxtrail::unit::sys
