// Records of a perf.data file as one line each, and Intel PT packets as one line each: what
// `auxtrail dump` prints.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "perfdata/reader.h"

namespace auxtrail::analysis {

// "0x1a8 [0x48] MMAP2: pid 1 ... time 123": file offset, size, type, the type's fields, and those
// of the trailer. A record that cannot be parsed is said to be malformed.
void append_record_text(perfdata::Reader& reader, const perfdata::DataRecord& record,
                        fmt::memory_buffer& out);

// The trace bytes of a record: a sample's AUX field, or the data behind an AUXTRACE record.
std::span<const std::byte> trace_bytes(const perfdata::DataRecord& record);

// One line per packet: ".  0000001a: 19 12 34 ...   TSC 0x..."; the offset is that within `trace`.
// Runs of padding take one line, bytes that are no packet are skipped up to the next PSB.
void append_packet_text(std::span<const std::byte> trace, fmt::memory_buffer& out);

// The events and features at the front of the file, as lines that begin with '#'.
void append_header_text(perfdata::Reader& reader, fmt::memory_buffer& out);

}  // namespace auxtrail::analysis
