// ParallelDecoder: one long trace, decoded by several threads in pieces between PSBs.
//
//   ParallelDecoder decoder(config, threads);
//   DecodeSummary summary = decoder.decode(code, trace, consumer);
//
// Exact: the consumer is told the same as by NativeDecoder::decode(), in the same order (one kind
// among itself, see FlowConsumer). It is never called by two threads at once, but by different
// ones. All threads share the decoded code; memory is bounded by the branches of a piece per
// thread.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "decode/branch_decoder.h"
#include "decode/edge_counts.h"
#include "decode/native_decoder.h"

namespace auxtrail::decode {

class ParallelDecoder {
 public:
  static constexpr size_t kPieceBytes = size_t{128} << 10;

  // `threads` 0: as many as there are processors. Pieces have at least `piece_bytes`.
  explicit ParallelDecoder(const TraceConfig& config = {}, unsigned threads = 0,
                           std::shared_ptr<ProgramCache> programs = nullptr,
                           size_t piece_bytes = kPieceBytes);

  // The code must not change in the trace.
  DecodeSummary decode(const image::CodeMap& code, std::span<const std::byte> trace,
                       FlowConsumer& consumer);
  // The trace's edges, added to what `profile` has.
  DecodeSummary count_edges(const image::CodeMap& code, std::span<const std::byte> trace,
                            EdgeProfile& profile);

 private:
  struct Piece {
    std::span<const std::byte> trace;
    NativeFlow::Piece place;
  };
  [[nodiscard]] std::vector<Piece> cut(std::span<const std::byte> trace) const;

  size_t piece_bytes_;
  void on_all_threads(const std::function<void(NativeDecoder&)>& work);

  std::vector<std::unique_ptr<NativeDecoder>> decoders_;  // one per thread
};

}  // namespace auxtrail::decode
