#include "event/testing/ring_steps.h"

namespace auxtrail::event::testing {

bool write_step(DataRing& ring, uint64_t number, uint64_t& lost_told) {
  OutputHandle handle;
  uint64_t lost = 0;
  if (!ring.begin(handle, kStepRecordBytes, 0, lost)) return false;
  lost_told += lost;
  handle.put(perf_event_header{kStepRecord, 0, kStepRecordBytes});
  handle.put(number);
  handle.put(number);
  ring.end(handle);
  return true;
}

int read_step(RingReader& reader, RecordScratch& scratch, uint64_t& sum) {
  int count = 0;
  bool intact = true;
  reader.drain(scratch, [&](std::span<const std::byte> record) {
    struct {
      perf_event_header header;
      uint64_t first, second;
    } seen{};
    std::memcpy(&seen, record.data(), record.size() < sizeof seen ? record.size() : sizeof seen);
    intact = intact && seen.header.type == kStepRecord && seen.header.size == kStepRecordBytes &&
             seen.first == seen.second;
    sum += seen.first;
    ++count;
  });
  return intact ? count : -1;
}

bool aux_write_step(AuxOutput& output, Event& leader, std::byte value, uint64_t size_bytes) {
  if (!output.begin(leader)) return false;
  const bool room = size_bytes <= output.size();
  for (uint64_t i = 0; room && i < size_bytes; ++i) {
    output.area()->place(output.head() + i, &value, 1);
  }
  output.end(room ? size_bytes : 0);
  return room;
}

int aux_read_step(perf_event_mmap_page& control, const std::byte* aux, uint64_t aux_bytes,
                  int least, int most) {
  const uint64_t tail = control.aux_tail;  // our own
  const uint64_t head = __atomic_load_n(&control.aux_head, __ATOMIC_ACQUIRE);
  if (head - tail > aux_bytes) return -1;
  for (uint64_t at = tail; at != head; ++at) {
    const int value = std::to_integer<int>(aux[at & (aux_bytes - 1)]);
    if (value < least || value > most) return -1;
  }
  __atomic_store_n(&control.aux_tail, head, __ATOMIC_RELEASE);
  return static_cast<int>(head - tail);
}

}  // namespace auxtrail::event::testing
