// Text of samples, records and packets, with Linux perf as the oracle.
#include <gmock/gmock.h>

#include <algorithm>
#include <regex>

#include "analysis/record_text.h"
#include "analysis/sample_text.h"
#include "analysis/testing/traced_file.h"
#include "perfdata/testing/command.h"
#include "perfdata/testing/synthetic.h"

namespace auxtrail::analysis {
namespace {

using perfdata::testing::CommandOutcome;
using perfdata::testing::lines_of;
using perfdata::testing::ScratchDirectory;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

std::string to_string(const fmt::memory_buffer& buffer) { return {buffer.data(), buffer.size()}; }

void write_bytes(const std::string& path, const std::vector<std::byte>& bytes) {
  perfdata::testing::write_file(path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

std::string our_script(const std::vector<std::byte>& file, const ScriptFields& fields,
                       size_t max_branches) {
  auto recording = Recording::from_bytes(file, "test");
  EXPECT_TRUE(recording);
  SampleText text(*recording, fields, max_branches);
  SampleWalk walk(*recording, {.decode = fields.needs_history()});
  fmt::memory_buffer out;
  walk.run([&](const WalkedSample& sample) {
    text.append(sample, out);
    return true;
  });
  return to_string(out);
}

class PerfTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!perfdata::testing::have_perf()) GTEST_SKIP() << "Linux perf is not installed";
  }
  ScratchDirectory scratch_;
};

class PerfScriptTest : public PerfTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(PerfScriptTest, SameText) {
  auto samples = testing::traced_samples(3);
  samples[1].ip = testing::traced_code().leaf;
  const auto file = testing::traced_file(samples);
  write_bytes(scratch_.file("perf.data"), file);
  const CommandOutcome perf =
      scratch_.run(std::string("perf script -i perf.data --no-itrace -F ") + GetParam());
  ASSERT_EQ(perf.status, 0) << perf.err;
  const auto fields = ScriptFields::parse(GetParam());
  ASSERT_TRUE(fields);
  EXPECT_EQ(our_script(file, *fields, 0), perf.out);
}

INSTANTIATE_TEST_SUITE_P(Fields, PerfScriptTest,
                         ::testing::Values("comm,tid,cpu,time,period,event,ip,sym,symoff,dso",
                                           "comm,pid,tid,time,event,ip,sym,dso", "pid,event,ip",
                                           "tid,ip,sym", "comm,ip,sym,symoff", "time,ip,dso",
                                           "cpu,period,ip"));

// The branches of full trace. Time is left out: perf estimates it from branch to branch.
class PerfBranchTextTest : public PerfTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(PerfBranchTextTest, SameText) {
  const testing::TracedThread thread{perfdata::testing::kPid};
  const auto file = testing::full_trace_file(testing::full_trace(thread, 0, 500));
  write_bytes(scratch_.file("perf.data"), file);
  const CommandOutcome perf =
      scratch_.run(std::string("perf script -i perf.data --itrace=be -F ") + GetParam());
  ASSERT_EQ(perf.status, 0) << perf.err;
  ASSERT_EQ(perf.err.find("error"), std::string::npos) << perf.err;
  auto recording = Recording::from_bytes(file, "test");
  SampleText text(*recording, *ScriptFields::parse(GetParam()), 0);
  struct Printer : TraceVisitor {
    explicit Printer(SampleText& sample_text) : text(sample_text) {}
    void on_branch(const TracePosition& position, const decode::Branch& branch) override {
      text.append(position, branch, out);
    }
    SampleText& text;
    fmt::memory_buffer out;
  } printer(text);
  SampleWalk(*recording).run([](const WalkedSample&) { return true; }, printer);
  EXPECT_EQ(to_string(printer.out), perf.out);
}

INSTANTIATE_TEST_SUITE_P(Fields, PerfBranchTextTest,
                         ::testing::Values("comm,tid,cpu,period,event,ip,sym,symoff,dso,addr",
                                           "comm,pid,tid,event,ip,addr,sym,dso", "ip,addr",
                                           "tid,ip,sym", "event,ip,addr,sym,symoff"));

// perf 6.1 ends each entry with "/", earlier and later ones do not; and its blanks vary: none
// between ip and brstacksym.
std::string normalised(const std::string& line) {
  const std::string text = std::regex_replace(line, std::regex("/0/( |$)"), "/0$1");
  return std::regex_replace(text, std::regex(" +"), "");
}

std::vector<std::string> normalised_lines(const std::string& text) {
  std::vector<std::string> lines;
  for (const std::string& line : lines_of(text)) lines.push_back(normalised(line));
  return lines;
}

TEST_F(PerfTest, SameBranchStacks) {
  const auto file = testing::traced_file(testing::traced_samples(3));
  write_bytes(scratch_.file("perf.data"), file);
  for (const char* fields : {"ip,brstack", "ip,brstacksym"}) {
    for (const size_t count : {3, 64}) {
      const CommandOutcome perf =
          scratch_.run(fmt::format("perf script -i perf.data --itrace=L{} -F {}", count, fields));
      ASSERT_EQ(perf.status, 0) << perf.err;
      EXPECT_THAT(normalised_lines(our_script(file, *ScriptFields::parse(fields), count)),
                  ElementsAreArray(normalised_lines(perf.out)))
          << fields << " " << count;
    }
  }
}

TEST(SampleTextTest, BranchListIsNewestLast) {
  const auto file = testing::traced_file(testing::traced_samples(1));
  const auto lines = lines_of(our_script(file, *ScriptFields::parse("ip,brlist"), 4));
  const testing::TracedCode code = testing::traced_code();
  ASSERT_EQ(lines.size(), 6u);
  EXPECT_THAT(lines[2], HasSubstr(fmt::format("{:x} traced_main", code.loop)));
  EXPECT_THAT(lines[2], HasSubstr(fmt::format("=>  {:>16x} traced_leaf+0x0", code.leaf)));
  EXPECT_THAT(lines[2], HasSubstr("call"));
  EXPECT_THAT(lines[3], HasSubstr(fmt::format("=>  {:>16x} traced_main", code.after)));
  EXPECT_THAT(lines[3], HasSubstr("return"));
  EXPECT_THAT(lines[4], HasSubstr("tr end"));
  EXPECT_EQ(lines[5], "");
}

std::string our_newest(const std::vector<std::byte>& file, const ScriptFields& fields,
                       size_t max_branches) {
  auto recording = Recording::from_bytes(file, "test");
  SampleText text(*recording, fields, max_branches);
  SampleWalk walk(*recording, {.newest_branches = max_branches + 1});
  fmt::memory_buffer out;
  walk.run([&](const WalkedSample& sample) {
    text.append(sample, out);
    return true;
  });
  return to_string(out);
}

TEST(SampleTextTest, TheNewestBranchesAloneGiveTheSameText) {
  const auto file = testing::traced_file(testing::traced_samples(5));
  for (const size_t count : {1, 3, 100}) {
    for (const char* fields : {"ip,brstack", "ip,brstacksym", "ip,brlist"}) {
      const auto chosen = *ScriptFields::parse(fields);
      EXPECT_EQ(our_newest(file, chosen, count), our_script(file, chosen, count))
          << fields << " " << count;
    }
  }
}

TEST(SampleTextTest, CallStackEndsInTheUnknown) {
  auto samples = testing::traced_samples(1);
  const auto file = testing::traced_file(samples);
  const std::string text = our_script(file, *ScriptFields::parse("ip,callstack"), 4);
  const auto lines = lines_of(text);
  ASSERT_GE(lines.size(), 4u) << text;
  EXPECT_THAT(lines[1], HasSubstr(fmt::format("{:x} traced_", samples[0].ip))) << text;
  EXPECT_THAT(lines[lines.size() - 2], HasSubstr("[unknown]")) << text;
  EXPECT_EQ(lines.back(), "");
}

TEST(ScriptFieldsTest, DefaultsCanBeChanged) {
  const auto fields = ScriptFields::parse("+brstack,-dso");
  ASSERT_TRUE(fields);
  EXPECT_TRUE(fields->has(ScriptField::kBrstack));
  EXPECT_TRUE(fields->has(ScriptField::kIp));
  EXPECT_FALSE(fields->has(ScriptField::kDso));
  EXPECT_TRUE(fields->needs_history());
}

TEST(ScriptFieldsTest, WrongNamesAreRefused) {
  for (const char* text : {"", "foo", "ip,", "+ip,sym", "ip,+sym", "-", "+"}) {
    EXPECT_FALSE(ScriptFields::parse(text)) << text;
  }
}

TEST(ScriptFieldsTest, MissingFieldsAreSaid) {
  perfdata::Event event;
  event.name = "cycles";
  event.format.sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_TID;
  EXPECT_TRUE(ScriptFields::parse("comm,ip,event")->check(event));
  const auto status = ScriptFields::parse("ip,time")->check(event);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message(), HasSubstr("'cycles' have no time"));
  EXPECT_FALSE(ScriptFields::defaults().available(event).has(ScriptField::kTime));
  EXPECT_TRUE(ScriptFields::defaults().available(event).has(ScriptField::kIp));
}

