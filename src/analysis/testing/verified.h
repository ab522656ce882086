// What verification finds in a file.
#pragma once

#include <gtest/gtest.h>

#include "analysis/verification.h"

namespace auxtrail::analysis::testing {

template <class Bytes>
Verification verified(const Bytes& file) {
  auto recording = Recording::from_bytes(file, "test");
  EXPECT_TRUE(recording);
  Verification result;
  SampleWalk walk(*recording);
  walk.run([&result](const WalkedSample& sample) {
    result.add(sample);
    return true;
  });
  return result;
}

}  // namespace auxtrail::analysis::testing
