// memcpy and its kin for the unit alone (hidden): compilers call them for structure copies, libc's
// may use vector registers, and the code behind translated code must leave those as the program had
// them.
#include <stddef.h>

// exports.map keeps them local.
#define AUXTRAIL_HIDDEN extern "C" __attribute__((used))

AUXTRAIL_HIDDEN void* memcpy(void* to, const void* from, size_t count) {
  void* const result = to;
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(count) : : "memory");
  return result;
}

AUXTRAIL_HIDDEN void* memset(void* to, int value, size_t count) {
  void* const result = to;
  asm volatile("rep stosb" : "+D"(to), "+c"(count) : "a"(value) : "memory");
  return result;
}

AUXTRAIL_HIDDEN void* memmove(void* to, const void* from, size_t count) {
  auto* target = static_cast<volatile char*>(to);
  const auto* source = static_cast<const volatile char*>(from);
  if (target <= source) {
    for (size_t i = 0; i < count; ++i) target[i] = source[i];
  } else {
    for (size_t i = count; i-- > 0;) target[i] = source[i];
  }
  return to;
}

AUXTRAIL_HIDDEN int memcmp(const void* one, const void* other, size_t count) {
  const auto* a = static_cast<const volatile unsigned char*>(one);
  const auto* b = static_cast<const volatile unsigned char*>(other);
  for (size_t i = 0; i < count; ++i) {
    if (a[i] != b[i]) return a[i] < b[i] ? -1 : 1;
  }
  return 0;
}
