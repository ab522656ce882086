// Pmu: what the engine asks of a performance monitoring unit. The seed's struct pmu.
//
// A table of plain functions, as in the seed: "optional" is a null pointer that the engine can test
// (a leader is fit for AUX sampling if it has snapshot_aux), tables are constants, and nothing
// needs RTTI or a C++ runtime inside the traced program. The engine owns this interface; the
// implementations stand in src/pmu/. A PMU keeps its per-thread state (the kernel's per-CPU
// variables) behind Event::hw.context.
//
// start and stop run with "interrupts off" (signals masked); snapshot_aux runs in "NMI" context and
// may interrupt either of them at any instruction. It must not touch the event's state.
#pragma once

#include <cstdint>

namespace auxtrail::event {

struct Event;
class AuxArea;
class OutputHandle;
struct AddrFilters;

// Capabilities, with the seed's values.
inline constexpr uint32_t kPmuCapNoInterrupt = 0x1;  // counts only: no sampling
inline constexpr uint32_t kPmuCapNoNmi = 0x2;  // never overflows in an NMI: any clock may be read
inline constexpr uint32_t kPmuCapExclusive = 0x10;
inline constexpr uint32_t kPmuCapITrace = 0x20;
inline constexpr uint32_t kPmuCapAuxOutput = 0x100;
inline constexpr uint32_t kPmuCapAuxPause = 0x200;  // of Linux 6.13

// Flags of add, start, stop and del, with the seed's values (PERF_EF_*).
inline constexpr uint32_t kEfStart = 1;   // add: start at once
inline constexpr uint32_t kEfReload = 2;  // start: reload the period
inline constexpr uint32_t kEfUpdate = 4;  // stop: bring the counts and the AUX head up to date
// Of a PMU with kPmuCapAuxPause. They come in "NMI" context, as snapshot_aux does: no transaction
// begins or ends, and a start(kEfResume) that interrupts or follows a stop() does nothing.
inline constexpr uint32_t kEfPause = 8;    // stop: pause the tracing
inline constexpr uint32_t kEfResume = 16;  // start: go on with it

struct Pmu {
  const char* name = nullptr;
  uint32_t type = 0;
  uint32_t capabilities = 0;
  // Its events can always be counted, so that they go into groups of any other PMU (the seed's
  // task_ctx_nr == perf_sw_context; Intel PT's are among them).
  bool software_context = false;

  // Is the event for this PMU and sound? 0, ENOENT (not ours) or another errno.
  int (*event_init)(Event& event) = nullptr;
  // Puts the event on the unit, stopped unless kEfStart; 0 or an errno. del takes it off and stops
  // it.
  int (*add)(Event& event, uint32_t flags) = nullptr;
  void (*del)(Event& event, uint32_t flags) = nullptr;
  void (*start)(Event& event, uint32_t flags) = nullptr;
  void (*stop)(Event& event, uint32_t flags) = nullptr;
  void (*read)(Event& event) = nullptr;

  // Optional. Prepares for tracing into `area`; `overwrite` is the mode it is mapped in. 0 or an
  // errno.
  int (*setup_aux)(Event& event, AuxArea& area, bool overwrite) = nullptr;
  void (*free_aux)(Event& event) = nullptr;

  // Optional. Copies the newest `size_bytes` bytes of the AUX area to `handle`. Returns the number
  // of bytes copied, or a negative errno; the engine zero-fills whatever is missing.
  int64_t (*snapshot_aux)(Event& event, OutputHandle& handle, uint64_t size_bytes) = nullptr;

  // Optional, our own addition to the seed: how many of the newest bytes belong to the moment of
  // the sample. In windowed tracing each window is a trace session of its own; the bytes before it
  // belong to another moment (and another place of the program), so a sample must hold the window
  // alone. It also keeps samples short: without this a window of 600 bytes would be padded to the
  // requested 4 KiB. Null: no bound.
  uint64_t (*aux_available)(Event& event) = nullptr;

  // Optional. May `event` send its own records into this (leader's) AUX stream? For
  // attr.aux_output.
  bool (*aux_output_match)(const Event& event) = nullptr;

  // Optional, of PMUs that filter by address (addr_filter.h). validate: can the unit do these? 0,
  // EOPNOTSUPP or EINVAL. sync: takes over the ranges of event.addr_filters; from start only.
  int (*addr_filters_validate)(const Event& event, const AddrFilters& filters) = nullptr;
  void (*addr_filters_sync)(Event& event) = nullptr;
};

}  // namespace auxtrail::event
