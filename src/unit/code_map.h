// CodeMap: which of the program's code may be translated.
//
// Only private, executable and not writable mappings of files that exist under their name (and the
// vdso) are. Everything else (JIT output, anonymous or shared memory) runs natively, because nobody
// tells us when it changes. The mappings we do translate are watched: the interposed mmap family
// and dlclose call CodeCache::drop() before the program changes one. A page that was ever made
// writable stays native for good.
//
// Not thread safe: callers hold the translator lock (see code_cache.h). No allocation;
// async-signal-safe.
#pragma once

#include <cstddef>
#include <cstdint>

namespace auxtrail::unit {

enum class SegmentState : uint8_t { kWatched, kSuspended, kGone };

struct Segment {
  uint64_t start;
  uint64_t end;
  uint64_t inode_key;  // file identity and offset: a different file at the same place is a
                       // different segment
  uint32_t arena;      // index of the code arena that reaches this segment, or kNoArena
  SegmentState state;
  bool initial;  // loaded when the unit started
};

class CodeMap {
 public:
  static constexpr uint32_t kNoArena = ~0u;
  static constexpr size_t kMaxSegments = 1024;
  static constexpr size_t kMaxPatched = 128;
  static constexpr size_t kMaxInitial = 256;

  // Reads /proc/self/maps anew (and the restartable sequences of code that is new, see rseq.h; and
  // where the address filters' files lie). Segments that vanished or changed, or that are filtered
  // otherwise, are reported to `gone` (may be null) so that their translations can be dropped.
  // False if the file can't be read.
  bool refresh(void (*gone)(const Segment&, void*), void* closure);

  // Code in [start, end) was there when the unit started: no dlclose removes it.
  void note_initial(uint64_t start, uint64_t end);

  // The watched segment that holds `pc`, or null.
  Segment* find(uint64_t pc);
  // Whether pages at `pc` were once made writable or otherwise changed by the program.
  [[nodiscard]] bool is_patched(uint64_t pc) const;

  // True if [start, end) touches a segment that is being watched.
  [[nodiscard]] bool overlaps(uint64_t start, uint64_t end) const;
  // Remembers that the program changes code in [start, end): never translated again.
  void mark_patched(uint64_t start, uint64_t end);

  // Whether `pc` is in the unit's own code.
  [[nodiscard]] bool is_own(uint64_t pc) const { return pc >= own_start_ && pc < own_end_; }

  [[nodiscard]] size_t size() const { return count_; }
  Segment& segment(size_t index) { return segments_[index]; }

 private:
  struct Range {
    uint64_t start;
    uint64_t end;
  };
  [[nodiscard]] bool knows(uint64_t start, uint64_t end, uint64_t key) const;
  [[nodiscard]] bool has_part_of(const Segment& old) const;
  [[nodiscard]] bool is_initial(uint64_t start) const;
  void take_over_filters(void (*gone)(const Segment&, void*), void* closure);
  void add(uint64_t start, uint64_t end, uint64_t key);
  void add_without_patched(uint64_t start, uint64_t end, uint64_t key);

  Segment segments_[kMaxSegments];
  size_t count_ = 0;
  Segment next_[kMaxSegments];  // the list being built by refresh()
  size_t next_count_ = 0;
  Range patched_[kMaxPatched];
  size_t patched_count_ = 0;
  Range initial_[kMaxInitial];
  size_t initial_count_ = 0;
  uint64_t own_start_ = 0;
  uint64_t own_end_ = 0;
  bool patched_overflow_ =
      false;  // more patched ranges than we can remember: nothing is translated
};

}  // namespace auxtrail::unit
