// libipt 2.0.5's query decoder as a source of events: what it says, in the words of flow::Event,
// for comparison. It has no TNT and TIP events: it is asked for every branch, whatever comes.
#pragma once

#include <intel-pt.h>

#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "flow/testing/event_text.h"
#include "pt/trace_config.h"

namespace auxtrail::flow::test {

inline ExecMode mode_of(pt_exec_mode mode) {
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

inline void take_variant(const pt_event& from, Event& to) {
  const auto& v = from.variant;
  switch (from.type) {
    case ptev_enabled:
      to.kind = EventKind::kEnabled, to.ip = v.enabled.ip;
      break;
    case ptev_disabled:
      to.kind = EventKind::kDisabled, to.ip = v.disabled.ip;
      break;
    case ptev_async_disabled:
      to.kind = EventKind::kAsyncDisabled, to.ip = v.async_disabled.ip;
      to.at = v.async_disabled.at;
      break;
    case ptev_async_branch:
      to.kind = EventKind::kAsyncBranch, to.ip = v.async_branch.to, to.at = v.async_branch.from;
      break;
    case ptev_paging:
      to.kind = EventKind::kPaging, to.payload = v.paging.cr3, to.flag = v.paging.non_root;
      break;
    case ptev_async_paging:
      to.kind = EventKind::kAsyncPaging, to.ip = v.async_paging.ip;
      to.payload = v.async_paging.cr3, to.flag = v.async_paging.non_root;
      break;
    case ptev_overflow:
      to.kind = EventKind::kOverflow, to.ip = v.overflow.ip;
      break;
    case ptev_exec_mode:
      to.kind = EventKind::kExecMode, to.ip = v.exec_mode.ip, to.mode = mode_of(v.exec_mode.mode);
      break;
    case ptev_tsx:
      to.kind = EventKind::kTsx, to.ip = v.tsx.ip;
      to.flag = v.tsx.speculative, to.flag2 = v.tsx.aborted;
      break;
    case ptev_stop:
      to.kind = EventKind::kStop;
      break;
    case ptev_vmcs:
      to.kind = EventKind::kVmcs, to.payload = v.vmcs.base;
      break;
    case ptev_async_vmcs:
      to.kind = EventKind::kAsyncVmcs, to.ip = v.async_vmcs.ip, to.payload = v.async_vmcs.base;
      break;
    case ptev_exstop:
      to.kind = EventKind::kExstop, to.ip = v.exstop.ip;
      break;
    case ptev_mwait:
      to.kind = EventKind::kMwait, to.ip = v.mwait.ip;
      to.payload = v.mwait.hints, to.payload2 = v.mwait.ext;
      break;
    case ptev_pwre:
      to.kind = EventKind::kPwre, to.small = v.pwre.state, to.small2 = v.pwre.sub_state;
      to.flag = v.pwre.hw;
      break;
    case ptev_pwrx:
      to.kind = EventKind::kPwrx, to.small = v.pwrx.last, to.small2 = v.pwrx.deepest;
      to.flag = v.pwrx.interrupt, to.flag2 = v.pwrx.store, to.flag3 = v.pwrx.autonomous;
      break;
    case ptev_ptwrite:
      to.kind = EventKind::kPtwrite, to.ip = v.ptwrite.ip;
      to.payload = v.ptwrite.payload, to.small = v.ptwrite.size;
      break;
    case ptev_cbr:
      to.kind = EventKind::kCbr, to.small = v.cbr.ratio;
      break;
    case ptev_mnt:
      to.kind = EventKind::kMnt, to.payload = v.mnt.payload;
      break;
    case ptev_tick:
      to.kind = EventKind::kTick;
      break;
  }
}

inline Event event_of(const pt_event& from) {
  Event event;
  event.ip_suppressed = from.ip_suppressed;
  event.status_update = from.status_update;
  event.has_tsc = from.has_tsc;
  event.tsc = from.tsc;
  event.lost_mtc = from.lost_mtc;
  event.lost_cyc = from.lost_cyc;
  take_variant(from, event);
  if (event.ip_suppressed) event.ip = 0;
  return event;
}

inline pt_config libipt_config(const pt::TraceConfig& config, std::span<const std::byte> trace) {
  pt_config theirs;
  pt_config_init(&theirs);
  theirs.begin = const_cast<uint8_t*>(reinterpret_cast<const uint8_t*>(trace.data()));
  theirs.end = theirs.begin + trace.size();
  theirs.mtc_freq = config.mtc_freq;
  theirs.nom_freq = config.nom_freq;
  theirs.cpuid_0x15_eax = config.cpuid_0x15_eax;
  theirs.cpuid_0x15_ebx = config.cpuid_0x15_ebx;
  theirs.errata.bdm64 = config.errata.bdm64;
  theirs.errata.bdm70 = config.errata.bdm70;
  theirs.errata.skd007 = config.errata.skd007;
  theirs.errata.skd010 = config.errata.skd010;
  theirs.errata.skd022 = config.errata.skd022;
  theirs.errata.skl014 = config.errata.skl014;
  theirs.errata.skl168 = config.errata.skl168;
  theirs.errata.apl11 = config.errata.apl11;
  theirs.errata.apl12 = config.errata.apl12;
  return theirs;
}

// An event as both decoders tell it. libipt 2.0.5 forgets the time of some, and a PWRX's flags.
inline std::string comparable(Event event) {
  switch (event.kind) {
    case EventKind::kPwrx:
      event.flag = event.flag2 = event.flag3 = false;
      return text(event);
    case EventKind::kPtwrite:
    case EventKind::kExstop:
    case EventKind::kMwait:
    case EventKind::kVmcs:
    case EventKind::kAsyncVmcs:
      return text(event);
    default:
      return text(event) + time_text(event);
  }
}

// libipt 2.2 has no event for a MODE.Exec that says what was known already.
class KnownMode {
 public:
  bool says_nothing_new(const Event& event) {
    if (event.kind == EventKind::kOverflow) known_ = false;
    if (event.kind != EventKind::kExecMode) return false;
    const bool same = known_ && mode_ == event.mode;
    known_ = true;
    mode_ = event.mode;
    return same && !event.status_update;
  }

 private:
  bool known_ = false;
  ExecMode mode_ = ExecMode::kUnknown;
};

// "T", "N", "tip ADDRESS", and other events with their times; errors as "error: TEXT".
inline std::vector<std::string> query_events(const pt::TraceConfig& config,
                                             std::span<const std::byte> trace) {
  const pt_config theirs = libipt_config(config, trace);
  const std::unique_ptr<pt_query_decoder, void (*)(pt_query_decoder*)> decoder(
      pt_qry_alloc_decoder(&theirs), &pt_qry_free_decoder);
  std::vector<std::string> lines;
  for (;;) {
    uint64_t ip = 0;
    KnownMode mode;
    int status = pt_qry_sync_forward(decoder.get(), &ip);
    if (status == -pte_eos) return lines;
    while (status >= 0) {
      if ((status & pts_event_pending) != 0) {
        pt_event event;
        std::memset(&event, 0, sizeof event);
        status = pt_qry_event(decoder.get(), &event, sizeof event);
        if (status < 0) break;
        const Event ours = event_of(event);
        // A PWRE waits for its PWRX in later versions.
        if (mode.says_nothing_new(ours) || ours.kind == EventKind::kPwre) continue;
        lines.push_back(comparable(ours));
        continue;
      }
      int taken = 0;
      status = pt_qry_cond_branch(decoder.get(), &taken);
      if (status >= 0) {
        lines.emplace_back(taken != 0 ? "T" : "N");
        continue;
      }
      if (status != -pte_bad_query) break;
      status = pt_qry_indirect_branch(decoder.get(), &ip);
      if (status < 0) break;
      const bool suppressed = (status & pts_ip_suppressed) != 0;
      lines.push_back(suppressed ? "tip ip=none" : fmt::format("tip ip={:x}", ip));
      // libipt 2.2 tells the branch before the mode that holds from its target on.
      const size_t tip = lines.size() - 1;
      const std::string mode_there = fmt::format("exec mode ip={:x} ", ip);
      if (tip > 0 && lines[tip - 1].starts_with(mode_there)) std::swap(lines[tip - 1], lines[tip]);
    }
    if (status != -pte_eos) {
      lines.push_back(std::string("error: ") + pt_errstr(pt_errcode(status)));
    }
  }
}

}  // namespace auxtrail::flow::test
