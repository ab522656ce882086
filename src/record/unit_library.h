// Where the preloaded library with the software trace unit is.
#pragma once

#include <string>

#include "base/result.h"

namespace auxtrail::record {

inline constexpr char kUnitVariable[] = "AUXTRAIL_UNIT";
inline constexpr char kUnitName[] = "libauxtrail-unit.so";

// The absolute path: AUXTRAIL_UNIT if set, else beside the running binary as installed
// (../lib/auxtrail and the like) or in the build tree. Errors: nowhere to be found, or the path
// holds a character that LD_PRELOAD cannot carry.
Result<std::string> find_unit_library();

}  // namespace auxtrail::record
