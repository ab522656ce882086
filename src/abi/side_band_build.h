// Building side-band records, for what a recorder synthesizes itself (from /proc, mostly).
//
// Each function appends one whole record, a multiple of 8 bytes, to `out`. The trailer is written
// by `format` from `id`, so that the reader finds what the file's attrs promise.
#pragma once

#include <cstdint>

#include "abi/sample.h"
#include "abi/side_band.h"
#include "base/bytes.h"

namespace auxtrail::abi {

// The trailer alone; nothing if the format has no sample_id_all.
void append_trailer(ByteWriter& out, const SampleFormat& format, const SampleId& id);

// An MMAP2 record, with misc from `mmap.misc` (PERF_RECORD_MISC_USER for user space); the build-id
// form if mmap.build_id holds 1 to 20 bytes. A path over 4096 bytes is cut.
void append_mmap2(ByteWriter& out, const SampleFormat& format, const MmapRecord& mmap);
void append_comm(ByteWriter& out, const SampleFormat& format, const CommRecord& comm);
void append_fork(ByteWriter& out, const SampleFormat& format, const TaskRecord& task);
void append_exit(ByteWriter& out, const SampleFormat& format, const TaskRecord& task);
void append_lost(ByteWriter& out, const SampleFormat& format, const LostRecord& lost);
void append_lost_samples(ByteWriter& out, const SampleFormat& format, const LostRecord& lost);
void append_aux(ByteWriter& out, const SampleFormat& format, const AuxRecord& aux);
void append_itrace_start(ByteWriter& out, const SampleFormat& format,
                         const ItraceStartRecord& start);

}  // namespace auxtrail::abi