// "offset:text" of each packet line, without blanks. perf prints padding byte by byte or as bytes
// of the packet before it, and addresses in their compressed form: they are left out.
std::vector<std::string> packet_lines(const std::string& text) {
  static const std::regex kPacket("^\\.  ([0-9a-f]{8}): ( ?[0-9a-f]{2} )+ *(.*)$");
  static const std::regex kAddress("(TIP|TIP.PGE|FUP) 0x[0-9a-f]+$");
  std::vector<std::string> lines;
  for (const std::string& line : lines_of(text)) {
    std::smatch parts;
    if (!std::regex_match(line, parts, kPacket) || line.find("PAD") != std::string::npos) continue;
    const std::string packet = std::regex_replace(parts[3].str(), kAddress, "$1");
    lines.push_back(normalised(parts[1].str() + ":" + packet));
  }
  return lines;
}

TEST_F(PerfTest, SamePackets) {
  const auto samples = testing::traced_samples(3);
  const auto file = testing::traced_file(samples);
  write_bytes(scratch_.file("perf.data"), file);
  const CommandOutcome perf = scratch_.run("perf script -D -i perf.data");
  ASSERT_EQ(perf.status, 0) << perf.err;
  fmt::memory_buffer ours;
  for (const auto& sample : samples) append_packet_text(sample.aux, ours);
  EXPECT_EQ(packet_lines(to_string(ours)).size(), 14 * samples.size());
  EXPECT_THAT(packet_lines(to_string(ours)), ElementsAreArray(packet_lines(perf.out)));
}

