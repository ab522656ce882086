// Driving libipt's block decoder; branch_assembler.h turns its blocks and events into branches.
//
// Blocks are made to end at every branch (end_on_call, end_on_jump).
#pragma once

#include <intel-pt.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <span>

#include "decode/branch_assembler.h"
#include "decode/branch_decoder.h"
#include "decode/code_images.h"
#include "decode/flow_code.h"
#include "pt/packet_reader.h"

namespace auxtrail::decode {

// Blocks in a row that need no packet: real code never chains that many direct jumps and calls.
inline constexpr uint64_t kMaxFreeBlocks = 10'000;
// More blocks per byte of trace than this (a TNT bit may be followed by some direct branches) is
// damage.
inline constexpr uint64_t kMaxBlocksPerByte = 512;

// Not a pt_error_code: our own stop.
inline constexpr int kLoopStatus = -1000;

inline ErrorCause cause_of(int status) {
  if (status == kLoopStatus) return ErrorCause::kLoop;
  switch (pt_errcode(status)) {
    case pte_nomap:
      return ErrorCause::kNoMap;
    case pte_bad_insn:
      return ErrorCause::kBadInstruction;
    case pte_bad_query:
    case pte_bad_status_update:
    case pte_no_enable:
      return ErrorCause::kMismatch;
    case pte_retstack_empty:
    case pte_bad_retcomp:
      return ErrorCause::kBadReturn;
    case pte_bad_opc:
      return ErrorCause::kBadOpcode;
    case pte_bad_packet:
      return ErrorCause::kBadPacket;
    case pte_eos:
      return ErrorCause::kTruncated;
    case pte_bad_context:
    case pte_noip:
    case pte_ip_suppressed:
      return ErrorCause::kBadContext;
    default:
      return ErrorCause::kInternal;
  }
}

// The flow through one piece of trace. step() until it says false, or only as far as wanted.
class LibiptFlow {
 public:
  // `trace` and all that is passed by reference must outlive the flow.
  LibiptFlow(const pt_config& config, std::span<const std::byte> trace, CodeImages& images,
             FlowCode& code, FlowConsumer& consumer)
      : decoder_(make_decoder(config, trace)),
        images_(images),
        code_(code),
        trace_(trace),
        trace_bytes_(trace.size()),
        blocks_left_(kMaxFreeBlocks + kMaxBlocksPerByte * trace_bytes_),
        wants_times_((consumer.wants() & kWantsTimes) != 0),
        assembler_(consumer) {
    assembler_.summary().bytes = trace_bytes_;
    show(code_.first());
  }

  // Decodes one block further. False at the end of the trace.
  bool step() {
    if (!synced_) {
      synced_ = true;
      status_ = pt_blk_sync_forward(decoder_.get());
      if (status_ == -pte_eos) {
        add_error(ErrorCause::kNoPsb);
        return end();
      }
    }
    if (status_ >= 0) status_ = drain_events(status_);
    if (status_ >= 0 && (status_ & pts_eos) != 0) return end();
    if (status_ >= 0) follow_time();
    if (status_ >= 0) status_ = next_block();
    if (status_ >= 0) return true;
    if (!is_open_end(status_)) add_error(cause_of(status_));
    if (status_ == kLoopStatus && blocks_left_ == 0) return end();
    status_ = resync();
    return status_ == -pte_eos ? end() : true;
  }

  // When the flow was where it is now, in the trace's own time; nothing without TSC packets.
  [[nodiscard]] std::optional<uint64_t> tsc() const {
    uint64_t value = 0;
    uint32_t lost_mtc = 0;
    uint32_t lost_cyc = 0;
    if (pt_blk_time(decoder_.get(), &value, &lost_mtc, &lost_cyc) < 0) return std::nullopt;
    return value;
  }

  // The same at the last step, of a flow whose code changes.
  [[nodiscard]] std::optional<uint64_t> now() const { return now_; }

  // The counters of all steps so far.
  [[nodiscard]] const DecodeSummary& summary() const { return assembler_.summary(); }

 private:
  using Decoder = std::unique_ptr<pt_block_decoder, decltype(&pt_blk_free_decoder)>;

  static Decoder make_decoder(pt_config config, std::span<const std::byte> trace) {
    // libipt never writes to the trace, but its interface is not const.
    auto* first = reinterpret_cast<uint8_t*>(const_cast<std::byte*>(trace.data()));
    config.begin = first;
    config.end = first + trace.size();
    Decoder decoder(pt_blk_alloc_decoder(&config), &pt_blk_free_decoder);
    if (!decoder) throw std::bad_alloc();
    return decoder;
  }

  bool end() {
    if (code_.changes()) now_ = tsc();
    assembler_.end();
    return false;
  }

  void show(const image::CodeMap& code) {
    image_ = images_.get(code);
    (void)pt_blk_set_image(decoder_.get(), image_->image.get());
  }

  // The code as it was when the flow came here.
  void follow_time() {
    if (!code_.changes()) return;
    now_ = tsc();
    const image::CodeMap* code = now_ ? code_.at(*now_) : nullptr;
    if (code != nullptr) show(*code);
  }

