#include "decode/libipt_stream.h"

#include <algorithm>
#include <utility>

namespace auxtrail::decode {
namespace {

constexpr unsigned kBlocksPerLook = 64;  // at the clock
constexpr unsigned kBlocksPerRun = 4096;
constexpr size_t kPsbBytes = 16;

// Whether a piece of trace that begins at a PSB holds a packet that leads the flow on.
bool has_flow(std::span<const std::byte> trace) {
  pt::PacketReader reader(trace);
  pt::Packet packet;
  while (reader.next(packet) == pt::ReadStatus::kPacket) {
    switch (packet.kind) {
      case pt::PacketKind::kTnt8:
      case pt::PacketKind::kTnt64:
      case pt::PacketKind::kTip:
      case pt::PacketKind::kTipPge:
      case pt::PacketKind::kTipPgd:
        return true;
      default:
        break;
    }
  }
  return false;
}

}  // namespace

void LibiptStream::Relay::on_branch(const Branch& branch) {
  if (passes()) consumer_->on_branch(branch);
}
void LibiptStream::Relay::on_not_taken(uint64_t ip) {
  if (passes()) consumer_->on_not_taken(ip);
}
void LibiptStream::Relay::on_block(const Block& block) {
  if (passes()) consumer_->on_block(block);
}
void LibiptStream::Relay::on_gap(const Gap& gap) {
  if (!passes()) return;
  Gap moved = gap;
  moved.offset += base_;
  consumer_->on_gap(moved);
}
void LibiptStream::Relay::on_error(const DecodeError& error) {
  if (!passes()) return;
  DecodeError moved = error;
  moved.offset += base_;
  consumer_->on_error(moved);
}

LibiptStream::LibiptStream(const pt_config& config, std::vector<std::span<const std::byte>> pieces,
                           CodeImages& images, CodeTimeline& code, FlowConsumer& consumer,
                           const StreamOptions& options)
    : config_(config),
      source_(std::move(pieces)),
      images_(images),
      code_(code, options),
      relay_(&consumer),
      options_(options),
      time_ns_(options.start_ns) {}

bool LibiptStream::run(uint64_t until_ns) {
  unsigned blocks = 0;
  for (;;) {
    if (!flow_ && !open_window()) return false;
    while (flow_->step()) {
      if (++blocks % kBlocksPerLook != 0) continue;
      time_ns_ = time_ns();
      if (time_ns_ > until_ns || blocks >= kBlocksPerRun) return true;
    }
    close_window();
  }
}

uint64_t LibiptStream::time_ns() const {
  const auto now = flow_ ? flow_->now() : std::nullopt;
  return now ? std::max(time_ns_, options_.clock.ns(*now)) : time_ns_;
}

DecodeSummary LibiptStream::summary() const {
  DecodeSummary sum = done_;
  if (!flow_) return sum;
  sum += flow_->summary();
  return sum -= overlap_;
}

// The last PSB of the window, and the newest before it (but behind the overlap) from which on the
// flow went: only there is it certain that this window came as far.
void LibiptStream::find_borders() {
  psb_before_ = last_psb_ = 0;
  std::vector<size_t> psbs;
  pt::PacketReader reader(window_);
  reader.seek(overlap_bytes_);
  while (reader.sync_forward()) {
    psbs.push_back(reader.offset());
    reader.seek(std::min(psbs.back() + kPsbBytes, window_.size()));
  }
  if (psbs.empty()) return;
  last_psb_ = psbs.back();
  size_t end = last_psb_;
  for (psbs.pop_back(); !psbs.empty() && psbs.back() > overlap_bytes_; psbs.pop_back()) {
    const size_t begin = psbs.back();
    if (has_flow(std::span(window_).subspan(begin, end - begin))) {
      psb_before_ = begin;
      return;
    }
    end = begin;
  }
}

bool LibiptStream::open_window() {
  size_t bytes = std::max(options_.window_bytes, overlap_bytes_ + 1);
  bool is_last = false;
  for (;; bytes *= 2) {
    source_.fill(window_, bytes);
    is_last = source_.at_end();
    if (is_last) break;
    find_borders();
    if (psb_before_ != 0) break;
  }
  if (window_.size() <= overlap_bytes_) return false;
  const std::span<const std::byte> trace(window_.data(), is_last ? window_.size() : last_psb_);
  const auto tsc = pt::first_tsc(trace);
  const uint64_t start_ns = tsc ? options_.clock.ns(*tsc) : time_ns_;
  uint64_t known_calls = 0;
  overlap_ = {};
  if (overlap_bytes_ != 0) {
    Relay counter(nullptr);
    code_.restart(start_ns);
    LibiptFlow again(config_, trace.first(overlap_bytes_), images_, code_, counter);
    while (again.step()) {
    }
    known_calls = counter.calls();
    overlap_ = again.summary();
  }
  relay_.restart(known_calls, window_offset_);
  code_.restart(start_ns);
  flow_.emplace(config_, trace, images_, code_, relay_);
  return true;
}

void LibiptStream::close_window() {
  time_ns_ = time_ns();
  done_ = summary();
  flow_.reset();
  if (source_.at_end()) {
    window_.clear();
    overlap_bytes_ = 0;
    return;
  }
  overlap_bytes_ = last_psb_ - psb_before_;
  window_offset_ += psb_before_;
  window_.erase(window_.begin(), window_.begin() + static_cast<std::ptrdiff_t>(psb_before_));
}

}  // namespace auxtrail::decode
