// Views of perf records as they lie in memory: nothing is copied, every access is checked.
//
// A Record points into somebody else's bytes (a mapped file, a ring, a buffer) and lives no longer
// than they do. The bytes need no alignment: all values are copied out.
#pragma once

#include <linux/perf_event.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <span>
#include <string_view>
#include <type_traits>

namespace auxtrail::abi {

// Record types that perf's tools add to the kernel's (they start at 64 and have no sample_id
// trailer).
enum UserRecordType : uint32_t {
  kUserRecordTypeStart = 64,
  kRecordHeaderAttr = 64,
  kRecordHeaderEventType = 65,
  kRecordHeaderTracingData = 66,
  kRecordHeaderBuildId = 67,
  kRecordFinishedRound = 68,
  kRecordIdIndex = 69,
  kRecordAuxtraceInfo = 70,
  kRecordAuxtrace = 71,
  kRecordAuxtraceError = 72,
  kRecordThreadMap = 73,
  kRecordCpuMap = 74,
  kRecordStatConfig = 75,
  kRecordStat = 76,
  kRecordStatRound = 77,
  kRecordEventUpdate = 78,
  kRecordTimeConv = 79,
  kRecordHeaderFeature = 80,
  kRecordCompressed = 81,
  kRecordFinishedInit = 82,
  kRecordCompressed2 = 83,
};

// "SAMPLE", "MMAP2", "AUXTRACE_INFO" ...; "UNKNOWN" for a type that no table has.
std::string_view record_type_name(uint32_t type);
// Whether the type is in the table behind record_type_name().
bool is_known_record_type(uint32_t type);

// A read-only array of T at an address of any alignment.
template <class T>
requires std::is_trivially_copyable_v<T>
class PackedArray {
 public:
  PackedArray() = default;
  explicit PackedArray(std::span<const std::byte> bytes) : bytes_(bytes) {}

  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = T;
    using difference_type = std::ptrdiff_t;
    using pointer = const T*;
    using reference = T;
    Iterator() = default;
    Iterator(const PackedArray* array, size_t index) : array_(array), index_(index) {}
    T operator*() const { return (*array_)[index_]; }
    Iterator& operator++() {
      ++index_;
      return *this;
    }
    Iterator operator++(int) {
      Iterator before = *this;
      ++index_;
      return before;
    }
    bool operator==(const Iterator& other) const { return index_ == other.index_; }

   private:
    const PackedArray* array_ = nullptr;
    size_t index_ = 0;
  };

  using value_type = T;
  using size_type = size_t;
  using const_reference = T;
  using const_iterator = Iterator;
  using iterator = Iterator;

  [[nodiscard]] size_t size() const { return bytes_.size() / sizeof(T); }
  [[nodiscard]] bool empty() const { return size() == 0; }
  // `index` must be below size().
  T operator[](size_t index) const {
    T value;
    std::memcpy(&value, bytes_.data() + index * sizeof(T), sizeof(T));
    return value;
  }
  [[nodiscard]] Iterator begin() const { return {this, 0}; }
  [[nodiscard]] Iterator end() const { return {this, size()}; }

 private:
  std::span<const std::byte> bytes_;
};

// One record: its header, already read, and all of its bytes (header included).
struct Record {
  uint32_t type = 0;
  uint16_t misc = 0;
  std::span<const std::byte> bytes;

  [[nodiscard]] std::span<const std::byte> body() const {
    return bytes.subspan(sizeof(perf_event_header));
  }
  [[nodiscard]] uint16_t cpu_mode() const { return misc & PERF_RECORD_MISC_CPUMODE_MASK; }
};

enum class RecordStatus : uint8_t {
  kOk,
  kShort,    // fewer bytes than a header, or than header.size says
  kBadSize,  // header.size is below the size of a header
};

// Takes the first record off `bytes`. On kOk, record.bytes.size() is header.size, which is >= 8.
RecordStatus first_record(std::span<const std::byte> bytes, Record& record);

}  // namespace auxtrail::abi
