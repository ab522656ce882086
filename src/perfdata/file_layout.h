// The fixed front of a perf.data file. Reference: docs/formats/perf-data.md.
#pragma once

#include <cstddef>
#include <cstdint>

namespace auxtrail::perfdata {

inline constexpr uint64_t kMagicPerfile2 = 0x32454c4946524550;         // "PERFILE2"
inline constexpr uint64_t kMagicPerfile2Swapped = 0x50455246494c4532;  // of a big-endian machine
inline constexpr uint64_t kMagicPerfile1 = 0x454c494646524550;         // "PERFFILE", before 2010

struct FileSection {
  uint64_t offset = 0;
  uint64_t size_bytes = 0;
};

struct FileHeader {
  uint64_t magic = kMagicPerfile2;
  uint64_t header_bytes = 0;
  uint64_t attr_bytes = 0;  // of one entry of the attrs section: the attr and its ids' section
  FileSection attrs;
  FileSection data;
  FileSection event_types;
  uint64_t feature_bits[4] = {};
};
static_assert(sizeof(FileHeader) == 104);

// A file whose header is this long was written to a pipe: no sections, the attrs are records.
inline constexpr uint64_t kPipeHeaderBytes = 16;

}  // namespace auxtrail::perfdata
