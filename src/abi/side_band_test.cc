// Side-band records: what the builders write, the parsers read; both layouts are checked against
// the kernel's and Linux perf's records in src/perfdata/perf_oracle_test.cc.
#include "abi/side_band.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include "abi/side_band_build.h"

namespace auxtrail::abi {
namespace {

SampleFormat full_trailer() {
  SampleFormat format;
  format.sample_type = PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_ID | PERF_SAMPLE_STREAM_ID |
                       PERF_SAMPLE_CPU | PERF_SAMPLE_IDENTIFIER;
  format.sample_id_all = true;
  return format;
}

SampleId some_id() {
  SampleId id;
  id.pid = 1;
  id.tid = 2;
  id.time_ns = 3;
  id.id = 4;
  id.stream_id = 5;
  id.cpu = 6;
  return id;
}

void expect_id(const SampleId& id) {
  EXPECT_EQ(id.pid, 1U);
  EXPECT_EQ(id.tid, 2U);
  EXPECT_EQ(id.time_ns, 3U);
  EXPECT_EQ(id.id, 4U);
  EXPECT_EQ(id.stream_id, 5U);
  EXPECT_EQ(id.cpu, 6U);
}

Record only_record(const ByteWriter& out) {
  Record record;
  EXPECT_EQ(first_record(out.bytes(), record), RecordStatus::kOk);
  EXPECT_EQ(record.bytes.size(), out.size()) << "exactly one record";
  EXPECT_EQ(out.size() % 8, 0U);
  return record;
}

TEST(SideBandTest, Mmap2WithInodeAndWithBuildId) {
  for (const size_t path_bytes : {size_t{1}, size_t{7}, size_t{8}, size_t{100}}) {
    for (const size_t id_bytes : {size_t{0}, size_t{8}, size_t{20}}) {
      const std::string path(path_bytes, 'p');
      const std::vector<std::byte> build_id(id_bytes, std::byte{0xaa});
      MmapRecord in;
      in.id = some_id();
      in.misc = PERF_RECORD_MISC_USER;
      in.pid = 10;
      in.tid = 11;
      in.address = 0x7f0000001000;
      in.size_bytes = 0x2000;
      in.file_offset = 0x3000;
      in.device_major = 8;
      in.device_minor = 1;
      in.inode = 99;
      in.inode_generation = 7;
      in.build_id = build_id;
      in.protection = PROT_READ | PROT_EXEC;
      in.flags = MAP_PRIVATE;
      in.path = path;
      ByteWriter out;
      append_mmap2(out, full_trailer(), in);
      MmapRecord back;
      ASSERT_EQ(parse(only_record(out), full_trailer(), back), ParseStatus::kOk);
      expect_id(back.id);
      EXPECT_EQ(back.path, path);
      EXPECT_EQ(back.address, in.address);
      EXPECT_EQ(back.file_offset, in.file_offset);
      EXPECT_EQ(back.build_id.size(), id_bytes);
      EXPECT_EQ(back.inode, id_bytes == 0 ? 99U : 0U);
      EXPECT_TRUE(back.executable());
    }
  }
}

TEST(SideBandTest, CommForkExitLostAuxStart) {
  const SampleFormat format = full_trailer();
  {
    ByteWriter out;
    append_comm(out, format, {some_id(), 7, 8, true, "a name"});
    CommRecord back;
    ASSERT_EQ(parse(only_record(out), format, back), ParseStatus::kOk);
    expect_id(back.id);
    EXPECT_EQ(back.name, "a name");
    EXPECT_TRUE(back.exec);
  }
  for (const bool fork : {true, false}) {
    ByteWriter out;
    const TaskRecord in{some_id(), 1, 2, 3, 4, 5};
    fork ? append_fork(out, format, in) : append_exit(out, format, in);
    TaskRecord back;
    const Record record = only_record(out);
    EXPECT_EQ(record.type, fork ? uint32_t{PERF_RECORD_FORK} : uint32_t{PERF_RECORD_EXIT});
    ASSERT_EQ(parse(record, format, back), ParseStatus::kOk);
    EXPECT_EQ(back.parent_pid, 2U);
    EXPECT_EQ(back.tid, 3U);
    EXPECT_EQ(back.parent_tid, 4U);
    EXPECT_EQ(back.time_ns, 5U);
  }
  {
    ByteWriter out;
    append_lost(out, format, {some_id(), 77, 5});
    LostRecord back;
    ASSERT_EQ(parse(only_record(out), format, back), ParseStatus::kOk);
    EXPECT_EQ(back.event_id, 77U);
    EXPECT_EQ(back.lost, 5U);
  }
  {
    ByteWriter out;
    append_lost_samples(out, format, {some_id(), 0, 6});
    LostRecord back;
    ASSERT_EQ(parse(only_record(out), format, back), ParseStatus::kOk);
    EXPECT_EQ(back.lost, 6U);
  }
  {
    ByteWriter out;
    append_aux(out, format, {some_id(), 1, 2, PERF_AUX_FLAG_PARTIAL});
    AuxRecord back;
    ASSERT_EQ(parse(only_record(out), format, back), ParseStatus::kOk);
    EXPECT_EQ(back.aux_size_bytes, 2U);
    EXPECT_EQ(back.flags, uint64_t{PERF_AUX_FLAG_PARTIAL});
  }
  {
    ByteWriter out;
    append_itrace_start(out, format, {some_id(), 21, 22});
    ItraceStartRecord back;
    ASSERT_EQ(parse(only_record(out), format, back), ParseStatus::kOk);
    EXPECT_EQ(back.tid, 22U);
  }
}

TEST(SideBandTest, WrongTypesAndShortRecords) {
  ByteWriter out;
  append_comm(out, full_trailer(), {some_id(), 7, 8, true, "a name"});
  Record record = only_record(out);
  LostRecord lost;
  EXPECT_EQ(parse(record, full_trailer(), lost), ParseStatus::kWrongType);
  CommRecord comm;
  record.bytes = record.bytes.first(8 + 40);  // shorter than the trailer
  EXPECT_EQ(parse(record, full_trailer(), comm), ParseStatus::kShort);
  record.bytes = out.bytes().first(8 + 48 + 7);  // one byte too few for pid and tid
  EXPECT_EQ(parse(record, full_trailer(), comm), ParseStatus::kShort);
}

}  // namespace
}  // namespace auxtrail::abi
