// `auxtrail decode` as a user meets it: real traces with known totals, both decoders, every option,
// and what it says of wrong files and words.
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <xxhash.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/commands.h"
#include "cli/testing/run_command.h"
#include "flow/testing/packet_bytes.h"
#include "perfdata/testing/command.h"

namespace auxtrail::cli {
namespace {

using flow::test::PacketBytes;
using perfdata::testing::ScratchDirectory;
using perfdata::testing::test_data;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::Outcome;
using ::testing::StartsWith;

Outcome decode(const Arguments& words) { return testing::run(run_decode, words); }

Arguments joined(Arguments words, const Arguments& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// The totals of ../shared/README.md: libipt's own.
struct KvmTrace {
  const char* name;
  const char* trace;
  const char* pages;
  const char* filter;
  uint64_t tnt_bits;
  uint64_t tips;
  uint64_t branches;  // taken or not
  uint64_t instructions;
};
void PrintTo(const KvmTrace& trace, std::ostream* out) { *out << trace.name; }

const std::vector<KvmTrace> kKvmTraces = {
    {"Unzip", "Unzip/trace", "Unzip/data", "0x400000-0x427000", 45'985, 121, 46'761, 149'576},
    {"foo", "foo/trace", "foo/data", "0x7ffff7819000-0x7ffff79ca000", 22'298, 2'346, 29'225,
     117'967},
    {"avscript_32", "avscript_32/failed_trace_12709_1", "avscript_32/page_cache",
     "0x1000-0x7ffffffff000", 234'320, 10'473, 316'133, 1'114'194}};
const KvmTrace kIncomplete = {
    "dyn_test", "dyn_test/sample_raw_0", "dyn_test/page_cache", "0x1000-0x7ffffffff000", 436, 82, 0,
    870};

Arguments kvm_words(const KvmTrace& trace) {
  const std::string pages = test_data(fmt::format("kvm_pt/{}", trace.pages));
  return {"--pt",     test_data(fmt::format("kvm_pt/{}", trace.trace)),
          "--cpu",    "6/94",
          "--filter", trace.filter,
          "--pages",  fmt::format("{0}.addr:{0}.dump", pages)};
}

// The hash of what --branches printed, computed as the man page says.
std::string hash_of_lines(const std::string& text) {
  const std::map<std::string, uint64_t> kinds = {
      {"jcc", 0},           {"jmp", 1},     {"call", 2},    {"jmp indirect", 3},
      {"call indirect", 4}, {"return", 5},  {"syscall", 6}, {"far", 7},
      {"async", 8},         {"tr strt", 9}, {"tr end", 10}};
  std::vector<uint64_t> words;
  std::istringstream in(text);
  for (std::string from, to, kind; in >> from >> to && std::getline(in >> std::ws, kind);) {
    words.insert(words.end(),
                 {std::stoull(from, nullptr, 16), std::stoull(to, nullptr, 16), kinds.at(kind)});
  }
  return fmt::format("{:016x}", XXH64(words.data(), words.size() * sizeof(uint64_t), 0));
}

class KvmDecodeTest : public ::testing::TestWithParam<KvmTrace> {
 protected:
  void SetUp() override {
    const std::string root = test_data("kvm_pt");
    if (!std::filesystem::exists(root)) GTEST_SKIP() << "no traces at " << root;
  }
};

TEST_P(KvmDecodeTest, TotalsAreTheKnownOnesWithBothDecoders) {
  std::string hash;
  for (const char* decoder : {"native", "libipt"}) {
    const Outcome outcome =
        decode(joined(kvm_words(GetParam()), {"--stat", "--json", "--decoder", decoder}));
    EXPECT_EQ(outcome.status, 0);
    EXPECT_THAT(outcome.err, IsEmpty());
    const auto json = nlohmann::json::parse(outcome.out);
    EXPECT_EQ(json["tnt_bits"], GetParam().tnt_bits);
    EXPECT_EQ(json["conditional_branches"], GetParam().tnt_bits) << "no return is compressed";
    EXPECT_EQ(json["tip_packets"], GetParam().tips);
    EXPECT_EQ(json["branches"].get<uint64_t>() + json["branches_not_taken"].get<uint64_t>(),
              GetParam().branches);
    EXPECT_EQ(json["instructions"], GetParam().instructions);
    EXPECT_EQ(json["decode_errors"], 0);
    if (hash.empty()) hash = json["branch_hash"];
    EXPECT_EQ(json["branch_hash"], hash) << decoder;
  }
}

TEST_P(KvmDecodeTest, HashIsThatOfTheBranchesPrinted) {
  const Outcome lines = decode(joined(kvm_words(GetParam()), {"--branches"}));
  EXPECT_EQ(lines.status, 0);
  const Outcome totals = decode(kvm_words(GetParam()));
  EXPECT_THAT(totals.out, HasSubstr(hash_of_lines(lines.out)));
  EXPECT_EQ(decode(joined(kvm_words(GetParam()), {"--branches", "--decoder=libipt"})).out,
            lines.out);
}

TEST_P(KvmDecodeTest, PrintsEveryInstruction) {
  const Outcome outcome = decode(joined(kvm_words(GetParam()), {"--insns"}));
  EXPECT_EQ(outcome.status, 0);
  uint64_t instructions = 0;
  for (const std::string& line : perfdata::testing::lines_of(outcome.out)) {
    instructions += !line.empty() && line.front() != '[';
  }
  EXPECT_EQ(instructions, GetParam().instructions);
}

// These traces were made without it.
TEST_P(KvmDecodeTest, NoReturnCompressionChangesNothing) {
  const Outcome with = decode(kvm_words(GetParam()));
  const Outcome without = decode(joined(kvm_words(GetParam()), {"--noretcomp"}));
  EXPECT_EQ(without.status, 0);
  EXPECT_EQ(without.out, with.out);
}

INSTANTIATE_TEST_SUITE_P(All, KvmDecodeTest, ::testing::ValuesIn(kKvmTraces),
                         [](const auto& trace) { return std::string(trace.param.name); });

TEST(DecodeCommandTest, MissingCodeIsCountedAndDecodingGoesOn) {
  if (!std::filesystem::exists(test_data("kvm_pt"))) GTEST_SKIP() << "no real traces";
  const Outcome outcome = decode(joined(kvm_words(kIncomplete), {"--json", "--decoder=libipt"}));
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, HasSubstr("decode errors: no code at the address"));
  const auto json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json["tnt_bits"], kIncomplete.tnt_bits);
  EXPECT_EQ(json["tip_packets"], kIncomplete.tips);
  EXPECT_EQ(json["instructions"], kIncomplete.instructions);
  EXPECT_EQ(json["decode_errors"], json["decode_errors_by_cause"]["no code at the address"]);
  // Ours goes on behind missing code, libipt at the next PSB.
  const Outcome native = decode(joined(kvm_words(kIncomplete), {"--json"}));
  EXPECT_EQ(native.status, 1);
  EXPECT_GE(nlohmann::json::parse(native.out)["instructions"], kIncomplete.instructions);
  for (const char* output : {"--branches", "--insns", "--events"}) {
    const Outcome other = decode(joined(kvm_words(kIncomplete), {output}));
    EXPECT_EQ(other.status, 1) << output;
    EXPECT_THAT(other.err, HasSubstr("decode errors: no")) << output;
  }
}

TEST(DecodeCommandTest, ElfFiles) {
  const std::string folder = test_data("perf_pt/intelpt-trace");
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no traces at " << folder;
  const Arguments trace = {"--pt", folder + "/3842849.trace", "--cpu", "6/79/1", "--branches"};
  const Outcome fixed = decode(joined(trace, {"--elf", folder + "/a.out"}));
  EXPECT_EQ(fixed.status, 0);
  EXPECT_FALSE(fixed.out.empty());
  // Its own base, said again; and another one, where nothing ran.
  EXPECT_EQ(decode(joined(trace, {"--elf", folder + "/a.out:0x400000"})).out, fixed.out);
  EXPECT_EQ(decode(joined(trace, {"--elf", folder + "/a.out:0x900000"})).status, 1);
}

// A trace and code by hand, at 0x1000.
class HandMadeTest : public ::testing::Test {
 protected:
  Arguments files(const PacketBytes& trace, std::string_view code) {
    const auto bytes = trace.bytes();
    perfdata::testing::write_file(scratch_.file("trace"),
                                  {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    perfdata::testing::write_file(scratch_.file("code"), code);
    return {"--pt", scratch_.file("trace"), "--raw", scratch_.file("code") + ":0x1000"};
  }
  static PacketBytes on() { return PacketBytes().psb().mode_exec(1).fup(0x1000).psbend(); }
  ScratchDirectory scratch_;
};

constexpr std::string_view kReturnTwice("\xe8\x01\x00\x00\x00\xc3\xc3", 7);  // call +1; ret; ret

TEST_F(HandMadeTest, BranchesAsText) {
  const Outcome outcome =
      decode(joined(files(on().tnt("T").pgd(0x5000), kReturnTwice), {"--branches"}));
  EXPECT_EQ(outcome.out, "0 1000 tr strt\n1000 1006 call\n1006 1005 return\n1005 5000 return\n");
  EXPECT_EQ(outcome.status, 0);
}

TEST_F(HandMadeTest, WithoutReturnCompressionABitAtAReturnIsAnError) {
  const Arguments words = files(on().tnt("T").pgd(0x5000), kReturnTwice);
  EXPECT_EQ(decode(words).status, 0);
  const Outcome outcome = decode(joined(words, {"--noretcomp"}));
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, HasSubstr("packets and code disagree at offset"));
  const PacketBytes with_tip = on().tip(0x1005).pgd(0x5000);
  EXPECT_EQ(decode(joined(files(with_tip, kReturnTwice), {"--noretcomp"})).status, 0);
}

// jmp rax; of 32 bits it is dec eax and jmp eax.
TEST_F(HandMadeTest, AssumedMode) {
  const PacketBytes trace = PacketBytes().psb().fup(0x1000).psbend().tip(0x1000).pgd(0x5000);
  const Arguments words = files(trace, std::string_view("\x48\xff\xe0", 3));
  const auto instructions = [&](const Arguments& more) {
    const Outcome outcome = decode(joined(joined(words, {"--json"}), more));
    return nlohmann::json::parse(outcome.out)["instructions"].get<uint64_t>();
  };
  EXPECT_EQ(decode(words).status, 1);
  EXPECT_EQ(instructions({}), 0);
  EXPECT_EQ(instructions({"--mode", "64"}), 2);
  EXPECT_EQ(instructions({"--mode=32"}), 4);
  // Packets know better.
  const Arguments told = files(on().tip(0x1000).pgd(0x5000), std::string_view("\x48\xff\xe0", 3));
  EXPECT_EQ(decode(joined(told, {"--mode=32"})).out, decode(told).out);
}

TEST_F(HandMadeTest, Ranges) {
  // Bytes that are no trace and no code around those that are.
  PacketBytes trace = PacketBytes().raw({0x05, 0x05});
  const PacketBytes good = on().tnt("T").pgd(0x5000);
  for (const std::byte byte : good.bytes()) trace.raw({std::to_integer<int>(byte)});
  const size_t end = trace.size();
  trace.raw({0x05});
  (void)files(trace, "\xff\xff" + std::string(kReturnTwice) + "\xff");
  const auto words = [this](const std::string& from, const std::string& to) {
    return Arguments{"--pt", scratch_.file("trace") + from + to, "--raw",
                     scratch_.file("code") + ":2-0x9:0x1000", "--branches"};
  };
  const Outcome whole = decode(words(":0x2", fmt::format("-{}", end)));
  EXPECT_EQ(whole.status, 0);
  EXPECT_THAT(whole.out, HasSubstr("1005 5000 return"));
  EXPECT_EQ(decode(words("", "")).status, 1) << "the byte at the end is no packet";
  // Offsets are those of the file.
  const Outcome rest = decode(words(":2", ""));
  EXPECT_EQ(rest.status, 1);
  EXPECT_THAT(rest.err, HasSubstr(fmt::format("at offset {:#x} of", end)));
}

// jmp +0x10 out of the filter; SKL014 leaves out the address.
TEST_F(HandMadeTest, FilterAndCpu) {
  const PacketBytes trace = on().pgd_no_ip();
  const Arguments words = joined(files(trace, std::string_view("\x90\xeb\x10", 3)),
                                 {"--branches", "--cpu", "6/0x5e/3"});
  for (const char* decoder : {"native", "libipt"}) {
    const Arguments with = joined(words, {"--decoder", decoder, "--filter", "0x1000-0x1008"});
    EXPECT_EQ(decode(with).out, "0 1000 tr strt\n1001 0 jmp\n") << decoder;
    EXPECT_EQ(decode(with).status, 0) << decoder;
    EXPECT_EQ(decode(joined(words, {"--decoder", decoder})).status, 1) << decoder;
    const Arguments two = joined(with, {"--filter", "0x1020-0x1030"});
    EXPECT_EQ(decode(two).out, decode(with).out) << decoder;
  }
  // Where the jump's target is traced, it was not the jump that ended tracing, and there is no code
  // behind it. (libipt 2.0.5 does not look.)
  EXPECT_EQ(
      decode(joined(words, {"--filter", "0x1000-0x1008", "--filter", "0x1010-0x1020"})).status, 1);
  const Arguments stopped =
      joined(words, {"--filter", "0x1000-0x1020", "--filter", "stop:0x1013-0x1013"});
  EXPECT_THAT(decode(stopped).out, HasSubstr("1001 0 jmp"));
}

TEST_F(HandMadeTest, EventsAndTheirTimes) {
  const PacketBytes trace =
      PacketBytes().psb().mode_exec(1).tsc(0x100).fup(0x1000).psbend().tsc(0x200).pgd(0x5000);
  const Arguments words = files(trace, std::string_view("\x90\xff\xe0", 3));
  EXPECT_EQ(decode(joined(words, {"--events"})).out, "[disabled]\n");
  EXPECT_THAT(decode(joined(words, {"--events", "--event-ip"})).out, HasSubstr("5000"));
  EXPECT_THAT(decode(joined(words, {"--events", "--event-time"})).out, HasSubstr("200"));
  EXPECT_EQ(decode(joined(words, {"--insns"})).out,
            "0000000000001000\n0000000000001001\n[disabled]\n");
}

TEST_F(HandMadeTest, NoPsbIsAnError) {
  const Arguments words = files(PacketBytes().tip(0x1000).tip(0x1000), kReturnTwice);
  for (const char* decoder : {"native", "libipt"}) {
    const Outcome outcome = decode(joined(words, {"--decoder", decoder}));
    EXPECT_EQ(outcome.status, 1) << decoder;
    EXPECT_THAT(outcome.err, HasSubstr("no PSB in the trace")) << decoder;
  }
  for (const char* output : {"--insns", "--events"}) {
    const Outcome outcome = decode(joined(words, {output}));
    EXPECT_EQ(outcome.status, 1) << output;
    EXPECT_THAT(outcome.err, HasSubstr("no PSB in the trace")) << output;
  }
}

TEST_F(HandMadeTest, TruncatedPacketIsAnError) {
  const Arguments words = files(on().tip(0x1000).raw({0x6d, 0x00, 0x10}), "\xff\xe0");
  for (const char* decoder : {"native", "libipt"}) {
    const Outcome outcome = decode(joined(words, {"--decoder", decoder}));
    EXPECT_EQ(outcome.status, 1) << decoder;
    EXPECT_THAT(outcome.err, HasSubstr("1 decode errors: truncated packet")) << decoder;
  }
}

// Where a branch led that no packet decides is unknown, whatever address comes next.
TEST_F(HandMadeTest, NoBranchOutOfAnError) {
  const PacketBytes trace = on().tip(0x1002).fup(0x1002).pgd_no_ip();
  const Arguments words = files(trace, std::string_view("\x74\x00\x90\x90", 4));  // je +0; nop
  const Outcome outcome = decode(joined(words, {"--branches"}));
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.out, StartsWith("0 1000 tr strt\n"));
  EXPECT_THAT(outcome.out, Not(HasSubstr("jcc")));
  const auto json = nlohmann::json::parse(decode(joined(words, {"--json"})).out);
  EXPECT_EQ(json["branches"], 0);
  EXPECT_EQ(json["branches_not_taken"], 0) << "nor is it known that it did not";
}

TEST_F(HandMadeTest, UnknownCpuIsAWarning) {
  const Arguments words = files(on().tnt("T").pgd(0x5000), kReturnTwice);
  const Outcome outcome = decode(joined(words, {"--cpu", "6/255"}));
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.err, StartsWith("auxtrail decode: warning:"));
  for (const char* cpu : {"none", "auto", "6/94"}) {
    EXPECT_EQ(decode(joined(words, {"--cpu", cpu})).status, 0) << cpu;
  }
}

TEST_F(HandMadeTest, ReaderThatGoesAwayAndFullDisk) {
  const Arguments words = files(on().tnt("T").pgd(0x5000), kReturnTwice);
  for (const char* output : {"--stat", "--branches", "--insns"}) {
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    const UniqueFd broken(ends[1]);
    ::close(ends[0]);
    const Outcome gone = testing::run_into(run_decode, joined(words, {output}), broken.get());
    EXPECT_EQ(gone.status, 0) << output;
    EXPECT_THAT(gone.err, IsEmpty()) << output;
    const UniqueFd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
    const Outcome lost = testing::run_into(run_decode, joined(words, {output}), full.get());
    EXPECT_EQ(lost.status, 1) << output;
    EXPECT_THAT(lost.err, HasSubstr("No space left")) << output;
  }
}

TEST_F(HandMadeTest, WrongWords) {
  const Arguments good = files(on(), kReturnTwice);
  const Arguments trace = {good[0], good[1]};
  const struct {
    Arguments words;
    const char* complaint;
  } cases[] = {
      {{}, "--pt is required"},
      {trace, "the code that ran is not given"},
      {joined(trace, {"--raw", "code"}), "does not end with an address"},
      {joined(trace, {"--raw", ":0x1000"}), "no file is named"},
      {joined(trace, {"--raw", "code:9-3:0x1000"}), "ends before it begins"},
      {joined(trace, {"--elf", "a.out:0xg"}), "no address"},
      {joined(trace, {"--pages", "addresses"}), "two files are needed"},
      {{"--pt", "trace:0x10-x", good[2], good[3]}, "no range"},
      {joined(good, {"--filter", "0x20-0x10"}), "no range of addresses"},
      {joined(good, {"--filter", "0x20"}), "no range of addresses"},
      {joined(good, {"--filter", "1-2", "--filter", "1-2", "--filter", "1-2", "--filter", "1-2",
                     "--filter", "1-2"}),
       "four address ranges"},
      {joined(good, {"--cpu", "6"}), "no CPU"},
      {joined(good, {"--cpu", "6/94/3/1"}), "no CPU"},
      {joined(good, {"--cpu", "6/256"}), "no CPU"},
      {joined(good, {"--mode", "8"}), "--mode"},
      {joined(good, {"--mtc-freq", "256"}), "--mtc-freq"},
      {joined(good, {"--decoder", "xed"}), "xed not in"},
      {joined(good, {"--branches", "--insns"}), "several are asked for"},
      {joined(good, {"--branches", "--json"}), "--json is for the totals"},
      {joined(good, {"--event-ip"}), "add --insns or --events"},
      {joined(good, {"--insns", "--decoder=libipt"}), "not for libipt"},
      {joined(good, {"--noretcomp", "--decoder=libipt"}), "not for libipt"},
  };
  for (const auto& wrong : cases) {
    const Outcome outcome = decode(wrong.words);
    EXPECT_EQ(outcome.status, 2) << wrong.complaint;
    EXPECT_THAT(outcome.out, IsEmpty()) << wrong.complaint;
    EXPECT_THAT(outcome.err, HasSubstr(wrong.complaint));
    EXPECT_THAT(outcome.err, HasSubstr("see auxtrail decode --help"));
  }
}

TEST_F(HandMadeTest, WrongFiles) {
  const Arguments good = files(on(), kReturnTwice);
  perfdata::testing::write_file(scratch_.file("empty"), "");
  const std::string missing = scratch_.file("missing");
  const std::string code = scratch_.file("code");
  const struct {
    Arguments words;
    const char* complaint;
  } cases[] = {
      {{"--pt", missing, good[2], good[3]}, "No such file"},
      {{"--pt", scratch_.path(), good[2], good[3]}, "not a regular file"},
      {{"--pt", scratch_.file("empty"), good[2], good[3]}, "the file is empty"},
      {{"--pt", good[1] + ":0-0x1000", good[2], good[3]}, "is not in the file"},
      {{"--pt", good[1] + ":0x1000", good[2], good[3]}, "is not in the file"},
      {{good[0], good[1], "--raw", missing + ":0x1000"}, "No such file"},
      {{good[0], good[1], "--raw", code + ":0-100:0x1000"}, "is not in the file"},
      {{good[0], good[1], "--elf", code}, "not an ELF file"},
      {{good[0], good[1], "--elf", missing}, "No such file"},
      {{good[0], good[1], "--pages", code + ":" + code}, "read the pages"},
  };
  for (const auto& wrong : cases) {
    const Outcome outcome = decode(wrong.words);
    EXPECT_EQ(outcome.status, 1) << wrong.complaint;
    EXPECT_THAT(outcome.out, IsEmpty());
    EXPECT_THAT(outcome.err, HasSubstr(wrong.complaint));
  }
}

// A name may hold a colon, as long as no number follows it.
TEST_F(HandMadeTest, ColonsInNames) {
  Arguments words = files(on().tnt("T").pgd(0x5000), kReturnTwice);
  std::filesystem::rename(words[1], words[1] + ":a");
  words[1] += ":a";
  EXPECT_EQ(decode(words).status, 0);
}

TEST(DecodeCommandTest, Help) {
  const Outcome outcome = decode({"--help"});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.out, HasSubstr("Exit status"));
  EXPECT_THAT(outcome.out, Not(HasSubstr("TEXT ENUM")));
  EXPECT_THAT(outcome.err, IsEmpty());
}

}  // namespace
}  // namespace auxtrail::cli
