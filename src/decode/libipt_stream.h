// LibiptStream: a long trace through libipt in constant memory.
//
// libipt wants a trace in one piece and can only begin at a PSB. So the trace is decoded in windows
// that end at a PSB, and each begins one PSB before the end of the one before:
//
//   window 1   PSB ........... PSB ........... PSB|
//   window 2                   PSB ~~~~~~~~~~~ PSB ........... PSB ........... PSB|
//                              └ known already ┘ ▲ new from here
//
// What the overlap holds was handed out by the window before, and it alone knows what led into it.
// It is decoded once more for nothing: as many calls to the consumer as a decoding of the overlap
// alone makes are left out of the next window.
#pragma once

#include <intel-pt.h>

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "decode/branch_decoder.h"
#include "decode/libipt_flow.h"
#include "decode/piece_source.h"
#include "decode/timeline_code.h"

namespace auxtrail::decode {

class LibiptStream : public TraceStream {
 public:
  LibiptStream(const pt_config& config, std::vector<std::span<const std::byte>> pieces,
               CodeImages& images, CodeTimeline& code, FlowConsumer& consumer,
               const StreamOptions& options);

  bool run(uint64_t until_ns) override;
  [[nodiscard]] uint64_t time_ns() const override;
  [[nodiscard]] DecodeSummary summary() const override;

 private:
  // Hands on to the consumer what comes after the first `skip` calls, with offsets in the whole
  // trace.
  class Relay : public FlowConsumer {
   public:
    explicit Relay(FlowConsumer* consumer) : consumer_(consumer) {}
    void restart(uint64_t skip, uint64_t base) {
      skip_ = skip;
      base_ = base;
      calls_ = 0;
    }
    [[nodiscard]] uint64_t calls() const { return calls_; }
    void on_branch(const Branch& branch) override;
    void on_not_taken(uint64_t ip) override;
    void on_block(const Block& block) override;
    void on_gap(const Gap& gap) override;
    void on_error(const DecodeError& error) override;

   private:
    bool passes() { return calls_++ >= skip_ && consumer_ != nullptr; }
    FlowConsumer* consumer_;
    uint64_t skip_ = 0;
    uint64_t base_ = 0;
    uint64_t calls_ = 0;
  };

  bool open_window();
  void close_window();
  void find_borders();

  pt_config config_;
  PieceSource source_;
  CodeImages& images_;
  TimelineCode code_;
  Relay relay_;
  StreamOptions options_;

  std::vector<std::byte> window_;
  uint64_t window_offset_ = 0;  // in the trace
  size_t overlap_bytes_ = 0;    // at the window's start, known already
  size_t last_psb_ = 0;         // where the window's decoding ends, unless it is the last
  size_t psb_before_ = 0;       // where the next window begins
  std::optional<LibiptFlow> flow_;
  uint64_t time_ns_;
  DecodeSummary done_;     // of the windows before
  DecodeSummary overlap_;  // of this window's overlap: counted before
};

}  // namespace auxtrail::decode
