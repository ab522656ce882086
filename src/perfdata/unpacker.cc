#include "perfdata/unpacker.h"

#include <zstd.h>

#include <algorithm>

#include "base/bytes.h"

namespace auxtrail::perfdata {
namespace {

constexpr size_t kPieceBytes = size_t{128} << 10;

}  // namespace

Unpacker::Unpacker() = default;

Unpacker::~Unpacker() { ZSTD_freeDCtx(stream_); }

Unpacker::Outcome Unpacker::feed(std::span<const std::byte> packed, const Sink& sink) {
  if (stream_ == nullptr) stream_ = ZSTD_createDCtx();  // most files have nothing to unpack
  if (broken_ || stream_ == nullptr) return Outcome::kBroken;
  ZSTD_inBuffer in{packed.data(), packed.size(), 0};
  for (bool more = true; more;) {
    const size_t kept = carry_.size();
    carry_.resize(kept + kPieceBytes);
    ZSTD_outBuffer out{carry_.data() + kept, kPieceBytes, 0};
    const size_t result = ZSTD_decompressStream(stream_, &out, &in);
    carry_.resize(kept + out.pos);
    if (ZSTD_isError(result) != 0) {
      broken_ = true;
      return Outcome::kBroken;
    }
    const Outcome outcome = take_records(sink);
    if (outcome != Outcome::kOk) return outcome;
    // A full piece may have left more output inside the stream.
    more = in.pos < in.size || out.pos == out.size;
  }
  return Outcome::kOk;
}

Unpacker::Outcome Unpacker::take_records(const Sink& sink) {
  std::span<const std::byte> rest = carry_;
  Outcome outcome = Outcome::kOk;
  while (outcome == Outcome::kOk) {
    abi::Record record;
    const auto status = first_record(rest, record);
    if (status == abi::RecordStatus::kShort) break;
    if (status == abi::RecordStatus::kBadSize) {
      broken_ = true;
      outcome = Outcome::kBroken;
      break;
    }
    rest = rest.subspan(record.bytes.size());
    if (!sink(record)) outcome = Outcome::kStopped;
  }
  carry_.erase(carry_.begin(), carry_.end() - static_cast<std::ptrdiff_t>(rest.size()));
  return outcome;
}

std::span<const std::byte> packed_bytes(const abi::Record& record) {
  const auto body = record.body();
  if (record.type == abi::kRecordCompressed) return body;
  ByteReader in(body);
  const uint64_t size = in.u64();
  if (in.failed()) return {};
  return in.take(std::min<uint64_t>(size, in.remaining()));
}

}  // namespace auxtrail::perfdata
