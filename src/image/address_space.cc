// Replaying side-band events into layouts.
#include "image/address_space.h"

#include <algorithm>
#include <map>
#include <utility>

namespace auxtrail::image {

struct AddressSpaces::Event {
  enum class Kind : uint8_t { kMap, kClear, kFork };
  Kind kind = Kind::kMap;
  uint64_t time_ns = 0;
  Mapping mapping;         // kMap
  int32_t parent_pid = 0;  // kFork
};

// One pid's events in time order, and the layouts that were asked for last.
struct AddressSpaces::Space {
  std::vector<Event> events;
  // By the number of events applied. Some are kept, because a parent is asked for its past by its
  // children.
  std::map<size_t, std::shared_ptr<const Layout>> cached;

  void remember(size_t position, std::shared_ptr<const Layout> layout) {
    constexpr size_t kMaxCached = 16;
    cached[position] = std::move(layout);
    if (cached.size() > kMaxCached) cached.erase(cached.begin());
  }
};

namespace {

// Puts `added` over whatever it overlaps.
void overlay(std::vector<Mapping>& mappings, const Mapping& added) {
  auto first = std::partition_point(mappings.begin(), mappings.end(),
                                    [&](const Mapping& m) { return m.end <= added.start; });
  auto last = std::partition_point(first, mappings.end(),
                                   [&](const Mapping& m) { return m.start < added.end; });
  std::vector<Mapping> pieces;
  if (first != last && first->start < added.start) {
    pieces.push_back(*first);
    pieces.back().end = added.start;
  }
  pieces.push_back(added);
  if (first != last && std::prev(last)->end > added.end) {
    Mapping tail = *std::prev(last);
    tail.file_offset = tail.offset_of(added.end);
    tail.start = added.end;
    pieces.push_back(tail);
  }
  const auto place = mappings.erase(first, last);
  mappings.insert(place, pieces.begin(), pieces.end());
}

}  // namespace

const Mapping* Layout::find(uint64_t address) const {
  const auto behind = std::partition_point(
      mappings.begin(), mappings.end(), [address](const Mapping& m) { return m.start <= address; });
  if (behind == mappings.begin()) return nullptr;
  const Mapping& candidate = *std::prev(behind);
  return candidate.contains(address) ? &candidate : nullptr;
}

AddressSpaces::AddressSpaces(DsoTable& dsos) : dsos_(dsos) {}
AddressSpaces::~AddressSpaces() = default;

void AddressSpaces::add_mapping(int32_t pid, uint64_t time_ns, uint64_t start, uint64_t size_bytes,
                                uint64_t file_offset, std::string_view path,
                                const BuildId& build_id) {
  const uint64_t end = start + std::min(size_bytes, UINT64_MAX - start);
  if (end == start) return;
  Event event{Event::Kind::kMap, time_ns, {start, end, file_offset, dsos_.intern(path, build_id)}};
  spaces_[pid].events.push_back(event);
  sorted_ = false;
}

void AddressSpaces::add_fork(int32_t pid, int32_t tid, int32_t parent_pid, int32_t parent_tid,
                             uint64_t time_ns) {
  namings_[tid].push_back({time_ns, true, parent_tid, ""});
  sorted_ = false;
  if (pid == parent_pid) return;
  Event event{Event::Kind::kFork, time_ns, {}, parent_pid};
  spaces_[pid].events.push_back(event);
}

void AddressSpaces::add_comm(int32_t pid, int32_t tid, uint64_t time_ns, std::string_view comm,
                             bool exec) {
  namings_[tid].push_back({time_ns, false, 0, std::string(comm)});
  if (exec) spaces_[pid].events.push_back({Event::Kind::kClear, time_ns, {}});
  sorted_ = false;
}

void AddressSpaces::add_exit(int32_t /*pid*/, int32_t /*tid*/, uint64_t /*time_ns*/) {
  // A process that takes over the pid arrives by FORK, which starts from scratch; the dead one's
  // mappings must stay, because its last samples may carry the exit's own time or, across CPUs, a
  // later one.
}

void AddressSpaces::sort_events() {
  if (sorted_) return;
  sorted_ = true;
  for (auto& [pid, space] : spaces_) {
    std::stable_sort(space.events.begin(), space.events.end(),
                     [](const Event& a, const Event& b) { return a.time_ns < b.time_ns; });
    space.cached.clear();
  }
  for (auto& [tid, namings] : namings_) {
    std::stable_sort(namings.begin(), namings.end(),
                     [](const Naming& a, const Naming& b) { return a.time_ns < b.time_ns; });
  }
}

std::shared_ptr<const Layout> AddressSpaces::layout(int32_t pid, uint64_t time_ns) {
  sort_events();
  return layout_at(pid, time_ns, 0);
}

std::shared_ptr<const Layout> AddressSpaces::layout_at(int32_t pid, uint64_t time_ns,
                                                       unsigned depth) {
  static const auto kEmpty = std::make_shared<const Layout>();
  const auto found = spaces_.find(pid);
  if (found == spaces_.end() || depth > kMaxForkDepth) return kEmpty;
  Space& space = found->second;
  const auto behind =
      std::partition_point(space.events.begin(), space.events.end(),
                           [time_ns](const Event& event) { return event.time_ns <= time_ns; });
  const auto position = static_cast<size_t>(behind - space.events.begin());
  if (position == 0) return kEmpty;
  auto above = space.cached.upper_bound(position);
  const bool has_base = above != space.cached.begin();
  if (has_base && std::prev(above)->first == position) return std::prev(above)->second;
  const size_t base_position = has_base ? std::prev(above)->first : 0;
  auto built =
      replay(space, base_position, position, has_base ? std::prev(above)->second : kEmpty, depth);
  space.remember(position, built);
  return built;
}

std::shared_ptr<const Layout> AddressSpaces::replay(const Space& space, size_t from, size_t to,
                                                    std::shared_ptr<const Layout> base,
                                                    unsigned depth) {
  // Nothing before the last fork or exec shows.
  size_t start = to;
  while (start > from && space.events[start - 1].kind == Event::Kind::kMap) --start;
  if (start > from) {
    const Event& reset = space.events[start - 1];
    base = reset.kind == Event::Kind::kFork ? layout_at(reset.parent_pid, reset.time_ns, depth + 1)
                                            : std::make_shared<const Layout>();
  }
  if (start == to) return base;
  auto layout = std::make_shared<Layout>();
  layout->id = next_layout_id_++;
  layout->mappings = base->mappings;
  for (size_t i = start; i < to; ++i) overlay(layout->mappings, space.events[i].mapping);
  return layout;
}

uint64_t AddressSpaces::next_change_ns(int32_t pid, uint64_t time_ns) {
  sort_events();
  constexpr uint64_t kNever = ~uint64_t{0};
  const auto found = spaces_.find(pid);
  if (found == spaces_.end()) return kNever;
  const auto& events = found->second.events;
  const auto behind =
      std::partition_point(events.begin(), events.end(),
                           [time_ns](const Event& event) { return event.time_ns <= time_ns; });
  return behind == events.end() ? kNever : behind->time_ns;
}

std::string_view AddressSpaces::comm(int32_t pid, int32_t tid, uint64_t time_ns) {
  sort_events();
  const std::string_view own = thread_name(tid, time_ns, 0);
  return own.empty() ? thread_name(pid, time_ns, 0) : own;
}

std::string_view AddressSpaces::thread_name(int32_t tid, uint64_t time_ns, unsigned depth) const {
  const auto found = namings_.find(tid);
  if (found == namings_.end() || depth > kMaxForkDepth) return {};
  const std::vector<Naming>& namings = found->second;
  const auto behind =
      std::partition_point(namings.begin(), namings.end(),
                           [time_ns](const Naming& naming) { return naming.time_ns <= time_ns; });
  if (behind == namings.begin()) return {};
  const Naming& last = *std::prev(behind);
  return last.is_fork ? thread_name(last.parent_tid, last.time_ns, depth + 1) : last.name;
}

}  // namespace auxtrail::image
