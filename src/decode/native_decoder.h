// The BranchDecoder of our own: flow::FlowDecoder for everything, and the fast walk over the
// decoded-block graph for most of it.
//
// Decoders that share a ProgramCache share all that is decoded of the code; that is how several
// threads decode samples of one recording.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "decode/branch_decoder.h"
#include "decode/edge_counts.h"
#include "decode/native_flow.h"
#include "decode/program_code.h"
#include "pt/trace_config.h"

namespace auxtrail::decode {

struct NativeOptions {
  bool walks = true;  // false: flow::FlowDecoder alone, for comparison
};

class NativeDecoder : public BranchDecoder {
 public:
  explicit NativeDecoder(const TraceConfig& config = {},
                         std::shared_ptr<ProgramCache> programs = nullptr,
                         const NativeOptions& options = {});
  ~NativeDecoder() override;

  DecodeSummary decode(const image::CodeMap& code, std::span<const std::byte> trace,
                       FlowConsumer& consumer) override;
  std::unique_ptr<TraceStream> open(std::vector<std::span<const std::byte>> pieces,
                                    CodeTimeline& code, FlowConsumer& consumer,
                                    const StreamOptions& options) override;

  // The trace's edges instead of its branches, added to what `profile` has. What is counted in the
  // graph comes to it with flush_edges() only: after any number of traces.
  DecodeSummary count_edges(const image::CodeMap& code, std::span<const std::byte> trace,
                            EdgeProfile& profile);
  void flush_edges(EdgeProfile& profile);

  // The same for a piece of a longer trace (psb_border.h). `end`: how it ended. Where the piece is
  // told to have been before it executed anything is BranchAssembler::kLastIpBefore.
  struct PieceEnd {
    bool tracing = false;
    std::optional<Gap> gap;  // that is open
    uint64_t last_ip = 0;
  };
  DecodeSummary decode_piece(const image::CodeMap& code, std::span<const std::byte> trace,
                             const NativeFlow::Piece& piece, FlowConsumer& consumer, PieceEnd& end);
  DecodeSummary count_edges_of_piece(const image::CodeMap& code, std::span<const std::byte> trace,
                                     const NativeFlow::Piece& piece, EdgeProfile& profile,
                                     PieceEnd& end);

 private:
  class Workers;
  DecodeSummary run(const image::CodeMap& code, std::span<const std::byte> trace,
                    const NativeFlow::Piece& piece, FlowConsumer& consumer, FlowPrograms& programs,
                    PieceEnd& end);
  pt::TraceConfig config_;
  std::shared_ptr<ProgramCache> programs_;
  std::unique_ptr<Workers> workers_;
};

// As make_libipt_decoder(); an unknown CPU gets every workaround that harms no other.
std::unique_ptr<BranchDecoder> make_native_decoder(const TraceConfig& config = {});

}  // namespace auxtrail::decode
