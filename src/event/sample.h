// From an overflow to a PERF_RECORD_SAMPLE in the data ring.
//
// IN-PROCESS CODE: no allocation, no locks, no libc; runs in signal handlers of the traced program.
//
// prepare_sample() settles the record's size, output_sample() writes exactly that many bytes; both
// walk the one list of fields in sample.cc, so they cannot disagree. Field order is the kernel's
// code (AUX last), not the comment in the header file:
//
//   header, IDENTIFIER, IP, {pid,tid}, TIME, ADDR, ID, STREAM_ID, {cpu,0}, PERIOD, READ, CALLCHAIN,
//   RAW, BRANCH_STACK, REGS_USER, STACK_USER, WEIGHT(_STRUCT), DATA_SRC, TRANSACTION, REGS_INTR,
//   PHYS_ADDR, CGROUP, DATA_PAGE_SIZE, CODE_PAGE_SIZE, AUX{u64 size, bytes}
//
// Sizes are computed in 32 bits and checked against the u16 of the header at the end: an AUX area
// never overflows it (the AUX part is cut down to 65528 bytes in all), and a stack dump leaves room
// for the fields after it. Reference: seed, perf_prepare_sample / perf_output_sample; checklist
// C1-C7.
#pragma once

#include <linux/perf_event.h>

#include <cstddef>
#include <cstdint>

#include "event/data_ring.h"
#include "event/event.h"

namespace auxtrail::event {

// The largest record: a multiple of 8 that fits the header's u16.
inline constexpr uint32_t kMaxRecordBytes = 65528;

template <class T>
struct View {
  const T* data = nullptr;
  uint32_t size = 0;
};

// Register values in the order of the attr's mask bits. abi PERF_SAMPLE_REGS_ABI_NONE: none are
// written.
struct RegsView {
  uint64_t abi = PERF_SAMPLE_REGS_ABI_NONE;
  const uint64_t* values = nullptr;
};

// Everything a sample may need. The caller fills in what it knows and its sample_type asks for; the
// rest reads as zero or empty. Pointers must stay valid until the sample is written.
struct SampleData {
  uint64_t ip = 0;
  uint32_t pid = 0;
  uint32_t tid =
      0;  // also the "CPU" this runs on: AUX data needs the leader to be on the same thread
  uint64_t time_ns = 0;
  uint64_t addr = 0;
  uint32_t cpu = 0;
  uint64_t period = 0;
  uint16_t misc = PERF_RECORD_MISC_USER;

  View<uint64_t> read_words;  // a whole READ field, encoded; empty: the event's own counts
  View<uint64_t> callchain;
  View<std::byte> raw;
  View<perf_branch_entry> branches;
  uint64_t branch_hw_idx = ~uint64_t{0};
  RegsView regs_user;
  RegsView regs_intr;
  View<std::byte> user_stack;  // copied up to attr.sample_stack_user bytes; size is the dyn_size
  uint64_t weight = 0;         // WEIGHT or perf_sample_weight.full
  uint64_t data_src = 0;
  uint64_t transaction = 0;
  uint64_t phys_addr = 0;
  uint64_t cgroup = 0;
  uint64_t data_page_size = 0;
  uint64_t code_page_size = 0;

  // Settled by prepare_sample().
  uint32_t stack_dump_bytes = 0;
  uint64_t aux_size = 0;
};

enum class Outcome : uint8_t {
  kWritten,
  kLost,      // no room in the ring; counted, and reported by the next success
  kTooLarge,  // the fields besides AUX and the stack do not fit one record; counted as lost too
  kInactive,  // the event is not active or has no ring; nothing was counted
};

// Settles header.size, data.stack_dump_bytes and data.aux_size. False if the record cannot fit
// (kTooLarge).
[[nodiscard]] bool prepare_sample(perf_event_header& header, SampleData& data, Event& event);
// Writes a prepared sample into a reservation of header.size bytes.
void output_sample(OutputHandle& handle, const perf_event_header& header, const SampleData& data,
                   Event& event);

// The AUX size for a sample of `event` that asks for `size_bytes`: 0 without a leader that is
// active on this thread and has an AUX area, or when this sample interrupts another that is being
// taken.
[[nodiscard]] uint64_t prepare_sample_aux(const Event& event, const SampleData& data,
                                          uint64_t size_bytes);

// Bytes of the sample_id trailer (0 without attr.sample_id_all) and the trailer itself:
// TID, TIME, ID, STREAM_ID, CPU, IDENTIFIER.
[[nodiscard]] uint32_t sample_id_bytes(const Event& event);
void output_sample_id(OutputHandle& handle, const SampleData& data, const Event& event);

// Reserves room for a record of `size_bytes` in the event's ring (ring_of(event), its parent's if
// it is inherited), writing the PERF_RECORD_LOST that is due first. False, and counted, when there
// is no room. After true, that ring's end(handle) must follow.
[[nodiscard]] bool output_begin(OutputHandle& handle, uint64_t size_bytes, const SampleData& data,
                                Event& event);

// An overflow of `event`: prepares, reserves, writes, publishes.
Outcome event_output(Event& event, SampleData& data);

// Is every bit of attr.sample_type something that output_sample() can write?
[[nodiscard]] bool sample_type_supported(const perf_event_attr& attr);

}  // namespace auxtrail::event
