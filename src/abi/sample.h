// A parsed PERF_RECORD_SAMPLE, for every sample_type bit, and the sample_id trailer of other
// records.
//
// Both go through the tables of sample_layout.h. Arrays and raw bytes are views into the record.
#pragma once

#include <linux/perf_event.h>

#include <cstdint>
#include <span>

#include "abi/record.h"
#include "abi/sample_layout.h"
#include "base/result.h"

namespace auxtrail::abi {

// What the parsing of a record depends on, taken from its event's attr.
struct SampleFormat {
  uint64_t sample_type = 0;
  uint64_t read_format = 0;
  uint64_t branch_sample_type = 0;
  uint64_t regs_user_mask = 0;
  uint64_t regs_intr_mask = 0;
  bool sample_id_all = false;

  static SampleFormat from_attr(const perf_event_attr& attr);
  [[nodiscard]] bool has(uint64_t sample_type_bit) const {
    return (sample_type & sample_type_bit) != 0;
  }
};

// Who, when and where. `fields` holds the sample_type bits of the members that were in the record.
struct SampleId {
  uint64_t fields = 0;
  uint32_t pid = 0;
  uint32_t tid = 0;
  uint64_t time_ns = 0;
  uint64_t id = 0;  // from IDENTIFIER if there, else from ID
  uint64_t stream_id = 0;
  uint32_t cpu = 0;

  [[nodiscard]] bool has(uint64_t sample_type_bit) const { return (fields & sample_type_bit) != 0; }
};

// One value of PERF_SAMPLE_READ or PERF_RECORD_READ.
struct ReadValue {
  uint64_t value = 0;
  uint64_t id = 0;    // 0 without PERF_FORMAT_ID
  uint64_t lost = 0;  // 0 without PERF_FORMAT_LOST
};

class ReadValues {
 public:
  uint64_t time_enabled = 0;
  uint64_t time_running = 0;

  [[nodiscard]] size_t size() const { return count_; }
  // `index` must be below size().
  [[nodiscard]] ReadValue operator[](size_t index) const;

  // Takes a read_format structure off the front of `bytes`. False if it does not fit.
  bool parse(std::span<const std::byte>& bytes, uint64_t read_format);

 private:
  uint64_t read_format_ = 0;
  size_t count_ = 0;
  PackedArray<uint64_t> words_;  // of a group: value, id, lost of each member; else the value alone
  PackedArray<uint64_t> tail_;   // not a group: id and lost, which stand behind the times
};

struct BranchEntry {
  uint64_t from = 0;
  uint64_t to = 0;
  uint64_t flags = 0;

  [[nodiscard]] bool mispredicted() const { return (flags & 1) != 0; }
  [[nodiscard]] bool predicted() const { return (flags & 2) != 0; }
  [[nodiscard]] bool in_transaction() const { return (flags & 4) != 0; }
  [[nodiscard]] bool abort() const { return (flags & 8) != 0; }
  [[nodiscard]] uint32_t cycles() const { return static_cast<uint32_t>(flags >> 4) & 0xffff; }
  [[nodiscard]] uint32_t type() const { return static_cast<uint32_t>(flags >> 20) & 0xf; }
};
static_assert(sizeof(BranchEntry) == kBranchEntryBytes);

struct Registers {
  uint64_t abi = PERF_SAMPLE_REGS_ABI_NONE;
  uint64_t mask = 0;  // bit n set: register n is among the values
  PackedArray<uint64_t> values;
};

struct Sample {
  SampleId id;
  uint16_t misc = 0;
  uint64_t ip = 0;
  uint64_t address = 0;
  uint64_t period = 0;  // the attr's sample_period is not filled in: 0 without PERF_SAMPLE_PERIOD
  ReadValues read;
  PackedArray<uint64_t> callchain;  // with PERF_CONTEXT_* markers, innermost first
  std::span<const std::byte> raw;
  PackedArray<BranchEntry> branches;  // newest first
  uint64_t branch_hw_index = ~uint64_t{0};
  PackedArray<uint64_t> branch_counters;
  Registers regs_user;
  std::span<const std::byte> stack_user;  // stack_dynamic_bytes of it are valid
  uint64_t stack_dynamic_bytes = 0;
  uint64_t weight = 0;
  uint64_t data_source = 0;
  uint64_t transaction = 0;
  Registers regs_intr;
  uint64_t physical_address = 0;
  uint64_t cgroup = 0;
  uint64_t data_page_bytes = 0;
  uint64_t code_page_bytes = 0;
  std::span<const std::byte> aux;
  bool has_aux = false;  // the AUX field is there (it may be empty)
};

enum class ParseStatus : uint8_t {
  kOk,
  kWrongType,      // not this kind of record
  kShort,          // a field reaches past the record's end
  kUnknownFields,  // sample_type has bits that the table does not know
};
const char* parse_status_text(ParseStatus status);

// Bytes after the last field are ignored, as perf does. On failure `sample` holds what came before.
ParseStatus parse_sample(const Record& record, const SampleFormat& format, Sample& sample);

// The trailer of a kernel record that is not a sample. kOk with id.fields == 0 if it has none: no
// sample_id_all, or a record of perf's own (type >= 64).
ParseStatus parse_trailer(const Record& record, const SampleFormat& format, SampleId& id);

// Just the event id of a record, for finding the attr that governs it, by the layout of the file's
// first attr (all attrs of a file agree about the id's place). False if the record holds none.
bool record_event_id(const Record& record, const SampleFormat& first_attr, uint64_t& id);

}  // namespace auxtrail::abi
