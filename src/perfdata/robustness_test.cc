// Damaged files: every truncation and many flipped bits. Nothing crashes and the counts stay true.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <random>

#include "perfdata/reader.h"
#include "perfdata/testing/command.h"
#include "perfdata/testing/exercise.h"
#include "perfdata/testing/synthetic.h"

namespace auxtrail::perfdata {
namespace {

using namespace testing;
using Bytes = std::vector<std::byte>;

struct NamedFile {
  const char* name;
  Bytes (*make)();
};
void PrintTo(const NamedFile& file, std::ostream* out) { *out << file.name; }

constexpr NamedFile kFiles[] = {{"intel_pt", intel_pt_file},
                                {"full_trace", full_trace_file},
                                {"every_field", every_field_file},
                                {"side_band", side_band_file},
                                {"compressed", compressed_file}};

class RobustnessTest : public ::testing::TestWithParam<NamedFile> {};

// A copy of its own size, so that a sanitizer sees any step over its end.
ExerciseOutcome exercise_copy(std::span<const std::byte> bytes) {
  const Bytes copy(bytes.begin(), bytes.end());
  return exercise(copy);
}

TEST_P(RobustnessTest, TheWholeFileIsGood) {
  const Bytes file = GetParam().make();
  const auto outcome = exercise_copy(file);
  EXPECT_TRUE(outcome.opened);
  EXPECT_EQ(outcome.broken, "");
  EXPECT_GT(outcome.parsed, 0U);
}

TEST_P(RobustnessTest, TruncatedAtEveryByte) {
  const Bytes file = GetParam().make();
  uint64_t most = 0;
  for (size_t size = 0; size < file.size(); ++size) {
    const auto outcome = exercise_copy(std::span(file).first(size));
    ASSERT_EQ(outcome.broken, "") << "cut to " << size << " bytes";
    ASSERT_GE(outcome.records, most) << "fewer records from more bytes, at " << size;
    most = outcome.records;
  }
  EXPECT_GT(most, 0U);
}

TEST_P(RobustnessTest, FlippedBits) {
  const Bytes file = GetParam().make();
  std::mt19937_64 random(20240607);
  uint64_t opened = 0;
  for (int round = 0; round < 4000; ++round) {
    Bytes damaged = file;
    const uint64_t flips = 1 + random() % 4;
    for (uint64_t flip = 0; flip < flips; ++flip) {
      const uint64_t bit = random() % (file.size() * 8);
      damaged[bit / 8] ^= std::byte{1} << (bit % 8);
    }
    const auto outcome = exercise_copy(damaged);
    ASSERT_EQ(outcome.broken, "") << "round " << round;
    opened += outcome.opened ? 1 : 0;
  }
  EXPECT_GT(opened, 2000U) << "most flips leave the file usable";
}

// Whole bytes set to the values that break length checks.
TEST_P(RobustnessTest, ExtremeWords) {
  const Bytes file = GetParam().make();
  for (const uint64_t word : {uint64_t{0}, ~uint64_t{0}, uint64_t{1} << 63, ~uint64_t{0} >> 1,
                              uint64_t{0xffffffff}, uint64_t{1} << 32}) {
    for (size_t at = 0; at + 8 <= file.size(); at += 8) {
      Bytes damaged = file;
      std::memcpy(damaged.data() + at, &word, sizeof(word));
      ASSERT_EQ(exercise_copy(damaged).broken, "") << word << " at " << at;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Files, RobustnessTest, ::testing::ValuesIn(kFiles),
                         [](const auto& param_info) { return param_info.param.name; });

// What the fuzzer starts from, and whatever it found before.
TEST(CorpusTest, EveryCommittedInputIsHandled) {
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(AUXTRAIL_READER_CORPUS)) {
    const std::string text = read_text(entry.path().string());
    const auto outcome = exercise_copy(std::as_bytes(std::span(text.data(), text.size())));
    EXPECT_EQ(outcome.broken, "") << entry.path();
    ++files;
  }
  EXPECT_GE(files, 4U);
}

TEST(BadFileTest, EachIsRefusedWithAReason) {
  const ScratchDirectory scratch;
  const auto message = [&](std::string_view bytes) {
    write_file(scratch.file("x"), bytes);
    auto reader = Reader::open(scratch.file("x"));
    return reader ? std::string("opened") : reader.error().message();
  };
  using namespace std::string_literals;
  EXPECT_THAT(message(""), ::testing::HasSubstr("empty"));
  EXPECT_THAT(message("abc"), ::testing::HasSubstr("too few"));
  EXPECT_THAT(message("no perf.data at all, just text"), ::testing::HasSubstr("PERFILE2"));
  EXPECT_THAT(message("2ELIFREP\0\0\0\0\0\0\0\x68"s), ::testing::HasSubstr("byte order"));
  EXPECT_THAT(message("PERFILE2\x10\0\0\0\0\0\0\0"s), ::testing::HasSubstr("pipe"));
  EXPECT_THAT(message("PERFFILE\x68\0\0\0\0\0\0\0"s), ::testing::HasSubstr("first format"));
  EXPECT_THAT(message("PERFILE2\x68\0\0\0\0\0\0\0"s), ::testing::HasSubstr("ends after 16"));
  EXPECT_THAT(Reader::open(scratch.path()).error().message(), ::testing::HasSubstr("directory"));
  EXPECT_THAT(Reader::open("/dev/null").error().message(),
              ::testing::HasSubstr("not a regular file"));
  EXPECT_EQ(Reader::open(scratch.file("missing")).error().sys_errno, ENOENT);
}

TEST(BadFileTest, MissingDataSizeIsReadToTheEnd) {
  Bytes file = intel_pt_file();
  auto whole = Reader::from_bytes(file, "memory");
  ASSERT_TRUE(whole);
  const uint64_t data_end = whole->data_offset() + whole->data_bytes();
  whole->for_each([](const DataRecord&) { return true; });
  const uint64_t records = whole->statistics().records;
  file.resize(data_end + 5);  // and the beginning of a record that was never finished
  const uint64_t zero = 0;
  std::memcpy(file.data() + 48, &zero, sizeof(zero));
  auto reader = Reader::from_bytes(file, "memory");
  ASSERT_TRUE(reader) << reader.error().message();
  reader->for_each([](const DataRecord&) { return true; });
  EXPECT_EQ(reader->statistics().records, records);
  EXPECT_TRUE(reader->statistics().data_size_missing);
  EXPECT_EQ(reader->statistics().truncated_bytes, 5U);
}

}  // namespace
}  // namespace auxtrail::perfdata
