// Streams over code that changes while the trace runs, and over damaged and odd pieces. That the
// flow is the right one at all is shown by single_step_truth_test.cc.
#include <gmock/gmock.h>
#include <unistd.h>

#include <map>

#include "decode/libipt_decoder.h"
#include "decode/test_support.h"
#include "pt/packet_writer.h"

namespace auxtrail::decode {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr uint64_t kMain = 0x401000;     // call *%rax; ret
constexpr uint64_t kLibrary = 0x700000;  // ret
constexpr uint64_t kNever = ~uint64_t{0};

class CodeFile {
 public:
  explicit CodeFile(std::vector<uint8_t> code) {
    path_ = (std::filesystem::temp_directory_path() / "trace_stream_test_XXXXXX").string();
    const int file = ::mkstemp(path_.data());
    EXPECT_EQ(::write(file, code.data(), code.size()), static_cast<ssize_t>(code.size()));
    ::close(file);
    size_bytes_ = code.size();
  }
  ~CodeFile() { std::filesystem::remove(path_); }
  [[nodiscard]] image::CodeSection at(uint64_t address) const {
    return {path_, 0, size_bytes_, address};
  }

 private:
  std::string path_;
  size_t size_bytes_ = 0;
};

// Maps by the time from which on they are valid.
class Timeline : public CodeTimeline {
 public:
  explicit Timeline(std::map<uint64_t, image::CodeMap> maps) : maps_(std::move(maps)) {}
  View at(uint64_t time_ns) override {
    const auto after = maps_.upper_bound(time_ns);
    return {&std::prev(after)->second, after == maps_.end() ? kNever : after->first};
  }

 private:
  std::map<uint64_t, image::CodeMap> maps_;
};

class TraceStreamTest : public testing::Test {
 protected:
  TraceStreamTest() : writer_(reinterpret_cast<uint8_t*>(bytes_.data())) {}

  [[nodiscard]] std::vector<std::byte> trace() const {
    return {bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(writer_.size_bytes())};
  }
  DecodeSummary decode(CodeTimeline& code, StreamOptions options = {}) {
    const auto whole = trace();
    const auto decoder = make_libipt_decoder();
    const auto stream = decoder->open({whole}, code, consumer_, options);
    while (stream->run(kNever)) {
    }
    time_ns_ = stream->time_ns();
    return stream->summary();
  }
  // The call in main, and the return from the library.
  void call_library() {
    writer_.tip(kLibrary);
    writer_.tip(kMain + 2);
  }

