// The steps of writers and readers that the memory-order test interleaves. ring_steps.cc is
// compiled with -fsanitize=thread, so that every access of the code that it calls is seen.
#pragma once

#include <cstdint>

#include "event/aux_output.h"
#include "event/data_ring.h"
#include "event/ring_reader.h"

namespace auxtrail::event::testing {

inline constexpr uint32_t kStepRecord = 77;  // a record type
inline constexpr uint16_t kStepRecordBytes = 24;

// Writes a record that says `number` twice; adds what begin() says was lost before. False if there
// was no room.
bool write_step(DataRing& ring, uint64_t number, uint64_t& lost_told);

// One pass of the reader: adds the numbers of the records to `sum`. Returns how many there were,
// or -1 if one was not as it was written.
int read_step(RingReader& reader, RecordScratch& scratch, uint64_t& sum);

// A unit's transaction of `size_bytes` bytes of `value`; false if the AUX area has no such room.
bool aux_write_step(AuxOutput& output, Event& leader, std::byte value, uint64_t size_bytes);

// One look of the AUX area's reader: takes all bytes up to aux_head. Returns how many, or -1 if one
// is none of `least` up to `most`.
int aux_read_step(perf_event_mmap_page& control, const std::byte* aux, uint64_t aux_bytes,
                  int least, int most);

}  // namespace auxtrail::event::testing