TEST(PacketTextTest, AddressesAreWhole) {
  fmt::memory_buffer out;
  append_packet_text(testing::traced_window(1), out);
  const std::string text = to_string(out);
  const testing::TracedCode code = testing::traced_code();
  EXPECT_THAT(text, HasSubstr(fmt::format("TIP.PGE {:#x}\n", code.main)));
  EXPECT_THAT(text, HasSubstr(fmt::format("TIP {:#x}\n", code.after)));
  EXPECT_THAT(text, HasSubstr(fmt::format("FUP {:#x}\n", code.end)));
}

TEST(PacketTextTest, GarbageIsSkippedToTheNextPsb) {
  auto trace = testing::traced_window(1);
  const std::vector<std::byte> garbage(8, std::byte{0x15});  // no packet begins so
  trace.insert(trace.begin(), garbage.begin(), garbage.end());
  fmt::memory_buffer out;
  append_packet_text(trace, out);
  const auto lines = lines_of(to_string(out));
  EXPECT_THAT(lines[0], HasSubstr("8 bytes skipped"));
  EXPECT_THAT(lines[1], HasSubstr(".  00000008:"));
  EXPECT_THAT(lines[1], HasSubstr("PSB"));
}

TEST(PacketTextTest, ACutPacketIsTheEnd) {
  auto trace = testing::traced_window(1);
  trace.resize(20);  // inside TSC
  fmt::memory_buffer out;
  append_packet_text(trace, out);
  EXPECT_THAT(lines_of(to_string(out)).back(), HasSubstr("4 bytes skipped"));
}

// Every record of the file has its line, at its own offset and size: together they are the data.
TEST(RecordTextTest, LinesCoverTheData) {
  for (const auto& file : {perfdata::testing::side_band_file(), perfdata::testing::intel_pt_file(),
                           perfdata::testing::every_field_file()}) {
    auto reader = perfdata::Reader::from_bytes(file, "test");
    ASSERT_TRUE(reader);
    uint64_t expected_offset = reader->data_offset();
    reader->for_each([&](const perfdata::DataRecord& record) {
      fmt::memory_buffer out;
      append_record_text(*reader, record, out);
      const std::string line = to_string(out);
      EXPECT_THAT(line, ::testing::StartsWith(fmt::format(
                            "{:#x} [{:#x}] {}", expected_offset, record.record.bytes.size(),
                            abi::record_type_name(record.record.type))));
      EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
      EXPECT_EQ(line.find("malformed"), std::string::npos) << line;
      expected_offset += record.record.bytes.size() + record.payload.size();
      return true;
    });
    EXPECT_EQ(expected_offset, reader->data_offset() + reader->data_bytes());
  }
}

}  // namespace
}  // namespace auxtrail::analysis
