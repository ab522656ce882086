// Full trace of real hardware (with return compression, without times), put into a perf.data file:
// our branches against those that Linux perf decodes from the same file.
//
// The traces are not ours to copy; without AUXTRAIL_TEST_DATA (or ../shared/traces beside the
// repository) the tests skip.
#include <elf.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "abi/side_band_build.h"
#include "analysis/sample_walk.h"
#include "perfdata/testing/command.h"
#include "perfdata/testing/synthetic.h"
#include "pt/packet_reader.h"

namespace auxtrail::analysis {
namespace {

using perfdata::testing::kLeaderId;
using perfdata::testing::kPid;
using perfdata::testing::lines_of;
using perfdata::testing::test_data;

struct Module {
  const char* file;
  uint64_t load_address;
};

struct HardwareTrace {
  const char* title;
  const char* folder;
  const char* trace;
  std::vector<Module> modules;
  size_t least_branches;
  bool whole;  // all code is there
};

void PrintTo(const HardwareTrace& trace, std::ostream* out) { *out << trace.title; }

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

void append_mappings(ByteWriter& out, const abi::SampleFormat& format, const std::string& path,
                     uint64_t load_address) {
  const std::string elf = perfdata::testing::read_text(path);
  Elf64_Ehdr header{};
  std::memcpy(&header, elf.data(), sizeof(header));
  for (size_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment{};
    std::memcpy(&segment, elf.data() + header.e_phoff + i * sizeof(segment), sizeof(segment));
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_X) == 0) continue;
    abi::MmapRecord mmap;
    mmap.id.id = kLeaderId;
    mmap.misc = PERF_RECORD_MISC_USER;
    mmap.pid = mmap.tid = kPid;
    mmap.address = segment.p_vaddr + (header.e_type == ET_DYN ? load_address : 0);
    mmap.size_bytes = segment.p_filesz;
    mmap.file_offset = segment.p_offset;
    mmap.protection = PROT_READ | PROT_EXEC;
    mmap.path = path;
    abi::append_mmap2(out, format, mmap);
  }
}

// In records that end between packets.
void append_trace(perfdata::Writer& writer, std::span<const std::byte> trace) {
  constexpr size_t kRecordBytes = 1000;
  pt::PacketReader reader(trace);
  (void)reader.sync_forward();
  for (size_t start = 0; start < trace.size();) {
    pt::Packet packet;
    while (reader.offset() < start + kRecordBytes &&
           reader.next(packet) == pt::ReadStatus::kPacket) {
    }
    const size_t end = reader.offset() < start + kRecordBytes ? trace.size() : reader.offset();
    ASSERT_TRUE(writer.append_auxtrace({0, start, 1 + start, 0, kPid, ~uint32_t{0}},
                                       trace.subspan(start, end - start)));
    start = end;
  }
}

class HardwareTraceTest : public ::testing::TestWithParam<HardwareTrace> {
 protected:
  void SetUp() override {
    folder_ = test_data(std::string("perf_pt/") + GetParam().folder) + "/";
    if (!std::filesystem::exists(folder_)) GTEST_SKIP() << "no traces at " << folder_;
    const std::string trace = perfdata::testing::read_text(folder_ + GetParam().trace);
    auto events = perfdata::testing::intel_pt_events();
    events.resize(1);
    events[0].attr.config = 0x2001;  // pt, branch: these have no TSC packets
    perfdata::Features features;
    features.cpuid = "GenuineIntel,6,79,1";
    features.present = uint64_t{1} << static_cast<uint32_t>(perfdata::Feature::kCpuId);
    file_ = perfdata::testing::make_file(events, features, [&](perfdata::Writer& writer) {
      const auto format = abi::SampleFormat::from_attr(writer.events().front().attr);
      ByteWriter out;
      perfdata::IntelPtInfo info;
      info.cap_user_time_zero = 0;
      perfdata::append_intel_pt_info(out, info);
      for (const Module& module : GetParam().modules) {
        append_mappings(out, format, folder_ + module.file, module.load_address);
      }
      ASSERT_TRUE(writer.append(out.bytes()));
      append_trace(writer, bytes_of(trace));
    });
  }

  std::string folder_;
  std::vector<std::byte> file_;
};

// Where code is missing (here: the dynamic loader's), perf takes up the flow at the next TIP
// packet, and libipt at the next PSB.
MATCHER_P(ContainsInOrder, wanted, "") {
  auto at = wanted.begin();
  for (const std::string& line : arg) {
    if (at != wanted.end() && line == *at) ++at;
  }
  if (at == wanted.end()) return true;
  *result_listener << "not there, or not in this order: " << *at;
  return false;
}

struct Branches : TraceVisitor {
  void on_branch(const TracePosition&, const decode::Branch& branch) override {
    lines += fmt::format("{:x} => {:x}\n", branch.from, branch.to);
    ++count;
  }
  std::string lines;
  size_t count = 0;
};

TEST_P(HardwareTraceTest, SameBranchesAsPerf) {
  if (!perfdata::testing::have_perf()) GTEST_SKIP() << "Linux perf is not installed";
  const perfdata::testing::ScratchDirectory scratch;
  perfdata::testing::write_file(scratch.file("x.data"),
                                {reinterpret_cast<const char*>(file_.data()), file_.size()});
  const auto perf = scratch.run("perf script -i x.data --itrace=b -F ip,addr | sed 's/  */ /g'");
  ASSERT_EQ(perf.status, 0) << perf.err;
  auto recording = Recording::from_bytes(file_, "test");
  ASSERT_TRUE(recording);
  Branches ours;
  SampleWalk walk(*recording);
  walk.run([](const WalkedSample&) { return true; }, ours);
  std::string theirs;
  for (const std::string& line : lines_of(perf.out)) {
    theirs += line.substr(std::min<size_t>(line.find_first_not_of(' '), line.size())) + "\n";
  }
  if (GetParam().whole) {
    EXPECT_EQ(ours.lines, theirs);
  } else {
    EXPECT_THAT(lines_of(theirs), ContainsInOrder(lines_of(ours.lines)));
  }
  EXPECT_GE(ours.count, GetParam().least_branches);
  EXPECT_EQ(walk.statistics().queues.gaps, 0U);
}

INSTANTIATE_TEST_SUITE_P(
    Traces, HardwareTraceTest,
    ::testing::Values(
        HardwareTrace{"loop", "intelpt-trace", "3842849.trace", {{"a.out", 0x400000}}, 8, true},
        HardwareTrace{
            "libraries",
            "intelpt-trace-multi-file",
            "multi-file.trace",
            {{"a.out", 0x400000}, {"libfoo.so", 140737349783552}, {"libbar.so", 140737347678208}},
            20,
            false}),
    [](const auto& each) { return std::string(each.param.title); });

}  // namespace
}  // namespace auxtrail::analysis
