#include "decode/testing/libipt_oracle.h"

#include <algorithm>

namespace auxtrail::decode::testing {
namespace {

using flow::EventKind;
using flow::ExecMode;
using flow::Status;

ExecMode mode_of(pt_exec_mode mode) {
  switch (mode) {
    case ptem_16bit:
      return ExecMode::k16;
    case ptem_32bit:
      return ExecMode::k32;
    case ptem_64bit:
      return ExecMode::k64;
    default:
      return ExecMode::kUnknown;
  }
}

pt_config config_of(const DifferentialCase& made) {
  pt_config result;
  pt_config_init(&result);
  const TraceConfig& config = made.config;
  result.mtc_freq = config.mtc_freq;
  result.nom_freq = config.nom_freq;
  result.cpuid_0x15_eax = config.cpuid_0x15_eax;
  result.cpuid_0x15_ebx = config.cpuid_0x15_ebx;
  if (config.intel_cpu) {
    result.cpu = {pcv_intel, config.family, config.model, config.stepping};
    (void)pt_cpu_errata(&result.errata, &result.cpu);
  }
  if (config.filter_end != 0) {
    result.addr_filter.config.addr_cfg = 1;
    result.addr_filter.addr0_a = config.filter_start;
    result.addr_filter.addr0_b = config.filter_end;
  }
  // libipt never writes to the trace, but its interface is not const.
  result.begin = reinterpret_cast<uint8_t*>(const_cast<std::byte*>(made.trace.bytes.data()));
  result.end = result.begin + made.trace.bytes.size();
  return result;
}

// The block decoder's calls.
struct Blocks {
  static constexpr auto allocate = pt_blk_alloc_decoder;
  static constexpr auto free = pt_blk_free_decoder;
  static constexpr auto sync_forward = pt_blk_sync_forward;
  static constexpr auto sync_offset = pt_blk_get_sync_offset;
  static constexpr auto offset = pt_blk_get_offset;
  static constexpr auto set_image = pt_blk_set_image;
  static constexpr auto next_event = pt_blk_event;
  static constexpr auto time = pt_blk_time;
  using Decoder = pt_block_decoder;

  static void configure(pt_config& config) {
    config.flags.variant.block.end_on_call = 1;
    config.flags.variant.block.end_on_jump = 1;
  }

  static int next(Decoder* decoder, CodeImages& images, CodeImages::Image& image,
                  BlockFlow::Piece& piece) {
    pt_block block{};
    const int status = pt_blk_next(decoder, &block, sizeof(block));
    if (block.ninsn != 0) {
      piece = {block.ip,
               block.end_ip,
               block.ninsn,
               mode_of(block.mode),
               block.speculative != 0,
               images.block_end(image, block).has_value(),
               0};
    }
    return status;
  }
};

// The instruction decoder's.
struct Insns {
  static constexpr auto allocate = pt_insn_alloc_decoder;
  static constexpr auto free = pt_insn_free_decoder;
  static constexpr auto sync_forward = pt_insn_sync_forward;
  static constexpr auto sync_offset = pt_insn_get_sync_offset;
  static constexpr auto offset = pt_insn_get_offset;
  static constexpr auto set_image = pt_insn_set_image;
  static constexpr auto next_event = pt_insn_event;
  static constexpr auto time = pt_insn_time;
  using Decoder = pt_insn_decoder;

  static void configure(pt_config&) {}

  static int next(Decoder* decoder, CodeImages&, CodeImages::Image&, BlockFlow::Piece& piece) {
    pt_insn insn{};
    const int status = pt_insn_next(decoder, &insn, sizeof(insn));
    if (insn.iclass != ptic_error) {
      const bool branches = insn.iclass != ptic_other && insn.iclass != ptic_ptwrite;
      piece = {insn.ip, insn.ip, 1, mode_of(insn.mode), insn.speculative != 0, branches, 0};
    }
    return status;
  }
};

template <class Api>
class Flow {
 public:
  Flow(const DifferentialCase& made, CodeImages& images, BlockFlow& flow)
      : images_(images),
        image_(images.get(*made.code)),
        flow_(flow),
        size_(made.trace.bytes.size()) {
    pt_config config = config_of(made);
    Api::configure(config);
    decoder_ = Api::allocate(&config);
    (void)Api::set_image(decoder_, image_->image.get());
  }
  Flow(const Flow&) = delete;
  Flow& operator=(const Flow&) = delete;
  ~Flow() { Api::free(decoder_); }