  // Times are in the trace now and then only: code at `ip` may have come before the next of them.
  bool show_later_code(uint64_t ip) {
    if (!code_.changes()) return false;
    const image::CodeMap* code = code_.later(ip, next_tsc());
    if (code == nullptr) return false;
    show(*code);
    return true;
  }

  // libipt does not count cycles.
  void tell_time() {
    if (!wants_times_) return;
    const auto now = tsc();
    assembler_.set_time({now.value_or(0), 0, now.has_value()});
  }

  // The next TSC packet's, the end of time if there is none.
  [[nodiscard]] uint64_t next_tsc() const {
    const auto rest = trace_.subspan(std::min<size_t>(offset(), trace_.size()));
    return pt::first_tsc(rest).value_or(std::numeric_limits<uint64_t>::max());
  }

  // The trace just ends where the flow needs more of it, at a packet's border.
  bool is_open_end(int status) const {
    return status == -pte_eos && assembler_.running() && offset() == trace_bytes_;
  }

  [[nodiscard]] uint64_t offset() const {
    uint64_t value = 0;
    (void)pt_blk_get_offset(decoder_.get(), &value);
    return value;
  }

  // Goes on at the next PSB; -pte_eos if there is none.
  int resync() {
    uint64_t before = 0;
    uint64_t after = 0;
    const bool was_synced = pt_blk_get_sync_offset(decoder_.get(), &before) >= 0;
    const int status = pt_blk_sync_forward(decoder_.get());
    if (status == -pte_eos) return status;
    if (pt_blk_get_sync_offset(decoder_.get(), &after) < 0 || (was_synced && after <= before)) {
      return -pte_eos;
    }
    free_blocks_ = 0;
    assembler_.skip_to(after);
    return status;
  }

  int drain_events(int status) {
    while (status >= 0 && (status & pts_event_pending) != 0) {
      follow_time();
      pt_event event;
      status = pt_blk_event(decoder_.get(), &event, sizeof(event));
      tell_time();
      if (status >= 0) on_event(event);
    }
    return status;
  }

  int next_block() {
    pt_block block{};
    int status = pt_blk_next(decoder_.get(), &block, sizeof(block));
    if (block.ninsn == 0 && status == -pte_nomap && show_later_code(block.ip)) {
      status = pt_blk_next(decoder_.get(), &block, sizeof(block));
    }
    tell_time();
    if (block.ninsn == 0) {
      // The address the flow went to is known even if no code is.
      if (status == -pte_nomap || status == -pte_bad_insn) assembler_.on_unknown_code(block.ip);
      return count_block(false) ? status : kLoopStatus;
    }
    const auto& end = images_.block_end(*image_, block);
    std::optional<BranchAssembler::Ending> ending;
    if (end) {
      const bool conditional = end->kind == BranchKind::kConditional;
      ending = {block.end_ip, conditional ? block.end_ip + end->length : 0, end->kind, 0,
                end->length};
    }
    assembler_.on_block({block.ip, block.end_ip, block.ninsn}, ending);
    // More code may be known by the time that the flow goes on.
    if (status == -pte_nomap && code_.changes()) status = 0;
    if (status < 0) return status;
    const bool needs_packet =
        end && end->kind != BranchKind::kJump && end->kind != BranchKind::kCall;
    return count_block(needs_packet) ? status : kLoopStatus;
  }

  // False if the flow runs in circles without consuming the trace.
  bool count_block(bool needs_packet) {
    free_blocks_ = needs_packet ? 0 : free_blocks_ + 1;
    if (blocks_left_ > 0) --blocks_left_;
    return free_blocks_ <= kMaxFreeBlocks && blocks_left_ > 0;
  }

  void on_event(const pt_event& event) {
    const bool has_ip = event.ip_suppressed == 0;
    switch (event.type) {
      case ptev_enabled:
        if (event.status_update == 0 || !assembler_.running()) {
          assembler_.begin(event.variant.enabled.ip);
        }
        break;
      case ptev_disabled:
        if (event.status_update == 0) {
          assembler_.leave(has_ip ? event.variant.disabled.ip : 0, offset());
        }
        break;
      case ptev_async_disabled:
        assembler_.stop_at(event.variant.async_disabled.at, offset());
        break;
      case ptev_async_branch:
        assembler_.interrupt(event.variant.async_branch.from,
                             has_ip ? event.variant.async_branch.to : 0);
        break;
      case ptev_overflow:
        assembler_.overflow(has_ip ? event.variant.overflow.ip : 0, offset());
        break;
      default:
        break;
    }
  }

  void add_error(ErrorCause cause) { assembler_.add_error(cause, offset()); }

  Decoder decoder_;
  CodeImages& images_;
  FlowCode& code_;
  std::shared_ptr<CodeImages::Image> image_;
  std::span<const std::byte> trace_;
  uint64_t trace_bytes_;
  uint64_t blocks_left_;
  uint64_t free_blocks_ = 0;
  bool wants_times_;
  BranchAssembler assembler_;
  std::optional<uint64_t> now_;
  int status_ = 0;
  bool synced_ = false;
};

}  // namespace auxtrail::decode
