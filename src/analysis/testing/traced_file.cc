#include "analysis/testing/traced_file.h"

#include <sys/mman.h>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "abi/side_band_build.h"
#include "perfdata/testing/synthetic.h"
#include "pt/packet_writer.h"

extern "C" {
extern const char traced_main[];
extern const uint64_t traced_offsets[6];
}

namespace auxtrail::analysis::testing {
namespace {

using decode::Branch;
using decode::BranchKind;
using perfdata::testing::kLeaderId;
using perfdata::testing::kPid;

constexpr int kRounds = 3;

abi::SampleId trailer() {
  abi::SampleId id;
  id.pid = id.tid = kPid;
  id.id = kLeaderId;
  return id;
}

// The mapping of this process that holds `address`.
abi::MmapRecord own_mapping(uint64_t address, std::string& path) {
  abi::MmapRecord mmap;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    uint64_t start = 0;
    uint64_t end = 0;
    uint64_t offset = 0;
    int path_at = 0;
    if (std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64 " %*s %" SCNx64 " %*s %*s %n", &start,
                    &end, &offset, &path_at) != 3 ||
        address < start || address >= end) {
      continue;
    }
    path = line.substr(static_cast<size_t>(path_at));
    mmap.address = start;
    mmap.size_bytes = end - start;
    mmap.file_offset = offset;
    mmap.path = path;
    return mmap;
  }
  std::abort();
}

void append_side_band(ByteWriter& out, const abi::SampleFormat& format, bool mapped) {
  abi::CommRecord comm;
  comm.id = trailer();
  comm.pid = comm.tid = kPid;
  comm.exec = true;
  comm.name = "traced";
  abi::append_comm(out, format, comm);
  if (!mapped) return;
  std::string path;
  abi::MmapRecord mmap = own_mapping(traced_code().main, path);
  mmap.id = trailer();
  mmap.misc = PERF_RECORD_MISC_USER;
  mmap.pid = mmap.tid = kPid;
  mmap.protection = PROT_READ | PROT_EXEC;
  abi::append_mmap2(out, format, mmap);
}

}  // namespace

TracedCode traced_code() {
  const auto main = reinterpret_cast<uint64_t>(traced_main);
  return {main,
          main + traced_offsets[0],
          main + traced_offsets[1],
          main + traced_offsets[2],
          main + traced_offsets[3],
          main + traced_offsets[4],
          main + traced_offsets[5]};
}

std::vector<std::byte> traced_window(uint64_t tsc) {
  const TracedCode code = traced_code();
  std::vector<std::byte> bytes(256);
  pt::PacketWriter writer(reinterpret_cast<uint8_t*>(bytes.data()));
  writer.begin(code.main, tsc);
  for (int round = 1; round <= kRounds; ++round) {
    writer.flush_tnt();
    writer.tip(code.after);
    writer.tnt(round < kRounds ? 1 : 0, 1);
  }
  writer.end(code.end);
  bytes.resize(writer.size_bytes());  // what the writer left behind it goes
  bytes.resize((bytes.size() + 7) / 8 * 8);
  return bytes;
}

std::vector<Branch> traced_branches() {
  const TracedCode code = traced_code();
  std::vector<Branch> branches{{0, code.main, BranchKind::kTraceBegin, false}};
  for (int round = 1; round <= kRounds; ++round) {
    branches.push_back({code.loop, code.leaf, BranchKind::kCall, false});
    branches.push_back({code.ret, code.after, BranchKind::kReturn, false});
    if (round < kRounds) {
      branches.push_back({code.jnz, code.loop, BranchKind::kConditional, false});
    }
  }
  branches.push_back({code.end, 0, BranchKind::kTraceEnd, true});
  return branches;
}

std::vector<TracedSample> traced_samples(size_t count) {
  std::vector<TracedSample> samples;
  for (size_t i = 0; i < count; ++i) {
    const uint64_t time_ns = 1'000'000'000 + i * 1'000'000;
    samples.push_back(
        {traced_code().end, time_ns, traced_window(time_ns - 1000), perfdata::testing::kPid});
  }
  return samples;
}

std::vector<std::byte> traced_file(const std::vector<TracedSample>& samples, bool mapped,
                                   const std::string& version) {
  perfdata::Features features;
  if (!version.empty()) {
    features.version = version;
    features.present = uint64_t{1} << static_cast<uint32_t>(perfdata::Feature::kVersion);
  }
  return perfdata::testing::make_file(
      perfdata::testing::intel_pt_events(), features, [&](perfdata::Writer& writer) {
        const auto format = abi::SampleFormat::from_attr(writer.events().front().attr);
        ByteWriter out;
        perfdata::append_intel_pt_info(out, {});
        append_side_band(out, format, mapped);
        for (const TracedSample& sample : samples) {
          perfdata::testing::append_aux_sample(out, sample.ip, sample.time_ns, sample.aux,
                                               sample.tid);
        }
        if (!writer.append(out.bytes()) || !writer.finished_round()) std::abort();
      });
}

}  // namespace auxtrail::analysis::testing
