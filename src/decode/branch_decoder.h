// BranchDecoder: from the Intel PT bytes of a sample and the process's code to its branches.
//
// The interface that every decoder of ours implements; libipt's block decoder is the first
// (libipt_decoder.h). Any bytes may come in: decoding always ends, in time bounded by the number of
// bytes, and what could not be decoded is counted by cause. After an error decoding goes on at the
// next PSB.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "decode/branch.h"
#include "image/code_map.h"
#include "pt/trace_clock.h"
#include "pt/trace_config.h"

namespace auxtrail::decode {

enum class ErrorCause : uint8_t {
  kNoPsb,           // no PSB anywhere: nothing can be decoded
  kNoMap,           // no code known at the address (file missing, JIT, unrecorded mapping)
  kBadInstruction,  // bytes that are no instruction: the code changed since the recording
  kMismatch,        // packets and code disagree: wrong code, or a damaged trace
  kBadReturn,       // a compressed return without a call, or with the wrong bit
  kBadOpcode,       // unknown packet
  kBadPacket,       // known packet, impossible payload
  kTruncated,       // the bytes end inside a packet
  kBadContext,      // a packet where it must not be
  kLoop,            // endless loop without packets: the code changed, or a damaged trace
  kInternal,        // the decoder itself failed
  kCount
};
inline constexpr size_t kErrorCauseCount = static_cast<size_t>(ErrorCause::kCount);
std::string_view name(ErrorCause cause);

struct DecodeError {
  ErrorCause cause = ErrorCause::kInternal;
  uint64_t offset = 0;  // in the trace
  uint64_t ip = 0;      // the last address reached; 0 if none
};

enum class GapKind : uint8_t {
  kDisabled,  // tracing was off between `from` and `to`
  kOverflow,  // packets were lost (OVF)
  kError,     // skipped to the next PSB
};

// A hole in the flow: left at `from_ip`, taken up at `to_ip` (0: unknown).
struct Gap {
  GapKind kind = GapKind::kDisabled;
  uint64_t from_ip = 0;
  uint64_t to_ip = 0;
  uint64_t offset = 0;
};

// What a consumer wants to be told; decoding is the faster the less it is.
enum Wants : unsigned {
  kWantsBranches = 1,
  kWantsNotTaken = 2,
  kWantsBlocks = 4,
  kWantsGaps = 8,
  kWantsAll = 15,    // but for times, which slow decoding down and are of use to few
  kWantsTimes = 16,  // of branches
};

// Receives the flow in execution order: branches among branches, blocks among blocks and so on;
// branches, untaken ones and blocks come in batches, one kind after the other. Gaps and errors come
// after everything before them. Override what you need, and say so in wants().
class FlowConsumer {
 public:
  virtual ~FlowConsumer() = default;
  // A set of Wants; asked once per trace. Errors are always told.
  [[nodiscard]] virtual unsigned wants() const { return kWantsAll; }
  virtual void on_branch(const Branch&) {}
  // Many at once, instead of on_branch(): the span ends with the call.
  virtual void on_branches(std::span<const Branch> branches) {
    for (const Branch& branch : branches) on_branch(branch);
  }
  // When the branches were that come next: the time of the packet that decided them, as exactly as
  // the timing packets before it tell. Several branches of one TNT packet have one time, which is
  // exact for the first of them only; direct jumps and calls have that of the packet before them.
  virtual void on_time(const pt::Moment&) {}
  virtual void on_not_taken(uint64_t /*ip*/) {}  // a conditional branch that fell through
  virtual void on_block(const Block&) {}
  virtual void on_gap(const Gap&) {}
  virtual void on_error(const DecodeError&) {}
};

struct DecodeSummary {
  uint64_t bytes = 0;
  uint64_t instructions = 0;
  uint64_t blocks = 0;
  uint64_t branches = 0;   // taken, without the kTraceBegin and kTraceEnd markers
  uint64_t not_taken = 0;  // conditional branches that fell through
  uint64_t gaps = 0;
  uint64_t overflows = 0;
  std::array<uint64_t, kErrorCauseCount> errors{};