  void decode() {
    int status = Api::sync_forward(decoder_);
    if (status == -pte_eos) return;
    record_sync();
    for (;;) {
      while (status >= 0) {
        status = events(status);
        if (status < 0) break;
        if ((status & pts_eos) != 0) return;
        status = piece();
        if (status >= 0 && !flow_.progress(offset())) break;
      }
      if (status == -pte_eos && offset() == size_) return;
      if (status < 0) flow_.error(status_of(status), offset());
      status = resync();
      if (status == -pte_eos) return;
      record_sync();
    }
  }

 private:
  int events(int status) {
    while (status >= 0 && (status & pts_event_pending) != 0) {
      pt_event event{};
      status = Api::next_event(decoder_, &event, sizeof(event));
      if (status < 0) break;
      const bool resumed = event.type == ptev_enabled && event.variant.enabled.resumed != 0;
      flow_.event(event_of(event), resumed);
    }
    return status;
  }

  int piece() {
    BlockFlow::Piece piece;
    const int status = Api::next(decoder_, images_, *image_, piece);
    uint32_t lost_mtc = 0;
    uint32_t lost_cyc = 0;
    if (Api::time(decoder_, &piece.time, &lost_mtc, &lost_cyc) < 0) piece.time = 0;
    if (piece.instructions != 0) flow_.run(piece);
    return status;
  }

  int resync() {
    uint64_t before = 0;
    uint64_t after = 0;
    const bool was_synced = Api::sync_offset(decoder_, &before) >= 0;
    const int status = Api::sync_forward(decoder_);
    if (status == -pte_eos) return status;
    if (Api::sync_offset(decoder_, &after) < 0 || (was_synced && after <= before)) return -pte_eos;
    return status;
  }

  void record_sync() {
    uint64_t value = 0;
    if (Api::sync_offset(decoder_, &value) >= 0) flow_.sync(value);
  }

  [[nodiscard]] uint64_t offset() const {
    uint64_t value = 0;
    (void)Api::offset(decoder_, &value);
    return value;
  }

