// The real traces of AUXTRAIL_TEST_DATA with their code, for damaging them.
#pragma once

#include <filesystem>
#include <vector>

#include "decode/testing/differential_case.h"

namespace auxtrail::decode::testing {

// Those that are there.
std::vector<RealTrace> read_real_traces(const std::filesystem::path& directory);

}  // namespace auxtrail::decode::testing
