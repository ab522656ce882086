// What the tests of `auxtrail record` share: a folder to record in, and the unit to record with.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "cli/testing/run_program.h"

namespace auxtrail::cli::testing {

class RecordFixture : public ::testing::Test {
 protected:
  // `program` is auxtrail, `unit` the library that it preloads.
  RecordFixture(std::string program, std::string unit)
      : program_(std::move(program)), unit_(std::move(unit)) {}

  [[nodiscard]] RunOptions options() const {
    RunOptions result;
    result.folder = folder_.path();
    result.environment["AUXTRAIL_UNIT"] = unit_;
    result.environment["TMPDIR"] = folder_.path();  // a killed recorder leaves its socket behind
    return result;
  }
  [[nodiscard]] std::vector<std::string> record(std::vector<std::string> words) const {
    words.insert(words.begin(), {program_, "record"});
    return words;
  }

  TemporaryFolder folder_;

 private:
  std::string program_;
  std::string unit_;
};

}  // namespace auxtrail::cli::testing
