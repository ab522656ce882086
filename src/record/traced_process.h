// TracedProcess: the recorder's end of one process's shared memory.
//
// Finds the slots that threads have claimed, ties each to a thread that really belongs to the
// process, drains its data ring through SampleCheck, and frees the slot once its thread is gone.
// All sizes and positions are the recorder's own (channel/layout.h).
//
// Slot pages that no thread has touched are holes of the memory object; they are found with
// SEEK_DATA and never touched from here, so that 64 slots cost a short-lived process nothing.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "channel/layout.h"
#include "event/ring_reader.h"
#include "record/carried_counts.h"
#include "record/census.h"
#include "record/channel_server.h"
#include "record/sample_check.h"
#include "record/totals.h"

namespace auxtrail::record {

// AUX bytes of one thread, for an AUXTRACE record: they begin and end between packets, but for the
// begin of a snapshot.
struct AuxPiece {
  RingOwner owner;
  uint32_t buffer = 0;  // numbers the thread's AUX area within its process, anew for each thread
  uint64_t offset = 0;  // of the first byte since the thread began; grows by what was lost, too
  uint64_t flags = 0;   // PERF_AUX_FLAG_*
  std::span<const std::byte> first;  // the area may wrap
  std::span<const std::byte> second;
};

class TracedProcess {
 public:
  TracedProcess(Connection connection, const channel::SessionConfig& config);

  struct Context {
    const SampleCheck& check;
    const Census& census;
    bool census_complete;  // the side-band is the kernel's: a thread it does not know is none
    event::RecordScratch& scratch;
    std::function<void(uint64_t time_ns, std::span<std::byte> record)> take;
    std::function<void(pid_t pid, pid_t tid)> new_thread;  // may be empty
    std::function<void(const AuxPiece& piece)> take_aux;
  };

  // Hands all new samples and LOST records to context.take.
  void drain(const Context& context);
  // Snapshot mode: hands the newest AUX bytes of all threads to context.take_aux, at most `bytes`
  // of each (0: all there are).
  void snapshot(const Context& context, uint64_t bytes);
  // Frees the slots of threads that are gone, which must have been drained since they ended: call
  // drain() between telling the census of their end and this. `look_at_proc` also asks /proc about
  // threads that the census does not know to have ended; they are freed when two looks miss them.
  void free_slots(const Census& census, bool look_at_proc);

  // Whether the process has ended (all of its threads).
  [[nodiscard]] bool ended() const;
  // Lets go of the triggers' events: no more overflows, the process runs on natively.
  void stop_triggers() { connection_.triggers.clear(); }
  // True once each time the unit reports changed executable mappings.
  [[nodiscard]] bool mappings_changed();

  [[nodiscard]] pid_t pid() const { return connection_.pid; }
  [[nodiscard]] const channel::Hello& hello() const { return connection_.hello; }
  // The share of its size that the fullest ring held at the last drain, 0..1.
  [[nodiscard]] double fill() const { return fill_; }
  [[nodiscard]] const RecordTotals& record_totals() const { return record_totals_; }
  // The unit's counters: those of freed slots and of the present ones.
  [[nodiscard]] UnitTotals unit_totals() const;
  // What the unit has counted of the first thread.
  [[nodiscard]] UnitCounts first_thread_counts() const;
  // Claimed slots that could not be tied to a thread: with the last drain done, their samples are
  // lost.
  [[nodiscard]] uint64_t untied_slots() const;

 private:
  struct Slot {
    bool touched = false;  // its header page exists
    bool tied = false;
    bool thread_missing = false;  // /proc did not know the thread at the last look
    RingOwner owner;
    event::RingReader reader;
    uint32_t buffer = 0;
    uint64_t aux_read = 0;
    uint64_t aux_lost = 0;    // as the slot told last
    uint64_t aux_copied = 0;  // up to where the last snapshot went
  };
  // The process enters a sandbox: its trigger must be gone before.
  void answer_stop_request();
  void find_slots();
  bool tie(uint32_t index, const Context& context);
  [[nodiscard]] std::optional<RingOwner> owner_of(uint32_t inner_tid, const Context& context) const;
  void drain_slot(Slot& slot, const Context& context);
  void drain_aux(uint32_t index, const Context& context);
  void snapshot_slot(uint32_t index, const Context& context, uint64_t bytes);
  AuxPiece piece(uint32_t index, uint64_t from, uint64_t to) const;
  void free_slot(uint32_t index);
  [[nodiscard]] channel::SlotView view(uint32_t index) const;
  [[nodiscard]] channel::ProcessHeader& header() const;

  Connection connection_;
  uint32_t data_pages_;
  uint32_t aux_pages_;
  channel::TraceMode mode_;
  uint32_t buffers_ = 0;
  std::array<Slot, channel::kSlotCount> slots_;
  uint32_t maps_changed_seen_ = 0;
  double fill_ = 0;
  RecordTotals record_totals_;
  UnitTotals freed_totals_;
};

}  // namespace auxtrail::record