  CodeImages& images_;
  std::shared_ptr<CodeImages::Image> image_;
  BlockFlow& flow_;
  uint64_t size_;
  typename Api::Decoder* decoder_ = nullptr;
};

}  // namespace

void LibiptOracle::decode_blocks(const DifferentialCase& made, BlockFlow& flow) {
  flow.clear();
  if (!made.trace.bytes.empty()) Flow<Blocks>(made, images_, flow).decode();
}

void LibiptOracle::decode_insns(const DifferentialCase& made, BlockFlow& flow) {
  flow.clear();
  if (!made.trace.bytes.empty()) Flow<Insns>(made, images_, flow).decode();
}

flow::Event event_of(const pt_event& from) {
  flow::Event to;
  to.ip_suppressed = from.ip_suppressed != 0;
  to.status_update = from.status_update != 0;
  to.has_tsc = from.has_tsc != 0;
  to.tsc = from.has_tsc != 0 ? from.tsc : 0;
  to.lost_mtc = from.lost_mtc;
  to.lost_cyc = from.lost_cyc;
  const auto& variant = from.variant;
  switch (from.type) {
    case ptev_enabled:
      to.kind = EventKind::kEnabled;
      to.ip = variant.enabled.ip;
      break;
    case ptev_disabled:
      to.kind = EventKind::kDisabled;
      to.ip = variant.disabled.ip;
      break;
    case ptev_async_disabled:
      to.kind = EventKind::kAsyncDisabled;
      to.at = variant.async_disabled.at;
      to.ip = variant.async_disabled.ip;
      break;
    case ptev_async_branch:
      to.kind = EventKind::kAsyncBranch;
      to.at = variant.async_branch.from;
      to.ip = variant.async_branch.to;
      break;
    case ptev_paging:
      to.kind = EventKind::kPaging;
      to.payload = variant.paging.cr3;
      to.flag = variant.paging.non_root != 0;
      break;
    case ptev_async_paging:
      to.kind = EventKind::kAsyncPaging;
      to.payload = variant.async_paging.cr3;
      to.flag = variant.async_paging.non_root != 0;
      to.ip = variant.async_paging.ip;
      break;
    case ptev_overflow:
      to.kind = EventKind::kOverflow;
      to.ip = variant.overflow.ip;
      break;
    case ptev_exec_mode:
      to.kind = EventKind::kExecMode;
      to.mode = mode_of(variant.exec_mode.mode);
      to.ip = variant.exec_mode.ip;
      break;
    case ptev_tsx:
      to.kind = EventKind::kTsx;
      to.flag = variant.tsx.speculative != 0;
      to.flag2 = variant.tsx.aborted != 0;
      to.ip = variant.tsx.ip;
      break;
    case ptev_stop:
      to.kind = EventKind::kStop;
      break;
    case ptev_vmcs:
      to.kind = EventKind::kVmcs;
      to.payload = variant.vmcs.base;
      break;
    case ptev_async_vmcs:
      to.kind = EventKind::kAsyncVmcs;
      to.payload = variant.async_vmcs.base;
      to.ip = variant.async_vmcs.ip;
      break;
    case ptev_exstop:
      to.kind = EventKind::kExstop;
      to.ip = variant.exstop.ip;
      break;
    case ptev_mwait:
      to.kind = EventKind::kMwait;
      to.payload = variant.mwait.hints;
      to.payload2 = variant.mwait.ext;
      to.ip = variant.mwait.ip;
      break;
    case ptev_pwre:
      to.kind = EventKind::kPwre;
      to.small = variant.pwre.state;
      to.small2 = variant.pwre.sub_state;
      to.flag = variant.pwre.hw != 0;
      break;
    case ptev_pwrx:
      to.kind = EventKind::kPwrx;
      to.small = variant.pwrx.last;
      to.small2 = variant.pwrx.deepest;
      to.flag = variant.pwrx.interrupt != 0;
      to.flag2 = variant.pwrx.store != 0;
      to.flag3 = variant.pwrx.autonomous != 0;
      break;
    case ptev_ptwrite:
      to.kind = EventKind::kPtwrite;
      to.payload = variant.ptwrite.payload;
      to.small = variant.ptwrite.size;
      to.ip = variant.ptwrite.ip;
      break;
    case ptev_tick:
      to.kind = EventKind::kTick;
      to.ip = variant.tick.ip;
      break;
    case ptev_cbr:
      to.kind = EventKind::kCbr;
      to.small = variant.cbr.ratio;
      break;
    case ptev_mnt:
      to.kind = EventKind::kMnt;
      to.payload = variant.mnt.payload;
      break;
  }
  if (to.ip_suppressed) to.ip = 0;
  return to;
}

flow::Status status_of(int pt_status) {
  switch (pt_errcode(pt_status)) {
    case pte_ok:
      return Status::kOk;
    case pte_eos:
      return Status::kEndOfTrace;
    case pte_nosync:
      return Status::kNoSync;
    case pte_bad_opc:
      return Status::kBadOpcode;
    case pte_bad_packet:
      return Status::kBadPacket;
    case pte_bad_context:
      return Status::kBadContext;
    case pte_bad_query:
      return Status::kBadQuery;
    case pte_bad_status_update:
      return Status::kBadStatusUpdate;
    case pte_noip:
      return Status::kNoIp;
    case pte_ip_suppressed:
      return Status::kIpSuppressed;
    case pte_nomap:
      return Status::kNoMap;
    case pte_bad_insn:
      return Status::kBadInstruction;
    case pte_retstack_empty:
      return Status::kReturnStackEmpty;
    case pte_bad_retcomp:
      return Status::kBadReturnCompression;
    case pte_no_enable:
      return Status::kNoEnable;
    case pte_event_ignored:
      return Status::kEventIgnored;
    case pte_overflow:
      return Status::kOverflow;
    default:
      return Status::kInternal;
  }
}

}  // namespace auxtrail::decode::testing
