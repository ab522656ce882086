// A fixed-size array for tables built at compile time. std::array would do, but its header does not
// compile under clang's -mgeneral-regs-only, which code inside the traced program is built with.
#pragma once

#include <cstddef>

namespace auxtrail::isa {

template <typename T, size_t kSize>
struct Table {
  T entries[kSize]{};

  constexpr T& operator[](size_t i) { return entries[i]; }
  constexpr const T& operator[](size_t i) const { return entries[i]; }
  static constexpr size_t size() { return kSize; }
  constexpr void fill(const T& value) {
    for (T& entry : entries) entry = value;
  }
};

}  // namespace auxtrail::isa
