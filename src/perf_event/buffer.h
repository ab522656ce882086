// Buffer: the memory that a reader maps: control page, data ring and AUX area, and who writes
// there.
//
// The memory is a memfd's, so that every mapping of it is a real one, at an address and with a
// protection of its own. A buffer lives as long as an event writes to it or somebody has it mapped;
// when the last mapping goes, all events let go of it. The kernel's struct perf_buffer.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/unique_fd.h"
#include "event/aux_area.h"
#include "event/data_ring.h"
#include "perf_event/perf_event.h"
#include "perf_event/settings.h"

namespace auxtrail::perf_event {

struct Process;
struct User;

// Pages that count against a user's limit and, beyond it, against a process's.
struct LockedPages {
  uint64_t of_user = 0;
  uint64_t of_process = 0;
};

class Buffer {
 public:
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  // A control page and `data_pages` pages of data (2^n, or none: then nothing is ever written).
  // Null if there is no memory.
  static std::shared_ptr<Buffer> create(uint64_t data_pages, const event::DataRingMode& mode);
  // Adds an AUX area at page `page_offset` of the buffer. False if there is no memory.
  [[nodiscard]] bool add_aux(uint64_t page_offset, uint64_t pages, const event::AuxMode& mode);
  void drop_aux();

  // Maps `pages` pages for a reader: the AUX area if that is where `page_offset` is, else from the
  // control page on. Of what is writable, only the control page is.
  [[nodiscard]] Mapping map(uint64_t page_offset, uint64_t pages, bool readable,
                            bool writable) const;

  // Events that write here. An event's ring and AUX area follow from its being here.
  void attach(PerfEvent& event);
  void detach(PerfEvent& event);
  [[nodiscard]] const std::vector<PerfEvent*>& events() const { return events_; }

  [[nodiscard]] perf_event_mmap_page& control() const {
    return *reinterpret_cast<perf_event_mmap_page*>(memory_.data());
  }
  [[nodiscard]] uint64_t data_pages() const { return memory_.size_bytes() / kPageBytes - 1; }
  [[nodiscard]] bool has_aux() const { return aux_pages_ != 0; }
  [[nodiscard]] uint64_t aux_pages() const { return aux_pages_; }
  [[nodiscard]] uint64_t aux_page_offset() const { return aux_page_offset_; }
  [[nodiscard]] event::DataRing& ring() { return ring_; }
  [[nodiscard]] event::AuxArea& aux() { return aux_; }

  uint32_t mmap_count = 0;  // of both areas
  uint32_t aux_mmap_count = 0;
  // Who pays for the memory.
  User* user = nullptr;
  Process* process = nullptr;
  LockedPages locked;
  LockedPages aux_locked;

 private:
  Buffer() = default;

  UniqueFd file_;
  Mapping memory_;
  UniqueFd aux_file_;
  Mapping aux_memory_;
  uint64_t aux_pages_ = 0;
  uint64_t aux_page_offset_ = 0;
  event::DataRing ring_;
  event::AuxArea aux_;
  std::vector<PerfEvent*> events_;
};

}  // namespace auxtrail::perf_event
