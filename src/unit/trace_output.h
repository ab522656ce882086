// The way from the thread's packet writer into its AUX area, in continuous trace.
//
// Packets are written in stretches: the writer's place is claimed in the area, and commit() makes
// what was written there part of it. A PSB+ is due at every period; what makes older packets
// unreadable (code that went away, packets that nobody kept) makes samples begin anew. In full
// trace the recorder reads the area while it fills: where there is no room the program waits for
// some time, then what it would write is lost, and an OVF stands where the trace goes on. Signal
// safe; the owning thread's alone.
#pragma once

#include <cstdint>

#include "unit/thread_state.h"

namespace auxtrail::unit {

// The thread begins to write, in its AUX area as it finds it.
void begin_output(Thread& thread);
// What was written becomes part of the AUX area, and the writer goes on behind it.
void commit(Thread& thread);

// Tracing begins at the program's instruction at `pc`.
void trace_on(Thread& thread, uint64_t pc);
// The thread came to an address that stops its trace for good.
void trace_stop(Thread& thread);

// Whether a PSB+ is due, if the program's position is known.
bool psb_is_due(const Thread& thread);
// The writer has come to the program's instruction at `pc`: writes it.
void write_psb(Thread& thread, uint64_t pc);
// For a sample that has no history: a PSB+, tracing on and off at `pc`. Nothing in full trace and
// snapshots with address filters.
void write_position(Thread& thread, uint64_t pc);

// Samples of events that are no clocks come as fast as the program makes them: waits some time for
// the recorder to read the data ring, if it has no room for that sampler's next. As long as that
// was in vain, no more.
void wait_for_record_room(Thread& thread, uint32_t sampler);

// Whether some code went away since Thread::code_changes was noted: what is not written yet may
// lead through it. commit() then notes it, and samples begin anew behind what it commits.
bool code_changed(const Thread& thread);
void note_code_change(Thread& thread);
// Whether it is the thread's AUX area that an address lies in.
bool is_output(const Thread& thread, uint64_t address);
// A fault cut the packets that were being written: what they should have told is lost.
void cut_trace(Thread& thread);
// Nothing is known of what came before the program's instruction at `pc`; 0: that is not known
// either.
void begin_history(Thread& thread, uint64_t pc);

}  // namespace auxtrail::unit