  // Where tracing began and ended, if the trace says so: TIP.PGE's (or PSB+'s) address, and the FUP
  // before the last TIP.PGD or the last branch's target. Unset if nothing was decoded.
  std::optional<uint64_t> first_ip;
  std::optional<uint64_t> final_ip;
  // The trace ends while tracing was on: its newest branches may be missing (a cut hardware
  // snapshot).
  bool ends_open = false;

  [[nodiscard]] uint64_t error_count() const;
  DecodeSummary& operator+=(const DecodeSummary& other);
  // Takes away counters that were added before; first_ip and final_ip stay.
  DecodeSummary& operator-=(const DecodeSummary& other);
};

// Which implementation decodes.
enum class DecoderKind : uint8_t { kNative, kLibipt };

// The trace's circumstances: which CPU's errata, which filter, which clocks. The defaults fit the
// software trace unit.
struct TraceConfig {
  bool intel_cpu = false;  // with family/model/stepping: apply libipt's errata table
  uint16_t family = 0;
  uint8_t model = 0;
  uint8_t stepping = 0;
  // An address filter, if one was set: only [filter_start, filter_end] was traced. Both 0: none.
  uint64_t filter_start = 0;
  uint64_t filter_end = 0;
  // The same, and more of them, for those who have several.
  std::array<pt::AddressRange, 4> ranges{};
  uint8_t mtc_freq = 0;
  uint8_t nom_freq = 0;
  uint32_t cpuid_0x15_eax = 0;
  uint32_t cpuid_0x15_ebx = 0;
  // As in pt::TraceConfig; libipt knows neither, so only the native decoder heeds them.
  bool return_compression = true;
  uint8_t assumed_mode_bits = 0;
};

// The code of a long trace, which changes while it runs: libraries come and go, programs are
// executed.
class CodeTimeline {
 public:
  // Times are in ns. A map is valid until its `until_ns` is reached and stays alive until the next
  // call.
  struct View {
    const image::CodeMap* code = nullptr;
    uint64_t until_ns = 0;
  };
  virtual ~CodeTimeline() = default;
  virtual View at(uint64_t time_ns) = 0;
};

// From the trace's TSC to ns, as perf's AUXTRACE_INFO has it: zero + (tsc * mult >> shift).
struct TscToNs {
  uint64_t shift = 0;
  uint64_t mult = 1;
  uint64_t zero = 0;
  [[nodiscard]] uint64_t ns(uint64_t tsc) const {
    const uint64_t mask = (uint64_t{1} << shift) - 1;
    return zero + (tsc >> shift) * mult + (((tsc & mask) * mult) >> shift);
  }
};

struct StreamOptions {
  TscToNs clock;
  // Where the trace begins in time, for the code before the first TSC packet.
  uint64_t start_ns = 0;
  // So much of the trace is held in memory, or three PSB periods if that is more.
  size_t window_bytes = size_t{1} << 20;
};

// A long trace, decoded piece by piece in constant memory: the same flow as decode() gives.
class TraceStream {
 public:
  virtual ~TraceStream() = default;
  // Decodes on until the trace's time passes `until_ns`, but only a good piece at a time. False
  // when the trace is at its end.
  virtual bool run(uint64_t until_ns) = 0;
  // Of the flow's newest piece; start_ns as long as no TSC packet was met.
  [[nodiscard]] virtual uint64_t time_ns() const = 0;
  // The counters so far, complete at the end.
  [[nodiscard]] virtual DecodeSummary summary() const = 0;
};

// One thread at a time. Code images are cached by CodeMap::id, so one decoder should serve all
// samples.
class BranchDecoder {
 public:
  virtual ~BranchDecoder() = default;

  // Decodes all of `trace` (one AUX sample, or a full trace) against `code`. The summary's counters
  // are of this call alone.
  virtual DecodeSummary decode(const image::CodeMap& code, std::span<const std::byte> trace,
                               FlowConsumer& consumer) = 0;
  // The same for a trace in pieces that follow each other without a gap. The pieces' bytes, `code`
  // and `consumer` must outlive the stream, and the stream must not outlive the decoder.
  virtual std::unique_ptr<TraceStream> open(std::vector<std::span<const std::byte>> pieces,
                                            CodeTimeline& code, FlowConsumer& consumer,
                                            const StreamOptions& options) = 0;
};

}  // namespace auxtrail::decode
