// Unpacks the zstd stream of COMPRESSED records (perf record -z) into records.
//
// The stream runs through all COMPRESSED records of a file, and a record may begin in one and end
// in the next. Output is handled in pieces, so that memory stays bounded whatever the input expands
// to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "abi/record.h"

typedef struct ZSTD_DCtx_s ZSTD_DCtx;

namespace auxtrail::perfdata {

class Unpacker {
 public:
  // Receives each unpacked record; the view ends with the call. Returns false to stop.
  using Sink = std::function<bool(const abi::Record&)>;
  enum class Outcome : uint8_t { kOk, kStopped, kBroken };

  Unpacker();
  ~Unpacker();
  Unpacker(const Unpacker&) = delete;
  Unpacker& operator=(const Unpacker&) = delete;

  // The data of the next COMPRESSED record. After kBroken (not zstd, or an impossible record size
  // inside) nothing more can be unpacked: all further calls give kBroken.
  Outcome feed(std::span<const std::byte> packed, const Sink& sink);
  // Bytes of a record that has begun but not ended.
  [[nodiscard]] size_t pending_bytes() const { return carry_.size(); }

 private:
  Outcome take_records(const Sink& sink);

  ZSTD_DCtx* stream_ = nullptr;
  std::vector<std::byte> carry_;
  bool broken_ = false;
};

// The packed bytes of a COMPRESSED or COMPRESSED2 record.
std::span<const std::byte> packed_bytes(const abi::Record& record);

}  // namespace auxtrail::perfdata
