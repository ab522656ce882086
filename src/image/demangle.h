// C++ and Rust (legacy) names for people.
#pragma once

#include <string>

namespace auxtrail::image {

// The name without parameters, return type and the compiler's marks of clones, as perf prints it:
// "std::vector<int, std::allocator<int> >::push_back"; the argument itself if it is not mangled.
std::string demangle(const std::string& raw_name);

}  // namespace auxtrail::image
