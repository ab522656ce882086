// A long trace through NativeFlow, window by window: memory is bounded, the flow is one.
//
// Windows end behind a PSB+, and the next one begins with the same PSB+: whatever happens before a
// PSB is decided by the end of its PSB+, and whatever happens behind it needs nothing from before
// but the return stack.
//
//   pieces   ─────────────PSB+────────────────PSB+─────────
//   window 1 ──────────────────────────────────────┤
//   window 2                                  ├────────────
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "decode/native_flow.h"
#include "decode/piece_source.h"
#include "decode/timeline_code.h"

namespace auxtrail::decode {

class NativeStream : public TraceStream {
 public:
  NativeStream(const pt::TraceConfig& config, std::vector<std::span<const std::byte>> pieces,
               std::unique_ptr<FlowPrograms> programs, CodeTimeline& code, FlowConsumer& consumer,
               const StreamOptions& options);

  bool run(uint64_t until_ns) override;
  [[nodiscard]] uint64_t time_ns() const override;
  [[nodiscard]] DecodeSummary summary() const override;

 private:
  bool find_border();
  bool open_window();

  pt::TraceConfig config_;
  PieceSource source_;
  std::unique_ptr<FlowPrograms> programs_;
  TimelineCode code_;
  FlowConsumer& consumer_;
  StreamOptions options_;
  uint64_t time_ns_;

  std::vector<std::byte> window_;
  uint64_t window_offset_ = 0;  // in the trace
  // The PSB that the next window begins with, and where its PSB+ ends; 0: none in the window.
  size_t last_psb_ = 0;
  size_t end_of_last_psb_ = 0;

  std::optional<NativeFlow> flow_;
  bool window_is_open_ = false;
};

}  // namespace auxtrail::decode