  CodeFile main_{{0xff, 0xd0, 0xc3}};
  CodeFile library_{{0xc3}};
  CodeFile other_library_{{0x90, 0xc3}};
  std::vector<std::byte> bytes_ = std::vector<std::byte>(4096);
  pt::PacketWriter writer_;
  test::CountingConsumer consumer_;
  uint64_t time_ns_ = 0;
};

TEST_F(TraceStreamTest, CodeComesWithItsTime) {
  Timeline code({{0, {1, {main_.at(kMain)}}},
                 {150, {2, {main_.at(kMain), library_.at(kLibrary)}}},
                 {250, {3, {main_.at(kMain), other_library_.at(kLibrary)}}}});
  writer_.begin(kMain, 200);
  call_library();
  writer_.tip(kMain);
  writer_.psb_plus(kMain, 300);
  call_library();
  writer_.end(kMain + 2);
  const auto summary = decode(code);
  EXPECT_EQ(summary.error_count(), 0) << consumer_.first_error_text();
  EXPECT_EQ(summary.instructions,
            3 + 3);  // the second library has one more, main's ret is left out
  EXPECT_THAT(consumer_.branches,
              ElementsAre(Branch{0, kMain, BranchKind::kTraceBegin, false},
                          Branch{kMain, kLibrary, BranchKind::kCallIndirect, false},
                          Branch{kLibrary, kMain + 2, BranchKind::kReturn, false},
                          Branch{kMain + 2, kMain, BranchKind::kReturn, false},
                          Branch{kMain, kLibrary, BranchKind::kCallIndirect, false},
                          Branch{kLibrary + 1, kMain + 2, BranchKind::kReturn, false},
                          Branch{kMain + 2, 0, BranchKind::kTraceEnd, true}));
  EXPECT_EQ(time_ns_, 300);
}

// A library that was mapped after the last TSC packet: the trace's next time tells of it.
TEST_F(TraceStreamTest, CodeThatCameBetweenTwoTimesIsFound) {
  Timeline code(
      {{0, {1, {main_.at(kMain)}}}, {250, {2, {main_.at(kMain), library_.at(kLibrary)}}}});
  writer_.begin(kMain, 200);
  call_library();
  writer_.tip(kMain);
  writer_.psb_plus(kMain, 300);
  writer_.end(kMain);
  const auto summary = decode(code);
  EXPECT_EQ(summary.error_count(), 0) << consumer_.first_error_text();
  EXPECT_EQ(consumer_.count(BranchKind::kReturn), 2);
}

TEST_F(TraceStreamTest, CodeThatCameAfterTheTraceIsNotTaken) {
  Timeline code(
      {{0, {1, {main_.at(kMain)}}}, {350, {2, {main_.at(kMain), library_.at(kLibrary)}}}});
  writer_.begin(kMain, 200);
  call_library();
  writer_.psb_plus(kMain, 300);
  writer_.end(kMain);
  const auto summary = decode(code);
  EXPECT_EQ(summary.errors[static_cast<size_t>(ErrorCause::kNoMap)], 1);
  EXPECT_EQ(summary.error_count(), 1);
}

TEST_F(TraceStreamTest, TheClockIsConverted) {
  Timeline code({{0, {1, {}}}, {10'000, {2, {main_.at(kMain)}}}});
  writer_.begin(kMain, 30 << 4);
  writer_.end(kMain);
  StreamOptions options;
  options.clock = {4, 300, 1000};  // 1000 + 30 * 300
  EXPECT_EQ(decode(code, options).error_count(), 0) << consumer_.first_error_text();
  EXPECT_EQ(time_ns_, 10'000);
}

// It can be run in steps of time.
TEST_F(TraceStreamTest, StopsWhenTheTimeHasCome) {
  Timeline code({{0, {1, {main_.at(kMain), library_.at(kLibrary)}}}});
  for (uint64_t tsc = 100; tsc <= 300; tsc += 100) {
    writer_.begin(kMain, tsc);
    for (int i = 0; i < 60; ++i) {
      call_library();
      writer_.tip(kMain);
    }
    writer_.end(kMain);
  }
  const auto whole = trace();
  const auto decoder = make_libipt_decoder();
  const auto stream = decoder->open({whole}, code, consumer_, {});
  ASSERT_TRUE(stream->run(150));
  EXPECT_EQ(stream->time_ns(), 200);
  const size_t first = consumer_.branches.size();
  EXPECT_GT(first, 180U);
  EXPECT_LT(first, 300U);
  ASSERT_TRUE(stream->run(250));
  EXPECT_EQ(stream->time_ns(), 300);
  EXPECT_LT(consumer_.branches.size(), 500U);
  EXPECT_FALSE(stream->run(kNever));
  EXPECT_EQ(consumer_.branches.size(), 3 * (2 + 180));
  EXPECT_FALSE(stream->run(kNever)) << "the end stays the end";
}

TEST_F(TraceStreamTest, NothingAndNoPsb) {
  Timeline code({{0, {1, {main_.at(kMain)}}}});
  EXPECT_EQ(decode(code).error_count(), 0);
  EXPECT_THAT(consumer_.branches, IsEmpty());
  for (int i = 0; i < 100; ++i) writer_.tip(kMain);
  StreamOptions options;
  options.window_bytes = 10;
  const auto summary = decode(code, options);
  EXPECT_EQ(summary.errors[static_cast<size_t>(ErrorCause::kNoPsb)], 1);
  EXPECT_EQ(summary.bytes, writer_.size_bytes());
}

}  // namespace
}  // namespace auxtrail::decode
