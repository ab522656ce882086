// Event: what the packets say happened, before anyone knows the code.
//
// One flat struct for every kind. The vocabulary is libipt's (enum pt_event_type), so that both
// decoders can be compared event by event. An event *binds* to a place of the flow: at an address
// it names itself (async_*, MWAIT ... with IP), or at the next instruction that can cause it (PIP
// at a MOV to CR3, PTW at a PTWRITE). The flow decoder finds that place.
#pragma once

#include <cstdint>
#include <string_view>

namespace auxtrail::flow {

enum class ExecMode : uint8_t { kUnknown, k16, k32, k64 };

enum class EventKind : uint8_t {
  kNone,
  // Flow. `ip` is where it leads.
  kTnt,  // tnt_bits conditional branches (or compressed returns); bit tnt_bits-1 of tnt is the
         // oldest
  kTip,  // an indirect branch to `ip`
  // Tracing on and off.
  kEnabled,        // at ip; resumed: where the flow was left (the flow decoder knows)
  kDisabled,       // the instruction before led to ip, outside (suppressed: unknown)
  kAsyncDisabled,  // at `at`; would have gone on at ip
  kAsyncBranch,    // an interrupt or the like from `at` to ip
  kOverflow,       // packets were lost; tracing goes on at ip (suppressed: it is off)
  kStop,           // TraceStop
  // Context.
  kExecMode,       // mode; from ip on
  kTsx,            // speculative, aborted; from ip on
  kPaging,         // cr3, non_root: with the instruction that does it
  kAsyncPaging,    // the same at ip
  kVmcs,           // base
  kAsyncVmcs,      // the same at ip
  kInterruptFlag,  // enabled; from ip on
  // Power.
  kExstop,  // at ip
  kMwait,   // hints, extensions; at ip
  kPwre,    // state, sub_state, by_hardware
  kPwrx,    // last_state, deepest_state, wake reason
  // Program and platform.
  kPtwrite,  // payload, size_bytes; at ip (suppressed: the next PTWRITE)
  kTick,     // time went on; at ip (suppressed in between). Made by the flow decoder
  kCbr,      // ratio
  kMnt,      // payload
  // TRIG: trigger bits, icnt. At ip; with ip 0 (and not suppressed) the count begins at the address
  // that the last TIP, TNT, TRIG ... led to, and the flow decoder finds the place.
  kTrigger,
  // Event trace (CFE), with vector where it has one; at ip.
  kInterrupt,
  kIret,
  kSmi,
  kRsm,
  kSipi,
  kInit,
  kVmentry,
  kVmexit,
  kShutdown,
  kUintr,
  kUiret,
  kSwintr,
  kSyscall,
  // PEBS through PT: a BBP..BEP group. A PSB or OVF ends a group without a kBlockEnd.
  kBlockItem,  // block type, item id, payload; always without ip
  kBlockEnd,   // block type; at ip if the BEP says so
  kCount
};
std::string_view name(EventKind kind);

struct Event {
  EventKind kind = EventKind::kNone;
  bool ip_suppressed = false;
  bool status_update = false;  // from a PSB+: says what is, not what became
  bool has_tsc = false;
  uint64_t tsc = 0;     // of the event; CPU time stamp counter ticks
  uint64_t cycles = 0;  // core cycles up to it, as CYC packets told them
  uint32_t lost_mtc = 0;
  uint32_t lost_cyc = 0;
  uint64_t ip = 0;
  uint64_t at = 0;  // kAsyncDisabled, kAsyncBranch: where the flow was interrupted

  // The event's numbers, by kind:
  //   kTnt          payload: the bits            small: how many
  //   kPaging       payload: cr3                 flag: non-root
  //   kVmcs         payload: base address
  //   kExecMode     mode
  //   kTsx          flag: speculative            flag2: aborted
  //   kInterruptFlag flag: enabled
  //   kMwait        payload: hints               payload2: extensions
  //   kPwre         small: state  small2: sub-state  flag: by hardware
  //   kPwrx         small: last  small2: deepest  flag: interrupt flag2: store flag3: autonomous
  //   kPtwrite      payload                      small: size in bytes
  //   kCbr          small: ratio
  //   kMnt          payload
  //   kTrigger      small: trigger bits          payload: instruction count from the anchor
  //                 flag: has a count            flag2: more triggers fired than are told
  //   kSipi, kUintr, kSwintr  small: vector
  //   kVmexit       small: vector  flag: has vector  flag2: has vmxr  flag3: has vmxq
  //                 payload: vmxr  payload2: vmxq
  //   kInterrupt    small: vector  flag: has cr2     payload: cr2
  //   kBlockItem    small: type  small2: item id  payload
  //   kBlockEnd     small: type
  uint64_t payload = 0;
  uint64_t payload2 = 0;
  uint16_t small = 0;
  uint16_t small2 = 0;
  bool flag = false;
  bool flag2 = false;
  bool flag3 = false;
  ExecMode mode = ExecMode::kUnknown;
};

}  // namespace auxtrail::flow
