// Samples and trailers: every field, every read format, every way to be too short.
#include "abi/sample.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "abi/record.h"
#include "base/bytes.h"

namespace auxtrail::abi {
namespace {

using ::testing::ElementsAre;

// The order of the table and a few of its numbers, from the man page's layout.
static_assert(sample_fixed_bytes(0x110187) == 48);
static_assert(sample_field_offset(0x110187, SampleField::kIdentifier) == 8);
static_assert(sample_field_offset(0x110187, SampleField::kTime) == 32);
static_assert(sample_field_offset(0x110187, SampleField::kAux) == 56);
static_assert(sample_field_offset(PERF_SAMPLE_CALLCHAIN | PERF_SAMPLE_AUX, SampleField::kAux) ==
              kNoOffset);
static_assert(sample_field_offset(PERF_SAMPLE_IP, SampleField::kTime) == kNoOffset);
static_assert(trailer_bytes(0x10087, true) == 32);
static_assert(trailer_bytes(0x10087, false) == 0);
static_assert(trailer_field_offset_from_end(0x10087, SampleField::kIdentifier) == 8);
static_assert(trailer_field_offset_from_end(0x10087, SampleField::kTime) == 24);
static_assert(trailer_field_offset_from_end(PERF_SAMPLE_ID | PERF_SAMPLE_CPU, SampleField::kId) ==
              16);
// The largest sample of AUX alone, and what each further 8 bytes cost (checklist C1, C2).
static_assert(largest_aux_bytes(8, 1 << 20) == 65512);
static_assert(largest_aux_bytes(16, 1 << 20) == 65504);
static_assert(largest_aux_bytes(8, 7) == 0);
static_assert(largest_aux_bytes(8, 15) == 8);
static_assert(largest_aux_bytes(8, 4097) == 4096);
static_assert(largest_aux_bytes(65528, 4096) == 0, "a record that is already full");
static_assert(read_bytes(0, 1) == 8);
static_assert(read_bytes(PERF_FORMAT_GROUP | PERF_FORMAT_ID | PERF_FORMAT_TOTAL_TIME_ENABLED, 3) ==
              64);

Record record_of(uint32_t type, std::span<const std::byte> bytes) { return {type, 0, bytes}; }

// A sample record from raw words.
ByteWriter sample_words(std::initializer_list<uint64_t> words) {
  ByteWriter out;
  out.write(perf_event_header{PERF_RECORD_SAMPLE, PERF_RECORD_MISC_USER,
                              static_cast<uint16_t>(8 + 8 * words.size())});
  for (const uint64_t word : words) out.u64(word);
  return out;
}

std::vector<uint64_t> values(const PackedArray<uint64_t>& array) {
  return {array.begin(), array.end()};
}

TEST(SampleTest, ReadInAllItsForms) {
  SampleFormat format;
  format.sample_type = PERF_SAMPLE_READ;
  for (uint64_t bits = 0; bits < PERF_FORMAT_MAX; ++bits) {
    format.read_format = bits;
    // Words in the order of the header file's read_format.
    ByteWriter body;
    const bool group = (bits & PERF_FORMAT_GROUP) != 0;
    const uint64_t members = group ? 3 : 1;
    body.u64(group ? members : 100);
    if ((bits & PERF_FORMAT_TOTAL_TIME_ENABLED) != 0) body.u64(7);
    if ((bits & PERF_FORMAT_TOTAL_TIME_RUNNING) != 0) body.u64(8);
    for (uint64_t at = 0; at < members; ++at) {
      if (group) body.u64(100 + at);
      if ((bits & PERF_FORMAT_ID) != 0) body.u64(200 + at);
      if ((bits & PERF_FORMAT_LOST) != 0) body.u64(300 + at);
    }
    EXPECT_EQ(body.size(), read_bytes(bits, members));
    ByteWriter bytes;
    bytes.write(perf_event_header{PERF_RECORD_SAMPLE, 0, 0});
    bytes.append(body.bytes());
    Sample sample;
    ASSERT_EQ(parse_sample(record_of(PERF_RECORD_SAMPLE, bytes.bytes()), format, sample),
              ParseStatus::kOk)
        << bits;
    ASSERT_EQ(sample.read.size(), members);
    EXPECT_EQ(sample.read.time_enabled, (bits & PERF_FORMAT_TOTAL_TIME_ENABLED) != 0 ? 7U : 0U);
    EXPECT_EQ(sample.read.time_running, (bits & PERF_FORMAT_TOTAL_TIME_RUNNING) != 0 ? 8U : 0U);
    for (uint64_t at = 0; at < members; ++at) {
      EXPECT_EQ(sample.read[at].value, 100 + at);
      EXPECT_EQ(sample.read[at].id, (bits & PERF_FORMAT_ID) != 0 ? 200 + at : 0);
      EXPECT_EQ(sample.read[at].lost, (bits & PERF_FORMAT_LOST) != 0 ? 300 + at : 0);
    }
  }
}

TEST(SampleTest, BranchStackWithAndWithoutIndexAndCounters) {
  SampleFormat format;
  format.sample_type = PERF_SAMPLE_BRANCH_STACK;
  Sample sample;
  auto plain = sample_words({1, 0x10, 0x20, 0x2 | (5 << 4)});
  ASSERT_EQ(parse_sample(record_of(PERF_RECORD_SAMPLE, plain.bytes()), format, sample),
            ParseStatus::kOk);
  ASSERT_EQ(sample.branches.size(), 1U);
  EXPECT_EQ(sample.branches[0].from, 0x10U);
  EXPECT_EQ(sample.branches[0].to, 0x20U);
  EXPECT_TRUE(sample.branches[0].predicted());
  EXPECT_FALSE(sample.branches[0].mispredicted());
  EXPECT_EQ(sample.branches[0].cycles(), 5U);

  format.branch_sample_type = PERF_SAMPLE_BRANCH_HW_INDEX | (1 << 19);
  auto full = sample_words({1, 42, 0x10, 0x20, 1, 77});
  ASSERT_EQ(parse_sample(record_of(PERF_RECORD_SAMPLE, full.bytes()), format, sample),
            ParseStatus::kOk);
  EXPECT_EQ(sample.branch_hw_index, 42U);
  EXPECT_TRUE(sample.branches[0].mispredicted());
  EXPECT_THAT(values(sample.branch_counters), ElementsAre(77));
}

TEST(SampleTest, RegistersAndStackThatAreNotThere) {
  SampleFormat format;
  format.sample_type = PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER | PERF_SAMPLE_REGS_INTR;
  format.regs_user_mask = 0xff;
  format.regs_intr_mask = 0x1;
  auto bytes = sample_words({PERF_SAMPLE_REGS_ABI_NONE, 0, PERF_SAMPLE_REGS_ABI_64, 9});
  Sample sample;
  ASSERT_EQ(parse_sample(record_of(PERF_RECORD_SAMPLE, bytes.bytes()), format, sample),
            ParseStatus::kOk);
  EXPECT_TRUE(sample.regs_user.values.empty());
  EXPECT_TRUE(sample.stack_user.empty());
  EXPECT_THAT(values(sample.regs_intr.values), ElementsAre(9));
}

TEST(SampleTest, CountsThatReachPastTheRecord) {
  for (const uint64_t bit :
       {PERF_SAMPLE_CALLCHAIN, PERF_SAMPLE_BRANCH_STACK, PERF_SAMPLE_STACK_USER, PERF_SAMPLE_AUX}) {
    SampleFormat format;
    format.sample_type = bit;
    for (const uint64_t count : {uint64_t{3}, uint64_t{1} << 61, ~uint64_t{0}, uint64_t{1} << 31}) {
      auto bytes = sample_words({count});
      Sample sample;
      EXPECT_EQ(parse_sample(record_of(PERF_RECORD_SAMPLE, bytes.bytes()), format, sample),
                ParseStatus::kShort)
          << bit << " " << count;
    }
  }
}

TEST(SampleTest, RawIsPaddedAndItsSizeChecked) {
  SampleFormat format;
  format.sample_type = PERF_SAMPLE_RAW | PERF_SAMPLE_CGROUP;
  const auto parse_raw = [&](uint32_t size, Sample& sample) {
    auto bytes = sample_words({size, 0, 77});  // 12 bytes behind the size, then CGROUP
    return parse_sample(record_of(PERF_RECORD_SAMPLE, bytes.bytes()), format, sample);
  };
  for (const uint32_t size : {5U, 11U, 12U}) {
    Sample sample;
    ASSERT_EQ(parse_raw(size, sample), ParseStatus::kOk);
    EXPECT_EQ(sample.raw.size(), size);
    EXPECT_EQ(sample.cgroup, 77U) << "behind the padding";
  }
  Sample sample;
  EXPECT_EQ(parse_raw(13, sample), ParseStatus::kShort);
  EXPECT_EQ(parse_raw(0xffffffff, sample), ParseStatus::kShort);
}

TEST(SampleTest, ShortAtEveryFieldAndUnknownBits) {
  SampleFormat format;
  format.sample_type = 0x110187;
  auto bytes = sample_words({1, 2, 3, 4, 5, 6, 0});
  Sample sample;
  for (size_t size = 8; size < bytes.size(); ++size) {
    EXPECT_EQ(
        parse_sample(record_of(PERF_RECORD_SAMPLE, bytes.bytes().first(size)), format, sample),
        ParseStatus::kShort)
        << size;
  }
  EXPECT_EQ(parse_sample(record_of(PERF_RECORD_SAMPLE, bytes.bytes()), format, sample),
            ParseStatus::kOk);
  EXPECT_EQ(parse_sample(record_of(PERF_RECORD_LOST, bytes.bytes()), format, sample),
            ParseStatus::kWrongType);
  format.sample_type |= uint64_t{1} << 40;
  EXPECT_EQ(parse_sample(record_of(PERF_RECORD_SAMPLE, bytes.bytes()), format, sample),
            ParseStatus::kUnknownFields);
}

TEST(SampleTest, WhereTheIdIs) {
  SampleFormat format;
  uint64_t id = 0;
  auto sample = sample_words({11, 12, 13, 14});
  auto other = sample_words({21, 22, 23, 24});
  const Record sample_record = record_of(PERF_RECORD_SAMPLE, sample.bytes());
  const Record other_record = record_of(PERF_RECORD_COMM, other.bytes());

  format.sample_type = PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_TID | PERF_SAMPLE_ID;
  format.sample_id_all = true;
  EXPECT_TRUE(record_event_id(sample_record, format, id));
  EXPECT_EQ(id, 11U);
  EXPECT_TRUE(record_event_id(other_record, format, id));
  EXPECT_EQ(id, 24U);

  format.sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_TIME | PERF_SAMPLE_ID | PERF_SAMPLE_CPU;
  EXPECT_TRUE(record_event_id(sample_record, format, id));
  EXPECT_EQ(id, 13U);
  EXPECT_TRUE(record_event_id(other_record, format, id));
  EXPECT_EQ(id, 23U);

  format.sample_id_all = false;
  EXPECT_FALSE(record_event_id(other_record, format, id));
  format.sample_type = PERF_SAMPLE_IP;
  EXPECT_FALSE(record_event_id(sample_record, format, id));
  EXPECT_FALSE(record_event_id(record_of(kRecordAuxtrace, other.bytes()), format, id));
}

TEST(RecordTest, HeadersAreChecked) {
  ByteWriter out;
  out.write(perf_event_header{PERF_RECORD_COMM, 7, 16});
  out.u64(1);
  Record record;
  EXPECT_EQ(first_record(out.bytes(), record), RecordStatus::kOk);
  EXPECT_EQ(record.misc, 7);
  EXPECT_EQ(record.body().size(), 8U);
  for (size_t size = 0; size < 16; ++size) {
    EXPECT_EQ(first_record(out.bytes().first(size), record), RecordStatus::kShort) << size;
  }
  ByteWriter bad;
  bad.write(perf_event_header{PERF_RECORD_COMM, 0, 7});
  EXPECT_EQ(first_record(bad.bytes(), record), RecordStatus::kBadSize);
}

TEST(RecordTest, Names) {
  EXPECT_EQ(record_type_name(PERF_RECORD_MMAP2), "MMAP2");
  EXPECT_EQ(record_type_name(PERF_RECORD_AUX_OUTPUT_HW_ID), "AUX_OUTPUT_HW_ID");
  EXPECT_EQ(record_type_name(kRecordAuxtraceInfo), "AUXTRACE_INFO");
  EXPECT_EQ(record_type_name(kRecordCompressed), "COMPRESSED");
  EXPECT_EQ(record_type_name(kRecordFinishedInit), "FINISHED_INIT");
  EXPECT_FALSE(is_known_record_type(0));
  EXPECT_FALSE(is_known_record_type(50));
  EXPECT_FALSE(is_known_record_type(1000));
}

}  // namespace
}  // namespace auxtrail::abi
