#include "analysis/testing/traced_file.h"

#include <sys/mman.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>

#include "abi/side_band_build.h"
#include "perfdata/testing/synthetic.h"
#include "pt/packet_reader.h"
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

// The writer leaves anything behind its last packet.
void pad(std::vector<std::byte>& bytes, size_t size) {
  bytes.resize(size);
  bytes.resize((size + 7) / 8 * 8);
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
  pad(bytes, writer.size_bytes());
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

std::string traced_path() {
  std::string path;
  (void)own_mapping(traced_code().main, path);
  return path;
}

std::vector<std::byte> traced_file(const std::vector<TracedSample>& samples, bool mapped,
                                   const std::string& version, const std::string& filter) {
  perfdata::Features features;
  if (!version.empty()) {
    features.version = version;
    features.present = uint64_t{1} << static_cast<uint32_t>(perfdata::Feature::kVersion);
  }
  return perfdata::testing::make_file(
      perfdata::testing::intel_pt_events(), features, [&](perfdata::Writer& writer) {
        const auto format = abi::SampleFormat::from_attr(writer.events().front().attr);
        ByteWriter out;
        perfdata::IntelPtInfo info;
        info.filter = filter;
        perfdata::append_intel_pt_info(out, info);
        append_side_band(out, format, mapped);
        for (const TracedSample& sample : samples) {
          perfdata::testing::append_aux_sample(out, sample.ip, sample.time_ns, sample.aux,
                                               sample.tid);
        }
        if (!writer.append(out.bytes()) || !writer.finished_round()) std::abort();
      });
}

namespace {

// Where the first packet at or behind `wanted` begins; `from` is where one does.
size_t packet_border(std::span<const std::byte> trace, size_t from, size_t wanted) {
  pt::PacketReader reader(trace);
  reader.seek(from);
  pt::Packet packet;
  while (reader.offset() < wanted) {
    if (reader.next(packet) != pt::ReadStatus::kPacket) return trace.size();
  }
  return reader.offset();
}

}  // namespace

std::vector<std::byte> thread_trace(const TracedThread& thread) {
  constexpr size_t kMostPerRound = 128;
  const TracedCode code = traced_code();
  std::vector<std::byte> bytes(kMostPerRound * thread.rounds + 8);
  pt::PacketWriter writer(reinterpret_cast<uint8_t*>(bytes.data()));
  for (size_t round = 0; round < thread.rounds; ++round) {
    if (round % thread.rounds_per_psb == 0) {
      writer.begin(code.main, thread.start_ns + round * thread.step_ns);
    } else {
      writer.tip_pge(code.main);
    }
    for (int i = 1; i <= kRounds; ++i) {
      writer.flush_tnt();
      writer.tip(code.after);
      writer.tnt(i < kRounds ? 1 : 0, 1);
    }
    writer.end(code.end);
  }
  pad(bytes, writer.size_bytes());
  return bytes;
}

std::vector<TracedBuffer> full_trace(const TracedThread& thread, uint32_t index,
                                     size_t buffer_bytes) {
  const auto trace = thread_trace(thread);
  std::vector<TracedBuffer> buffers;
  for (size_t at = 0; at < trace.size();) {
    const size_t end = packet_border(trace, at, at + buffer_bytes);
    const auto part = std::span(trace).subspan(at, end - at);
    buffers.push_back({{part.size(), at, thread.start_ns + at, index, thread.tid, ~uint32_t{0}},
                       {part.begin(), part.end()}});
    at = end;
  }
  return buffers;
}

std::vector<TracedBuffer> snapshots(const TracedThread& thread, uint32_t index, size_t area_bytes,
                                    size_t every_bytes) {
  const auto trace = thread_trace(thread);
  std::vector<TracedBuffer> buffers;
  for (size_t end = 0; end < trace.size();) {
    end = packet_border(trace, end, end + every_bytes);
    const size_t size = std::min(end, area_bytes);
    const auto part = std::span(trace).subspan(end - size, size);
    buffers.push_back({{size, end - size, thread.start_ns + end, index, thread.tid, ~uint32_t{0}},
                       {part.begin(), part.end()}});
  }
  return buffers;
}

std::vector<std::byte> full_trace_file(const std::vector<TracedBuffer>& buffers,
                                       const std::vector<TracedSample>& samples, bool snapshots,
                                       const MoreRecords& more) {
  auto events = perfdata::testing::intel_pt_events();
  events.back().attr.sample_type &= ~uint64_t{PERF_SAMPLE_AUX};
  events.back().attr.aux_sample_size = 0;
  return perfdata::testing::make_file(std::move(events), {}, [&](perfdata::Writer& writer) {
    const auto format = abi::SampleFormat::from_attr(writer.events().front().attr);
    ByteWriter out;
    std::map<uint32_t, uint32_t> tids;  // by queue
    for (const TracedBuffer& buffer : buffers) tids[buffer.record.index] = buffer.record.tid;
    perfdata::IntelPtInfo info;
    info.cap_user_time_zero = 1;
    info.snapshot_mode = snapshots ? 1 : 0;
    perfdata::append_intel_pt_info(out, info);
    append_side_band(out, format, true);
    for (const auto& [queue, tid] : tids) {
      abi::TaskRecord fork;
      fork.id = trailer();
      fork.pid = fork.parent_pid = fork.parent_tid = kPid;
      fork.tid = tid;
      if (tid != kPid && tid != ~uint32_t{0}) abi::append_fork(out, format, fork);
    }
    if (more) more(out, format);
    for (const TracedSample& sample : samples) {
      perfdata::testing::append_aux_sample(out, sample.ip, sample.time_ns, {}, sample.tid);
    }
    if (!writer.append(out.bytes())) std::abort();
    for (const TracedBuffer& buffer : buffers) {
      if (!writer.append_auxtrace(buffer.record, buffer.bytes)) std::abort();
    }
    if (!writer.finished_round()) std::abort();
  });
}

}  // namespace auxtrail::analysis::testing
