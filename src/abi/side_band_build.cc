#include "abi/side_band_build.h"

#include <algorithm>

namespace auxtrail::abi {
namespace {

constexpr size_t kMaxPathBytes = 4096;

// Starts a record on construction; end() writes the trailer and the final size into the header.
class RecordBuilder {
 public:
  RecordBuilder(ByteWriter& out, uint32_t type, uint16_t misc) : out_(out), start_(out.size()) {
    out_.write(perf_event_header{type, misc, 0});
  }
  void text(std::string_view chars) {
    out_.append(std::as_bytes(std::span(chars.data(), chars.size())));
    out_.u8(0);
    while ((out_.size() - start_) % 8 != 0) out_.u8(0);
  }
  void end(const SampleFormat& format, const SampleId& id) {
    append_trailer(out_, format, id);
    const auto size = static_cast<uint16_t>(out_.size() - start_);
    std::memcpy(out_.buffer().data() + start_ + offsetof(perf_event_header, size), &size,
                sizeof(size));
  }

 private:
  ByteWriter& out_;
  size_t start_;
};

void append_task(ByteWriter& out, uint32_t type, const SampleFormat& format,
                 const TaskRecord& task) {
  RecordBuilder builder(out, type, 0);
  out.u32(task.pid);
  out.u32(task.parent_pid);
  out.u32(task.tid);
  out.u32(task.parent_tid);
  out.u64(task.time_ns);
  builder.end(format, task.id);
}

void append_build_id(ByteWriter& out, std::span<const std::byte> build_id) {
  out.u8(static_cast<uint8_t>(build_id.size()));
  out.u8(0);
  out.u16(0);
  out.append(build_id);
  for (size_t at = build_id.size(); at < 20; ++at) out.u8(0);
}

}  // namespace

void append_trailer(ByteWriter& out, const SampleFormat& format, const SampleId& id) {
  if (!format.sample_id_all) return;
  for_each_trailer_field(format.sample_type, [&](SampleField field) {
    switch (field) {
      case SampleField::kTid:
        out.u32(id.pid);
        out.u32(id.tid);
        break;
      case SampleField::kTime:
        out.u64(id.time_ns);
        break;
      case SampleField::kStreamId:
        out.u64(id.stream_id);
        break;
      case SampleField::kCpu:
        out.u32(id.cpu);
        out.u32(0);
        break;
      default:
        out.u64(id.id);
        break;  // ID and IDENTIFIER
    }
    return true;
  });
}

void append_mmap2(ByteWriter& out, const SampleFormat& format, const MmapRecord& mmap) {
  const bool with_build_id = !mmap.build_id.empty() && mmap.build_id.size() <= 20;
  auto misc = static_cast<uint16_t>(mmap.misc & ~PERF_RECORD_MISC_MMAP_BUILD_ID);
  if (with_build_id) misc |= PERF_RECORD_MISC_MMAP_BUILD_ID;
  RecordBuilder builder(out, PERF_RECORD_MMAP2, misc);
  out.u32(mmap.pid);
  out.u32(mmap.tid);
  out.u64(mmap.address);
  out.u64(mmap.size_bytes);
  out.u64(mmap.file_offset);
  if (with_build_id) {
    append_build_id(out, mmap.build_id);
  } else {
    out.u32(mmap.device_major);
    out.u32(mmap.device_minor);
    out.u64(mmap.inode);
    out.u64(mmap.inode_generation);
  }
  out.u32(mmap.protection);
  out.u32(mmap.flags);
  builder.text(mmap.path.substr(0, kMaxPathBytes));
  builder.end(format, mmap.id);
}

void append_comm(ByteWriter& out, const SampleFormat& format, const CommRecord& comm) {
  RecordBuilder builder(out, PERF_RECORD_COMM,
                        comm.exec ? uint16_t{PERF_RECORD_MISC_COMM_EXEC} : uint16_t{0});
  out.u32(comm.pid);
  out.u32(comm.tid);
  builder.text(comm.name.substr(0, kMaxPathBytes));
  builder.end(format, comm.id);
}

void append_fork(ByteWriter& out, const SampleFormat& format, const TaskRecord& task) {
  append_task(out, PERF_RECORD_FORK, format, task);
}

void append_exit(ByteWriter& out, const SampleFormat& format, const TaskRecord& task) {
  append_task(out, PERF_RECORD_EXIT, format, task);
}

void append_lost(ByteWriter& out, const SampleFormat& format, const LostRecord& lost) {
  RecordBuilder builder(out, PERF_RECORD_LOST, 0);
  out.u64(lost.event_id);
  out.u64(lost.lost);
  builder.end(format, lost.id);
}

void append_lost_samples(ByteWriter& out, const SampleFormat& format, const LostRecord& lost) {
  RecordBuilder builder(out, PERF_RECORD_LOST_SAMPLES, 0);
  out.u64(lost.lost);
  builder.end(format, lost.id);
}

void append_aux(ByteWriter& out, const SampleFormat& format, const AuxRecord& aux) {
  RecordBuilder builder(out, PERF_RECORD_AUX, 0);
  out.u64(aux.aux_offset);
  out.u64(aux.aux_size_bytes);
  out.u64(aux.flags);
  builder.end(format, aux.id);
}

void append_itrace_start(ByteWriter& out, const SampleFormat& format,
                         const ItraceStartRecord& start) {
  RecordBuilder builder(out, PERF_RECORD_ITRACE_START, 0);
  out.u32(start.pid);
  out.u32(start.tid);
  builder.end(format, start.id);
}

}  // namespace auxtrail::abi
