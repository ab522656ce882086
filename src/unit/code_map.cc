// See code_map.h. Signal safe: raw system calls, no allocation.
#include "unit/code_map.h"

#include <fcntl.h>

#include "unit/address_filters.h"
#include "unit/rseq.h"
#include "unit/sys.h"

namespace auxtrail::unit {
namespace {

// Reads a file line by line through a small buffer.
class LineReader {
 public:
  explicit LineReader(int fd) : fd_(fd) {}

  // The next line without its newline, cut at the buffer's size; null at the end.
  const char* next() {
    size_t used = 0;
    bool any = false;
    for (;;) {
      if (at_ == filled_ && !fill()) break;
      const char c = buffer_[at_++];
      any = true;
      if (c == '\n') break;
      if (used + 1 < sizeof line_) line_[used++] = c;
    }
    line_[used] = 0;
    return any ? line_ : nullptr;
  }

 private:
  bool fill() {
    const long got = sys::call(SYS_read, fd_, sys::arg(buffer_), sizeof buffer_);
    at_ = 0;
    filled_ = got > 0 ? static_cast<size_t>(got) : 0;
    return filled_ != 0;
  }
  int fd_;
  size_t at_ = 0;
  size_t filled_ = 0;
  char buffer_[1024];
  char line_[512];
};

struct MapsLine {
  uint64_t start = 0;
  uint64_t end = 0;
  uint64_t offset = 0;
  uint64_t device = 0;
  uint64_t inode = 0;
  bool exec = false;
  bool write = false;
  bool shared = false;
  bool vdso = false;
  bool deleted = false;        // no file has this name any more: a memfd, a replaced library
  const char* path = nullptr;  // in the text given to parse()
};

uint64_t hex(const char*& at) {
  uint64_t value = 0;
  for (;; ++at) {
    const char c = *at;
    if (c >= '0' && c <= '9') {
      value = value * 16 + static_cast<uint64_t>(c - '0');
    } else if (c >= 'a' && c <= 'f') {
      value = value * 16 + static_cast<uint64_t>(c - 'a' + 10);
    } else {
      return value;
    }
  }
}

uint64_t decimal(const char*& at) {
  uint64_t value = 0;
  for (; *at >= '0' && *at <= '9'; ++at) value = value * 10 + static_cast<uint64_t>(*at - '0');
  return value;
}

bool ends_with(const char* text, const char* end) {
  size_t length = 0;
  size_t end_length = 0;
  while (text[length] != 0) ++length;
  while (end[end_length] != 0) ++end_length;
  if (length < end_length) return false;
  for (size_t i = 0; i < end_length; ++i) {
    if (text[length - end_length + i] != end[i]) return false;
  }
  return true;
}

// "start-end rwxp offset major:minor inode   path"
MapsLine parse(const char* at) {
  MapsLine line;
  line.start = hex(at);
  if (*at == '-') ++at;
  line.end = hex(at);
  if (*at == ' ') ++at;
  for (int i = 0; i < 4 && *at != 0; ++i, ++at) {
    if (i == 1) line.write = *at == 'w';
    if (i == 2) line.exec = *at == 'x';
    if (i == 3) line.shared = *at == 's';
  }
  if (*at == ' ') ++at;
  line.offset = hex(at);
  if (*at == ' ') ++at;
  line.device = hex(at) << 32;
  if (*at == ':') ++at;
  line.device |= hex(at);
  if (*at == ' ') ++at;
  line.inode = decimal(at);
  while (*at == ' ') ++at;
  static constexpr char kVdso[] = "[vdso]";
  line.vdso = true;
  for (size_t i = 0; i < sizeof kVdso - 1; ++i) {
    if (at[i] != kVdso[i]) {
      line.vdso = false;
      break;
    }
  }
  if (*at == '/') line.path = at;
  line.deleted = ends_with(at, " (deleted)");
  return line;
}

uint64_t identity(const MapsLine& line) {
  uint64_t key = line.inode * 0x9e3779b97f4a7c15 ^ line.device * 0xc2b2ae3d27d4eb4f;
  key ^= line.offset * 0x165667b19e3779f9;
  return key;
}

// The unit's own code is never translated.
bool is_own_code(const MapsLine& line) {
  const auto own = reinterpret_cast<uint64_t>(&is_own_code);
  return own >= line.start && own < line.end;
}

}  // namespace

bool CodeMap::refresh(void (*gone)(const Segment&, void*), void* closure) {
  const long fd =
      sys::call(SYS_openat, AT_FDCWD, sys::arg("/proc/self/maps"), O_RDONLY | O_CLOEXEC);
  if (sys::is_error(fd)) return false;
  next_count_ = 0;
  address_filters.begin_mappings();
  LineReader reader(static_cast<int>(fd));
  while (const char* text = reader.next()) {
    const MapsLine line = parse(text);
    if (line.exec && line.path != nullptr) {
      address_filters.add_mapping(line.path, line.start, line.end, line.offset);
    }
    const bool file_backed =
        line.inode != 0 && !line.shared && line.path != nullptr && !line.deleted;
    if (!line.exec || line.write || !(file_backed || line.vdso)) continue;
    if (is_own_code(line)) {
      own_start_ = line.start;
      own_end_ = line.end;
      continue;
    }
    const uint64_t key = identity(line);
    if (line.path != nullptr && !knows(line.start, line.end, key) &&
        !rseq_add_module(line.path, line.start, line.offset, key)) {
      continue;
    }
    add_without_patched(line.start, line.end, key);
  }
  sys::close(static_cast<int>(fd));

  // Carry over what is still the same; report what is not.
  for (size_t i = 0; i < count_; ++i) {
    Segment& old = segments_[i];
    bool kept = false;
    for (size_t j = 0; j < next_count_ && !kept; ++j) {
      Segment& fresh = next_[j];
      if (fresh.start == old.start && fresh.end == old.end && fresh.inode_key == old.inode_key) {
        fresh.arena = old.arena;
        fresh.initial = old.initial;
        kept = true;
      }
    }
    if (kept) continue;
    if (!has_part_of(old)) rseq_forget(old.start, old.end, old.inode_key);
    if (gone != nullptr) gone(old, closure);
  }
  for (size_t j = 0; j < next_count_; ++j) segments_[j] = next_[j];
  count_ = next_count_;
  take_over_filters(gone, closure);
  return true;
}

// Superblocks end where a range does: where one comes or goes they are made again.
void CodeMap::take_over_filters(void (*gone)(const Segment&, void*), void* closure) {
  struct Listener {
    CodeMap* map;
    void (*gone)(const Segment&, void*);
    void* closure;
  } listener{this, gone, closure};
  const auto changed = [](const AddressRange& range, void* told) {
    const auto& to = *static_cast<const Listener*>(told);
    for (size_t i = 0; i < to.map->count_ && to.gone != nullptr; ++i) {
      const Segment& segment = to.map->segments_[i];
      if (segment.start < range.end && range.start < segment.end) to.gone(segment, to.closure);
    }
  };
  address_filters.end_mappings(changed, &listener);
}

bool CodeMap::knows(uint64_t start, uint64_t end, uint64_t key) const {
  for (size_t i = 0; i < count_; ++i) {
    const Segment& old = segments_[i];
    if (old.start >= start && old.end <= end && old.inode_key == key) return true;
  }
  return false;
}

void CodeMap::add_without_patched(uint64_t start, uint64_t end, uint64_t key) {
  if (patched_overflow_) return;
  for (size_t i = 0; i < patched_count_; ++i) {
    const Range& hole = patched_[i];
    if (hole.end <= start || hole.start >= end) continue;
    if (hole.start > start) add_without_patched(start, hole.start, key);
    if (hole.end < end) add_without_patched(hole.end, end, key);
    return;
  }
  add(start, end, key);
}

// Of a segment with a patched page the rest is listed on its own.
bool CodeMap::has_part_of(const Segment& old) const {
  for (size_t j = 0; j < next_count_; ++j) {
    const Segment& fresh = next_[j];
    if (fresh.inode_key == old.inode_key && fresh.start >= old.start && fresh.end <= old.end) {
      return true;
    }
  }
  return false;
}

void CodeMap::note_initial(uint64_t start, uint64_t end) {
  if (initial_count_ < kMaxInitial) initial_[initial_count_++] = {start, end};
}

bool CodeMap::is_initial(uint64_t start) const {
  for (size_t i = 0; i < initial_count_; ++i) {
    if (start >= initial_[i].start && start < initial_[i].end) return true;
  }
  return false;
}

void CodeMap::add(uint64_t start, uint64_t end, uint64_t key) {
  if (next_count_ == kMaxSegments) return;  // what is not listed runs natively
  next_[next_count_++] = {start, end, key, kNoArena, SegmentState::kWatched, is_initial(start)};
}

Segment* CodeMap::find(uint64_t pc) {
  size_t low = 0;
  size_t high = count_;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (segments_[middle].end <= pc) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  if (low == count_ || pc < segments_[low].start) return nullptr;
  return segments_[low].state == SegmentState::kWatched ? &segments_[low] : nullptr;
}

bool CodeMap::is_patched(uint64_t pc) const {
  if (patched_overflow_) return true;
  for (size_t i = 0; i < patched_count_; ++i) {
    if (pc >= patched_[i].start && pc < patched_[i].end) return true;
  }
  return false;
}

bool CodeMap::overlaps(uint64_t start, uint64_t end) const {
  for (size_t i = 0; i < count_; ++i) {
    if (segments_[i].start < end && start < segments_[i].end) return true;
  }
  return false;
}

void CodeMap::mark_patched(uint64_t start, uint64_t end) {
  for (size_t i = 0; i < patched_count_; ++i) {
    Range& range = patched_[i];
    if (range.start <= end && start <= range.end) {
      if (start < range.start) range.start = start;
      if (end > range.end) range.end = end;
      return;
    }
  }
  if (patched_count_ == kMaxPatched) {
    patched_overflow_ = true;
    return;
  }
  patched_[patched_count_++] = {start, end};
}

}  // namespace auxtrail::unit
