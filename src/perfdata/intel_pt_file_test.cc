// A file of ours with Intel PT in its samples, decoded by Linux perf: the branches of a tiny
// program whose execution is known from its code. Packets and program are made by hand here, byte
// by byte.
#include <elf.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>

#include "abi/side_band_build.h"
#include "perfdata/reader.h"
#include "perfdata/testing/command.h"
#include "perfdata/testing/perf_dump.h"
#include "perfdata/testing/synthetic.h"
#include "perfdata/writer.h"

namespace auxtrail::perfdata {
namespace {

using namespace testing;

constexpr uint64_t kBase = 0x400000;
constexpr uint64_t kText = 0x1000;  // offset in the file, and from kBase

// 401000  mov $3,%ecx
// 401005  call 401020
// 40100a  dec %ecx
// 40100c  jne 401005
// 40100e  lea 0x401030(%rip),%rax
// 401015  jmp *%rax
// 401020  test %ecx,%ecx
// 401022  je 401025
// 401024  nop
// 401025  ret
// 401030  nop
// 401031  jmp 401033
// 401033  ud2
constexpr uint8_t kCode[0x40] = {0xb9, 3,    0,    0,    0,    0xe8, 0x16, 0,    0,    0,
                                 0xff, 0xc9, 0x75, 0xf7, 0x48, 0x8d,  // 401000
                                 0x05, 0x1b, 0,    0,    0,    0xff, 0xe0, 0x90, 0x90, 0x90,
                                 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x85, 0xc9, 0x74, 0x01,
                                 0x90, 0xc3, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90,
                                 0x90, 0x90, 0x90, 0xeb, 0x00, 0x0f, 0x0b};

// What the processor does in it, from its first instruction to the ud2 (0: tracing starts or ends).
const std::vector<std::pair<uint64_t, uint64_t>> kBranches = {
    {0, 0x401000},        {0x401005, 0x401020}, {0x401025, 0x40100a}, {0x40100c, 0x401005},
    {0x401005, 0x401020}, {0x401025, 0x40100a}, {0x40100c, 0x401005}, {0x401005, 0x401020},
    {0x401025, 0x40100a}, {0x401015, 0x401030}, {0x401031, 0x401033}, {0x401033, 0}};

std::string tiny_program() {
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_ident[EI_VERSION] = EV_CURRENT;
  header.e_type = ET_EXEC;
  header.e_machine = EM_X86_64;
  header.e_version = EV_CURRENT;
  header.e_entry = kBase + kText;
  header.e_phoff = sizeof(header);
  header.e_ehsize = sizeof(header);
  header.e_phentsize = sizeof(Elf64_Phdr);
  header.e_phnum = 1;
  header.e_shentsize = sizeof(Elf64_Shdr);
  Elf64_Phdr segment{};
  segment.p_type = PT_LOAD;
  segment.p_flags = PF_R | PF_X;
  segment.p_offset = kText;
  segment.p_vaddr = segment.p_paddr = kBase + kText;
  segment.p_filesz = segment.p_memsz = sizeof(kCode);
  segment.p_align = 0x1000;
  std::string image(kText + sizeof(kCode), '\0');
  std::memcpy(image.data(), &header, sizeof(header));
  std::memcpy(image.data() + sizeof(header), &segment, sizeof(segment));
  std::memcpy(image.data() + kText, kCode, sizeof(kCode));
  return image;
}

class Packets {
 public:
  Packets& bytes(std::initializer_list<int> values) {
    for (const int value : values) out_.u8(static_cast<uint8_t>(value));
    return *this;
  }
  Packets& psb() {
    for (int at = 0; at < 8; ++at) bytes({0x02, 0x82});
    return *this;
  }
  Packets& tsc(uint64_t value) { return bytes({0x19}).low_bytes(value, 7); }
  Packets& tip(uint64_t ip) { return bytes({0x6d}).low_bytes(ip, 6); }
  Packets& tip_pge(uint64_t ip) { return bytes({0x71}).low_bytes(ip, 6); }
  Packets& fup(uint64_t ip) { return bytes({0x7d}).low_bytes(ip, 6); }
  // Short TNT: 'T' and 'N', oldest first.
  Packets& tnt(std::string_view taken) {
    int bits = 1;
    for (const char one : taken) bits = bits << 1 | (one == 'T' ? 1 : 0);
    return bytes({bits << 1});
  }
  [[nodiscard]] std::span<const std::byte> get() const { return out_.bytes(); }

