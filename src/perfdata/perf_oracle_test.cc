// Linux perf as oracle: its files read by us, our files read by it.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "abi/side_band_build.h"
#include "perfdata/elf_build_id.h"
#include "perfdata/reader.h"
#include "perfdata/testing/command.h"
#include "perfdata/testing/perf_dump.h"
#include "perfdata/testing/synthetic.h"
#include "perfdata/writer.h"

namespace auxtrail::perfdata {
namespace {

using namespace testing;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class PerfOracleTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!have_perf()) GTEST_SKIP() << "Linux perf is not installed (package linux-perf)";
  }
  std::string put(const std::string& name, const std::vector<std::byte>& bytes) {
    write_file(scratch_.file(name), {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    return scratch_.file(name);
  }
  void compare(const std::string& path, uint64_t min_samples) {
    auto reader = Reader::open(path);
    ASSERT_TRUE(reader) << reader.error().message();
    const Dump ours = our_dump(*reader);
    const Dump theirs = perf_dump(scratch_, path);
    EXPECT_GE(theirs.samples, min_samples);
    EXPECT_EQ(theirs.samples, ours.samples);
    EXPECT_EQ(difference(theirs.kernel, ours.kernel), "");
    EXPECT_EQ(difference(theirs.tools, ours.tools), "");
    EXPECT_EQ(reader->statistics().malformed_records, 0U);
    EXPECT_EQ(reader->statistics().unknown_event_ids, 0U);
    EXPECT_EQ(reader->statistics().truncated_bytes, 0U);
    EXPECT_EQ(reader->statistics().out_of_order_records, 0U);
    EXPECT_EQ(reader->statistics().undecompressed_records, 0U);
  }

  ScratchDirectory scratch_;
};

// ---- files of perf record ----

struct Recording {
  const char* name;
  const char* options;
};

void PrintTo(const Recording& recording, std::ostream* out) { *out << recording.name; }

class RecordedTest : public PerfOracleTest, public ::testing::WithParamInterface<Recording> {};

constexpr char kBusyLoop[] = "sh -c 'i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done; /bin/true'";

TEST_P(RecordedTest, IsReadAsPerfReadsIt) {
  const auto recorded =
      scratch_.run(fmt::format("perf record {} -o x.data -- {}", GetParam().options, kBusyLoop));
  if (recorded.status != 0) {
    GTEST_SKIP() << "perf record does not work here: " << recorded.err.substr(0, 300);
  }
  compare(scratch_.file("x.data"), 10);
}

// Names, command line, host and clock as perf's own header printer tells them.
TEST_P(RecordedTest, HeaderIsReadAsPerfReadsIt) {
  const auto recorded =
      scratch_.run(fmt::format("perf record {} -o x.data -- /bin/true", GetParam().options));
  if (recorded.status != 0) {
    GTEST_SKIP() << "perf record does not work here: " << recorded.err.substr(0, 300);
  }
  auto reader = Reader::open(scratch_.file("x.data"));
  ASSERT_TRUE(reader) << reader.error().message();
  const auto header = scratch_.run("perf report -f -i x.data --header-only").out;
  const Features& features = reader->features();
  EXPECT_THAT(header, HasSubstr("# hostname : " + features.hostname + "\n"));
  EXPECT_THAT(header, HasSubstr("# os release : " + features.os_release + "\n"));
  EXPECT_THAT(header, HasSubstr("# perf version : " + features.version + "\n"));
  EXPECT_THAT(header, HasSubstr("# arch : " + features.arch + "\n"));
  EXPECT_THAT(header, HasSubstr("# cpuid : " + features.cpuid + "\n"));
  ASSERT_TRUE(features.cpus);
  EXPECT_THAT(header, HasSubstr(fmt::format("# nrcpus online : {}\n", features.cpus->second)));
  ASSERT_TRUE(features.total_memory_kib);
  EXPECT_THAT(header,
              HasSubstr(fmt::format("# total memory : {} kB\n", *features.total_memory_kib)));
  std::string command;
  for (const std::string& word : features.command_line) command += word + " ";
  EXPECT_THAT(header, HasSubstr("# cmdline : " + command));
  for (const Event& event : reader->events()) {
    EXPECT_THAT(header, HasSubstr(fmt::format("# event : name = {}, , id = {{ {}", event.name,
                                              fmt::join(event.ids, ", "))));
  }
  ASSERT_FALSE(features.pmus.empty());
  for (const PmuMapping& pmu : features.pmus) {
    EXPECT_THAT(header, HasSubstr(fmt::format("{} = {}", pmu.name, pmu.type)));
  }
  const auto listed = scratch_.run("perf buildid-list -f -i x.data").out;
  for (const BuildId& entry : features.build_ids) {
    std::string id;
    for (const std::byte byte : entry.id) id += fmt::format("{:02x}", static_cast<int>(byte));
    EXPECT_THAT(listed, HasSubstr(id));
    EXPECT_THAT(listed, HasSubstr(entry.path));
  }
  EXPECT_EQ(reader->statistics().bad_features, 0U);
}

INSTANTIATE_TEST_SUITE_P(
    Recordings, RecordedTest,
    ::testing::Values(
        Recording{"CallchainTwoEvents", "-e cpu-clock,task-clock -F 999 -g --all-user"},
        Recording{"Clockid", "-e cpu-clock:u -F 4000 --clockid mono"},
        Recording{"Compressed", "-z -e cpu-clock -F 4000 -g"},
        Recording{"GroupReadStackRegisters",
                  "-e '{cpu-clock,page-faults,context-switches}:S' --user-regs=ax,ip "
                  "--call-graph dwarf,1024 -F 500"},
        Recording{"EverySampleField",
                  "-e task-clock -F 999 -d --phys-data --data-page-size --code-page-size -W "
                  "--sample-cpu --sample-identifier -T --weight --intr-regs=ax,bx -g"},
        Recording{"ManyProcessesAndBuildIds",
                  "-e cpu-clock -F 2000 -a --buildid-mmap --namespaces --switch-events"},
        Recording{"Counting", "-e task-clock -c 100000 -s --no-inherit"}),
    [](const auto& param_info) { return std::string(param_info.param.name); });

// ---- a real file with hardware branch records, of an old perf with a short attr ----

TEST_F(PerfOracleTest, HardwareBranchStacks) {
  const std::string path = test_data("lbr_perfdata/autofdo-test.lbr");
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no test data at " << path;
  auto reader = Reader::open(path);
  ASSERT_TRUE(reader) << reader.error().message();
  EXPECT_EQ(reader->events().front().name, "br_inst_exec:taken");
  EXPECT_EQ(reader->events().front().ids.size(), 24U);
  const Dump ours = our_dump(*reader);
  const Dump theirs = perf_dump(scratch_, path);
  EXPECT_EQ(ours.samples, theirs.samples);
  EXPECT_GT(ours.samples, 9000U);
  EXPECT_GT(ours.kernel.size(), 100000U) << "16 branches per sample";
  EXPECT_EQ(difference(theirs.kernel, ours.kernel), "");
}

// ---- our files ----

// "TYPE: FIELDS" of the records of full trace as perf -D prints them.
TEST_F(PerfOracleTest, OurFullTraceIsReadByPerf) {
  put("x.data", full_trace_file());
  const auto dump = scratch_.run("perf script -f -D -i x.data");
  EXPECT_EQ(dump.status, 0) << dump.err;
  for (const char* expected :
       {"PERF_RECORD_ITRACE_START pid: 4242 tid: 4242",
        "PERF_RECORD_ITRACE_START pid: 4242 tid: 4243",
        "PERF_RECORD_AUX offset: 0 size: 0x18 flags: 0 []",
        "PERF_RECORD_AUX offset: 0x18 size: 0x18 flags: 0x5 [TP]",
        "PERF_RECORD_AUXTRACE size: 0x18  offset: 0  ref: 0x3e8  idx: 0  tid: 4242  cpu: -1",
        "PERF_RECORD_AUXTRACE size: 0x8  offset: 0  ref: 0x3e8  idx: 1  tid: 4243  cpu: -1",
        "PERF_RECORD_AUXTRACE size: 0x8  offset: 0x18  ref: 0x7d0  idx: 0  tid: 4242  cpu: -1",
        "Filter string       filter 0x1000/0x80@/usr/bin/tiny"}) {
    EXPECT_THAT(dump.out, HasSubstr(expected));
  }
  auto reader = Reader::open(scratch_.file("x.data"));
  std::string payloads;
  reader->for_each([&](const DataRecord& record) {
    payloads.append(reinterpret_cast<const char*>(record.payload.data()), record.payload.size());
    return true;
  });
  EXPECT_EQ(payloads, std::string("in two pieces of a ring\0eight ofmore\0\0\0\0", 40));
  EXPECT_EQ(reader->statistics().aux_truncated, 1U);
  EXPECT_EQ(reader->statistics().aux_partial, 1U);
  EXPECT_EQ(reader->features().auxtrace_index.size(), 3U);
}

TEST_F(PerfOracleTest, OurSideBandIsReadByPerf) { compare(put("x.data", side_band_file()), 0); }
TEST_F(PerfOracleTest, OurEveryFieldSampleIsReadByPerf) {
  const std::string path = put("x.data", every_field_file());
  compare(path, 1);
  const auto dump = scratch_.run("perf script -f -i x.data -D");
  EXPECT_EQ(dump.status, 0) << dump.err;
  for (const char* expected :
       {"5000000123 ",
        "PERF_RECORD_SAMPLE(IP, 0x2): 4242/4243: 0x401234 period: 777 addr: 0xadd0e55",
        "... FP chain: nr:3", "... user regs: mask 0x7 ABI 64-bit",
        "... intr regs: mask 0x3 ABI 64-bit", ".... AX    0x00000000000000a1",
        ".... BX    0x00000000000000e5", "... ustack: size 8", "... weight: 1,0x2",
        "data_src: 0x68100142", "phys_addr: 0xfee1f00d", ".. data page size: 4K",
        ".. code page size: 2M", "... transaction: 2", "value 000000000000115c, lost 5"}) {
    EXPECT_THAT(dump.out, HasSubstr(expected));
  }
}

TEST_F(PerfOracleTest, OurHeaderIsReadByPerf) {
  put("x.data", intel_pt_file());
  const auto header = scratch_.run("perf report -f -i x.data --header-only");
  EXPECT_EQ(header.status, 0);
  EXPECT_EQ(header.err, "");
  for (const char* expected :
       {"# hostname : testhost\n", "# os release : 6.1.0-test\n",
        "# perf version : auxtrail-test\n", "# arch : x86_64\n", "# nrcpus online : 2\n",
        "# nrcpus avail : 4\n", "# cpudesc : A processor\n", "# cpuid : GenuineIntel,6,92,2\n",
        "# total memory : 1234567 kB\n", "# cmdline : auxtrail record -- true",
        "# event : name = intel_pt//u, , id = { 11 }, type = 8",
        "# event : name = cpu-clock:u, , id = { 101, 102 }, type = 1",
        "# pmu mappings: software = 1, intel_pt = 8\n", "# contains AUX area data",
        "# time of first sample : 1.000000\n", "# time of last sample : 2.000000\n",
        "# clockid frequency: 1000 MHz\n", "# clockid: monotonic"}) {
    EXPECT_THAT(header.out, HasSubstr(expected));
  }
  const auto ids = scratch_.run("perf buildid-list -f -i x.data");
  EXPECT_THAT(ids.out, HasSubstr("abababababababababababababababababababab /usr/bin/true"));
  EXPECT_THAT(ids.out, HasSubstr("cdcdcdcdcdcdcdcd"));
}

TEST_F(PerfOracleTest, OurThisMachineAsPerfSeesIt) {
  const auto recorded = scratch_.run("perf record -e cpu-clock:u -o x.data -- /bin/true");
  if (recorded.status != 0) GTEST_SKIP() << "perf record does not work here: " << recorded.err;
  auto reader = Reader::open(scratch_.file("x.data"));
  ASSERT_TRUE(reader);
  Features ours;
  describe_this_machine(ours);
  EXPECT_EQ(ours.hostname, reader->features().hostname);
  EXPECT_EQ(ours.os_release, reader->features().os_release);
  EXPECT_EQ(ours.arch, reader->features().arch);
  EXPECT_EQ(ours.cpuid, reader->features().cpuid);
  EXPECT_EQ(ours.cpu_description, reader->features().cpu_description);
  EXPECT_EQ(ours.cpus, reader->features().cpus);
  for (const BuildId& entry : reader->features().build_ids) {
    if (entry.path.empty() || entry.path[0] != '/') continue;
    const auto id = elf_build_id(entry.path);
    ASSERT_TRUE(id) << entry.path;
    EXPECT_EQ(*id, entry.id) << entry.path;
  }
}

// A recorder that died: no features but AUXTRACE, and perf still reads the records.
TEST_F(PerfOracleTest, AnUnclosedFileIsReadByPerf) {
  auto writer = Writer::create(scratch_.file("x.data"), intel_pt_events());
  ASSERT_TRUE(writer);
  ByteWriter out;
  for (uint64_t at = 0; at < 10; ++at) append_aux_sample(out, 0x1000 + at, 500 + at, {});
  ASSERT_TRUE(writer->append(out.bytes()));
  ASSERT_TRUE(writer->flush());
  compare(scratch_.file("x.data"), 10);
  const auto script = scratch_.run("perf script -f -i x.data -F ip");
  EXPECT_EQ(script.status, 0);
  EXPECT_EQ(script.err, "");
  EXPECT_EQ(lines_of(script.out).size(), 10U);
}

}  // namespace
}  // namespace auxtrail::perfdata
