// Cutting a trace into windows at PSBs.
#include "decode/native_stream.h"

#include <algorithm>
#include <utility>

#include "decode/psb_border.h"
#include "pt/packet_reader.h"
#include "pt/psb_search.h"

namespace auxtrail::decode {
namespace {

// A walk counts as one, however far it went.
constexpr unsigned kStepsPerRun = 256;
using pt::kPsbBytes;

}  // namespace

NativeStream::NativeStream(const pt::TraceConfig& config,
                           std::vector<std::span<const std::byte>> pieces,
                           std::unique_ptr<FlowPrograms> programs, CodeTimeline& code,
                           FlowConsumer& consumer, const StreamOptions& options)
    : config_(config),
      source_(std::move(pieces)),
      programs_(std::move(programs)),
      code_(code, options),
      consumer_(consumer),
      options_(options),
      time_ns_(options.start_ns) {}

bool NativeStream::run(uint64_t until_ns) {
  unsigned steps = 0;
  for (;;) {
    if (!window_is_open_ && !open_window()) return false;
    while (flow_->step()) {
      time_ns_ = time_ns();
      if (time_ns_ > until_ns || ++steps >= kStepsPerRun) return true;
    }
    window_is_open_ = false;
  }
}

uint64_t NativeStream::time_ns() const {
  const auto now = flow_ ? flow_->now() : std::nullopt;
  return now ? std::max(time_ns_, options_.clock.ns(*now)) : time_ns_;
}

DecodeSummary NativeStream::summary() const { return flow_ ? flow_->summary() : DecodeSummary(); }

// The last whole PSB+ that does not begin the window. False if there is none.
bool NativeStream::find_border() {
  last_psb_ = 0;
  pt::PacketReader reader(window_);
  reader.seek(std::min(kPsbBytes, window_.size()));
  while (reader.sync_forward()) {
    const size_t psb = reader.offset();
    if (const auto border = border_at(window_, psb)) {
      last_psb_ = psb;
      end_of_last_psb_ = border->end;
    }
    reader.seek(psb + kPsbBytes);
  }
  return last_psb_ != 0;
}

bool NativeStream::open_window() {
  if (source_.at_end()) return false;  // that was the last one
  if (last_psb_ != 0) {
    window_.erase(window_.begin(), window_.begin() + static_cast<std::ptrdiff_t>(last_psb_));
    window_offset_ += last_psb_;
  }
  size_t bytes = std::max(options_.window_bytes, 2 * kPsbBytes);
  for (source_.fill(window_, bytes); !source_.at_end() && !find_border();
       source_.fill(window_, bytes)) {
    bytes *= 2;
  }
  const bool is_last = source_.at_end();
  const std::span<const std::byte> all(window_);
  const auto trace = is_last ? all : all.first(end_of_last_psb_);
  if (trace.empty()) return false;
  window_is_open_ = true;
  if (flow_) {
    flow_->go_on(trace, {window_offset_, false, !is_last});
    return true;
  }
  const auto tsc = pt::first_tsc(trace);
  code_.restart(tsc ? options_.clock.ns(*tsc) : time_ns_);
  const NativeFlow::Piece piece{0, false, !is_last};
  flow_.emplace(config_, trace, *programs_, code_, consumer_, piece);
  return true;
}

}  // namespace auxtrail::decode
