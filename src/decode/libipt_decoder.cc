// Driving libipt's block decoder, and turning its blocks and events into branches.
//
// Blocks are made to end at every branch (end_on_call, end_on_jump). Where a block's last branch
// led is known only from what comes next: the following block's first address, or the address of
// the event in between. Until then the branch is pending:
//
//   block A ──jcc──►?   next block at B != fall-through   taken to B
//                       next block at the fall-through    not taken
//                       async event at X                  led to X, then the event
//                       disabled event                    led out of the trace (a system call, the
//                       filter's edge) overflow, error                   unknown: dropped
//
// A `jcc` whose target is its own fall-through counts as not taken: libipt does not tell.
#include "decode/libipt_decoder.h"

#include <intel-pt.h>

#include <new>

#include "decode/code_images.h"

namespace auxtrail::decode {
namespace {

// Blocks in a row that need no packet: real code never chains that many direct jumps and calls.
constexpr uint64_t kMaxFreeBlocks = 10'000;
// More blocks per byte of trace than this (a TNT bit may be followed by some direct branches) is
// damage.
constexpr uint64_t kMaxBlocksPerByte = 512;

// Not a pt_error_code: our own stop.
constexpr int kLoopStatus = -1000;

ErrorCause cause_of(int status) {
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

pt_config libipt_config(const TraceConfig& config) {
  pt_config result;
  pt_config_init(&result);
  result.flags.variant.block.end_on_call = 1;
  result.flags.variant.block.end_on_jump = 1;
  result.mtc_freq = config.mtc_freq;
  result.nom_freq = config.nom_freq;
  result.cpuid_0x15_eax = config.cpuid_0x15_eax;
  result.cpuid_0x15_ebx = config.cpuid_0x15_ebx;
  if (config.intel_cpu) {
    result.cpu = {pcv_intel, config.family, config.model, config.stepping};
    (void)pt_cpu_errata(&result.errata, &result.cpu);
  }
  if (config.filter_end != 0) {
    constexpr uint64_t kFilter = 1;
    result.addr_filter.config.addr_cfg = kFilter;
    result.addr_filter.addr0_a = config.filter_start;
    result.addr_filter.addr0_b = config.filter_end;
  }
  return result;
}

// One decode() call.
class Flow {
 public:
  Flow(pt_block_decoder* decoder, CodeImages& images, CodeImages::Image& image, size_t trace_bytes,
       FlowConsumer& consumer)
      : decoder_(decoder),
        images_(images),
        image_(image),
        trace_bytes_(trace_bytes),
        blocks_left_(kMaxFreeBlocks + kMaxBlocksPerByte * trace_bytes),
        consumer_(consumer) {
    summary_.bytes = trace_bytes;
  }

  DecodeSummary run() {
    int status = pt_blk_sync_forward(decoder_);
    if (status == -pte_eos) {
      add_error(ErrorCause::kNoPsb);
      return summary_;
    }
    for (;;) {
      if (status >= 0) status = drain_events(status);
      if (status >= 0 && (status & pts_eos) != 0) break;
      if (status >= 0) status = next_block();
      if (status >= 0) continue;
      if (!is_open_end(status)) add_error(cause_of(status));
      if (status == kLoopStatus && blocks_left_ == 0) break;
      status = resync();
      if (status == -pte_eos) break;
    }
    if (running_) {
      summary_.ends_open = true;
      summary_.final_ip = last_ip_;
    }
    return summary_;
  }

 private:
  struct Pending {
    uint64_t from;
    uint64_t fall_through;  // 0: not conditional
    BranchKind kind;
  };

  // The trace just ends where the flow needs more of it, at a packet's border.
  bool is_open_end(int status) const {
    return status == -pte_eos && running_ && offset() == trace_bytes_;
  }

  [[nodiscard]] uint64_t offset() const {
    uint64_t value = 0;
    (void)pt_blk_get_offset(decoder_, &value);
    return value;
  }

  // Goes on at the next PSB; -pte_eos if there is none.
  int resync() {
    uint64_t before = 0;
    uint64_t after = 0;
    const bool was_synced = pt_blk_get_sync_offset(decoder_, &before) >= 0;
    const bool was_running = running_;
    const int status = pt_blk_sync_forward(decoder_);
    if (status == -pte_eos) return status;
    if (pt_blk_get_sync_offset(decoder_, &after) < 0 || (was_synced && after <= before)) {
      return -pte_eos;
    }
    pending_.reset();
    running_ = false;
    free_blocks_ = 0;
    if (was_running) gap_ = Gap{GapKind::kError, last_ip_, 0, after};
    return status;
  }

  int drain_events(int status) {
    while (status >= 0 && (status & pts_event_pending) != 0) {
      pt_event event;
      status = pt_blk_event(decoder_, &event, sizeof(event));
      if (status >= 0) on_event(event);
    }
    return status;
  }

  int next_block() {
    pt_block block{};
    const int status = pt_blk_next(decoder_, &block, sizeof(block));
    if (block.ninsn == 0) {
      // The address the flow went to is known even if no code is.
      if (status == -pte_nomap || status == -pte_bad_insn) {
        resolve(block.ip);
        last_ip_ = block.ip;
      }
      return count_block(false) ? status : kLoopStatus;
    }
    ensure_running(block.ip);
    resolve(block.ip);
    summary_.instructions += block.ninsn;
    ++summary_.blocks;
    last_ip_ = block.end_ip;
    consumer_.on_block({block.ip, block.end_ip, block.ninsn});
    const auto& end = images_.block_end(image_, block);
    if (end) {
      const bool conditional = end->kind == BranchKind::kConditional;
      pending_ = Pending{block.end_ip, conditional ? block.end_ip + end->length : 0, end->kind};
    }
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

  // The pending branch led to `ip`.
  void resolve(uint64_t ip) {
    if (!pending_) return;
    const Pending branch = *pending_;
    pending_.reset();
    if (branch.fall_through == ip && branch.kind == BranchKind::kConditional) {
      ++summary_.not_taken;
      consumer_.on_not_taken(branch.from);
      return;
    }
    emit({branch.from, ip, branch.kind, false});
  }

  void emit(const Branch& branch) {
    if (!branch.is_marker()) ++summary_.branches;
    consumer_.on_branch(branch);
  }

  void on_event(const pt_event& event) {
    const bool has_ip = event.ip_suppressed == 0;
    switch (event.type) {
      case ptev_enabled:
        if (event.status_update == 0 || !running_) begin(event.variant.enabled.ip);
        break;
      case ptev_disabled:
        if (event.status_update == 0) {
          leave(has_ip ? event.variant.disabled.ip : 0);
        }
        break;
      case ptev_async_disabled:
        stop_at(event.variant.async_disabled.at);
        break;
      case ptev_async_branch:
        ensure_running(event.variant.async_branch.from);
        resolve(event.variant.async_branch.from);
        emit({event.variant.async_branch.from, has_ip ? event.variant.async_branch.to : 0,
              BranchKind::kAsync, false});
        break;
      case ptev_overflow:
        overflow(has_ip ? event.variant.overflow.ip : 0);
        break;
      default:
        break;
    }
  }

  // A PSB+ that says "tracing is on" comes without an event: the first address met is where it
  // begins.
  void ensure_running(uint64_t ip) {
    if (!running_) begin(ip);
  }

  void begin(uint64_t ip) {
    if (gap_) {
      gap_->to_ip = ip;
      add_gap(*gap_);
      gap_.reset();
    }
    pending_.reset();
    running_ = true;
    last_ip_ = ip;
    if (!summary_.first_ip) summary_.first_ip = ip;
    emit({0, ip, BranchKind::kTraceBegin, false});
  }

  // Tracing ended with the instruction that was executed last; `to` is 0 if unknown.
  void leave(uint64_t to) {
    if (pending_ && pending_->kind == BranchKind::kConditional && to != 0 &&
        to == pending_->fall_through) {
      resolve(to);
      emit({last_ip_, 0, BranchKind::kTraceEnd, true});
    } else if (pending_) {
      emit({pending_->from, to, pending_->kind, true});
    } else {
      emit({last_ip_, 0, BranchKind::kTraceEnd, true});
    }
    end_run(last_ip_);
  }

  // Tracing was stopped before the instruction at `ip`.
  void stop_at(uint64_t ip) {
    ensure_running(ip);
    resolve(ip);
    emit({ip, 0, BranchKind::kTraceEnd, true});
    end_run(ip);
  }

  void end_run(uint64_t ip) {
    pending_.reset();
    running_ = false;
    last_ip_ = ip;
    summary_.final_ip = ip;
    gap_ = Gap{GapKind::kDisabled, ip, 0, offset()};
  }

  void overflow(uint64_t ip) {
    ++summary_.overflows;
    pending_.reset();
    running_ = false;
    gap_ = Gap{GapKind::kOverflow, last_ip_, 0, offset()};
    if (ip != 0) begin(ip);
  }

  void add_gap(const Gap& gap) {
    ++summary_.gaps;
    consumer_.on_gap(gap);
  }

  void add_error(ErrorCause cause) {
    ++summary_.errors[static_cast<size_t>(cause)];
    consumer_.on_error({cause, offset(), last_ip_});
  }

  pt_block_decoder* decoder_;
  CodeImages& images_;
  CodeImages::Image& image_;
  uint64_t trace_bytes_;
  uint64_t blocks_left_;
  uint64_t free_blocks_ = 0;
  FlowConsumer& consumer_;
  DecodeSummary summary_;
  std::optional<Pending> pending_;
  std::optional<Gap> gap_;
  uint64_t last_ip_ = 0;
  bool running_ = false;
};

class LibiptDecoder : public BranchDecoder {
 public:
  explicit LibiptDecoder(const TraceConfig& config) : config_(libipt_config(config)) {}

  DecodeSummary decode(const image::CodeMap& code, std::span<const std::byte> trace,
                       FlowConsumer& consumer) override {
    if (trace.empty()) return {};
    pt_config config = config_;
    // libipt never writes to the trace, but its interface is not const.
    auto* first = reinterpret_cast<uint8_t*>(const_cast<std::byte*>(trace.data()));
    config.begin = first;
    config.end = first + trace.size();
    const std::unique_ptr<pt_block_decoder, decltype(&pt_blk_free_decoder)> decoder(
        pt_blk_alloc_decoder(&config), &pt_blk_free_decoder);
    if (!decoder) throw std::bad_alloc();
    auto& image = images_.get(code);
    (void)pt_blk_set_image(decoder.get(), image.image.get());
    return Flow(decoder.get(), images_, image, trace.size(), consumer).run();
  }

 private:
  pt_config config_;
  CodeImages images_;
};

}  // namespace

std::unique_ptr<BranchDecoder> make_libipt_decoder(const TraceConfig& config) {
  return std::make_unique<LibiptDecoder>(config);
}

}  // namespace auxtrail::decode