 private:
  Packets& low_bytes(uint64_t value, int count) {
    for (int at = 0; at < count; ++at) out_.u8(static_cast<uint8_t>(value >> (8 * at)));
    return *this;
  }
  ByteWriter out_;
};

Packets window(uint64_t tsc) {
  Packets packets;
  packets.psb().tsc(tsc).bytes({0x02, 0x03, 10, 0});  // CBR
  packets.bytes({0x02, 0x23, 0x99, 0x01});            // PSBEND, MODE.Exec 64-bit
  packets.tip_pge(0x401000);
  packets.tnt("N").tip(0x40100a);
  packets.tnt("TN").tip(0x40100a);
  packets.tnt("TN").tip(0x40100a);
  packets.tnt("N").tip(0x401030);
  packets.fup(0x401033).bytes({0x01});  // TIP.PGD without an ip
  return packets;
}

class IntelPtFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!have_perf()) GTEST_SKIP() << "Linux perf is not installed (package linux-perf)";
    write_file(scratch_.file("tiny"), tiny_program());
    auto writer = Writer::create(scratch_.file("x.data"), intel_pt_events());
    ASSERT_TRUE(writer) << writer.error().message();
    ByteWriter out;
    append_side_band(out, abi::SampleFormat::from_attr(writer->events().front().attr));
    for (uint64_t at = 0; at < kSamples; ++at) {
      append_aux_sample(out, 0x401033, 1000000 * (at + 1), window(900000 * (at + 1)).get());
    }
    ASSERT_TRUE(writer->append(out.bytes()));
    ASSERT_TRUE(writer->finished_round());
    Features features;
    features.pmus = {{1, "software"}, {8, "intel_pt"}};
    ASSERT_TRUE(writer->write_features_and_close(features));
  }

  void append_side_band(ByteWriter& out, const abi::SampleFormat& format) {
    append_intel_pt_info(out, {});
    abi::CommRecord comm;
    comm.id.id = kLeaderId;
    comm.id.pid = comm.id.tid = comm.pid = comm.tid = kPid;
    comm.exec = true;
    comm.name = "tiny";
    abi::append_comm(out, format, comm);
    const std::string path = scratch_.file("tiny");
    abi::MmapRecord mmap;
    mmap.id = comm.id;
    mmap.misc = PERF_RECORD_MISC_USER;
    mmap.pid = mmap.tid = kPid;
    mmap.address = kBase + kText;
    mmap.size_bytes = 0x1000;
    mmap.file_offset = kText;
    mmap.protection = PROT_READ | PROT_EXEC;
    mmap.flags = MAP_PRIVATE;
    mmap.path = path;
    abi::append_mmap2(out, format, mmap);
  }

  static constexpr uint64_t kSamples = 3;
  ScratchDirectory scratch_;
};

TEST_F(IntelPtFileTest, PerfDecodesTheBranches) {
  const auto script = scratch_.run("perf script -f -i x.data --itrace=be -F ip,addr");
  ASSERT_EQ(script.status, 0) << script.err;
  EXPECT_EQ(script.err, "") << "no decode errors, no warnings";
  std::vector<std::pair<uint64_t, uint64_t>> branches;
  for (const std::string& line : lines_of(script.out)) {
    unsigned long long from = 0;
    unsigned long long to = 0;
    if (std::sscanf(line.c_str(), "%llx => %llx", &from, &to) == 2) branches.emplace_back(from, to);
  }
  std::vector<std::pair<uint64_t, uint64_t>> expected;
  for (uint64_t at = 0; at < kSamples; ++at) {
    expected.insert(expected.end(), kBranches.begin(), kBranches.end());
  }
  EXPECT_EQ(branches, expected) << script.out;
}

TEST_F(IntelPtFileTest, PerfDecodesTheInstructions) {
  const auto script = scratch_.run("perf script -f -i x.data --itrace=i1ie -F ip");
  ASSERT_EQ(script.status, 0) << script.err;
  EXPECT_EQ(script.err, "");
  // mov; 3 x (call test je nop ret dec jne); lea jmp nop jmp; and the ud2 at which tracing ends
  EXPECT_EQ(lines_of(script.out).size(), kSamples * (1 + 3 * 7 + 4 + 1)) << script.out;
}

TEST_F(IntelPtFileTest, PerfShowsTheBranchStackOfSamples) {
  const auto script = scratch_.run("perf script -f -i x.data --itrace=L16e -F ip,brstack");
  ASSERT_EQ(script.status, 0) << script.err;
  EXPECT_EQ(script.err, "");
  const auto lines = lines_of(script.out);
  ASSERT_EQ(lines.size(), kSamples) << script.out;
  for (const std::string& line : lines) {
    size_t at = 0;
    for (size_t branch = kBranches.size() - 1; branch-- > 1;) {  // newest first, no start, no end
      const auto text =
          fmt::format("{:#x}/{:#x}/", kBranches[branch].first, kBranches[branch].second);
      at = line.find(text, at);
      ASSERT_NE(at, std::string::npos) << text << " in " << line;
    }
  }
}

TEST_F(IntelPtFileTest, PerfReportsWithoutComplaint) {
  const auto report = scratch_.run("perf report -f -i x.data --stdio --itrace=i10i");
  EXPECT_EQ(report.status, 0) << report.err;
  EXPECT_EQ(report.err, "");
  const auto dump = scratch_.run("perf report -f -i x.data -D | grep -c ' PSB$'");
  EXPECT_EQ(dump.out, fmt::format("{}\n", kSamples));
}

// perf inject turns the traces into samples with branch stacks; we read its file as perf does.
TEST_F(IntelPtFileTest, PerfInjectsAndWeReadTheResult) {
  const auto inject = scratch_.run("perf inject -f -i x.data --itrace=i1il --strip -o y.data");
  ASSERT_EQ(inject.status, 0) << inject.err;
  auto reader = Reader::open(scratch_.file("y.data"));
  ASSERT_TRUE(reader) << reader.error().message();
  const Dump ours = our_dump(*reader);
  const Dump theirs = perf_dump(scratch_, scratch_.file("y.data"));
  EXPECT_GE(ours.samples, kSamples * 26);
  EXPECT_EQ(ours.samples, theirs.samples);
  EXPECT_EQ(difference(theirs.kernel, ours.kernel), "");
  EXPECT_EQ(difference(theirs.tools, ours.tools), "");
}

}  // namespace
}  // namespace auxtrail::perfdata
