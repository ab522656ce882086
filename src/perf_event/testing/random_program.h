// A random program of calls, made to the running kernel and to the played one side by side;
// whatever they answer is compared. What the kernel is known to do otherwise is kept out of its
// way, each with the reason; docs/design/perf-event.md lists it.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "perf_event/testing/comparison.h"
#include "perf_event/testing/random_attr.h"
#include "perf_event/testing/system.h"

namespace auxtrail::perf_event::testing {

inline constexpr int kBadFd = 999;
inline constexpr size_t kMaxEvents = 8;

// A virtual machine may deliver a debug exception late, when the thread's watchpoints are off
// again: the kernel then takes it for a stray one and sends SIGTRAP, and an access is not counted.
// Nothing can be compared after that.
inline volatile sig_atomic_t stray_traps = 0;

class Program {
 public:
  Program(uint64_t seed, const Settings& settings, const User& user)
      : random_(seed), played_(settings, user) {}
  // Whatever the program has left open.
  ~Program() {
    for (const Mapped& area : mapped_) {
      real_.munmap(area.real, area.length);
      played_.munmap(area.played, area.length);
    }
    for (const Opened& event : opened_) {
      if (event.closed) continue;
      real_.close(event.real);
      played_.close(event.played);
    }
    EXPECT_TRUE(played_.kernel.nothing_left());
  }

  void run(int steps) {
    stray_traps = 0;
    for (int step = 0; step < steps && !::testing::Test::HasFatalFailure(); ++step) {
      log_.str("");
      played_.kernel.advance(1000);  // time passes between calls
      make_step();
      if (stray_traps != 0) return;
      ++calls_;
      compare_rings();
      if (::testing::Test::HasFailure()) {
        std::fprintf(stderr, "%s\n", history_.c_str());
        return;
      }
    }
  }
  [[nodiscard]] int calls() const { return calls_; }
  [[nodiscard]] const std::map<std::string, std::pair<int, int>>& outcomes() const {
    return outcomes_;
  }
  [[nodiscard]] uint64_t record_count() const { return records_; }

 private:
  bool one_in(unsigned n) { return random_.one_in(n); }
  template <class T>
  T pick(std::initializer_list<T> values) {
    return random_.pick(values);
  }
  // Both results, one of which is an address or a descriptor; the same success, or the same errno.
  bool same(const char* call, long ours, long theirs) {
    history_ += std::string(call) + log_.str() + " -> " + std::to_string(theirs) + "\n";
    auto& [good, bad] = outcomes_[call];
    ++(theirs >= 0 ? good : bad);
    const auto name = [](long value) {
      return value < 0 ? std::string(strerrorname_np(static_cast<int>(-value)))
                       : std::string("success");
    };
    EXPECT_EQ(name(ours), name(theirs)) << call << log_.str();
    return ours >= 0 && theirs >= 0;
  }
  bool any_event(size_t& number) {
    std::vector<size_t> open;
    for (size_t i = 0; i < opened_.size(); ++i) {
      if (!opened_[i].closed) open.push_back(i);
    }
    if (open.empty()) return false;
    number = open[random_() % open.size()];
    log_ << " #" << number;
    return true;
  }
  // A descriptor for an argument: an event's, or a bad one.
  std::pair<int, int> any_fd() {
    size_t number = 0;
    if (one_in(12) || !any_event(number)) return {kBadFd, kBadFd};
    return {opened_[number].played, opened_[number].real};
  }

  void make_step() {
    const uint64_t kind = random_() % 100;
    if (opened_.empty() || kind < 14) return open();
    if (kind < 18) return close();
    if (kind < 32) return map();
    if (kind < 38) return unmap();
    if (kind < 40) return remap();
    if (kind < 64) return control();
    if (kind < 74) return read();
    if (kind < 80) return poll();
    if (kind < 92) return write_variable();
    return consume();
  }

  // A variable that no event watches, or -1.
  int free_variable() {
    std::vector<int> free;
    for (int i = 0; i < kVariables; ++i) {
      bool used = false;
      for (const Opened& event : opened_) used = used || event.variable == i;
      if (!used) free.push_back(i);
    }
    return free.empty() || random_.one_in(3) ? -1 : free[random_() % free.size()];
  }

  void open() {
    size_t open_count = 0;
    for (const Opened& event : opened_) open_count += event.closed ? 0 : 1;
    if (open_count >= kMaxEvents) return close();
    Opened event;
    event.variable = free_variable();
    event.attr = random_attr(random_, event.variable, knows_aux_action());
    const int pid = one_in(12) ? pick({-1, -2, 0x3fffff}) : 0;
    // Watchpoints on a whole CPU would count what others do.
    int cpu = one_in(3) ? 0 : -1;
    if (one_in(12)) cpu = pick({1, -2, 9999});
    if (pid == -1 && event.attr.type == PERF_TYPE_BREAKPOINT) cpu = -1;
    uint64_t flags = one_in(4) ? uint64_t{PERF_FLAG_FD_OUTPUT} : 0;
    if (one_in(6)) flags |= PERF_FLAG_FD_NO_GROUP;
    if (one_in(10)) flags |= PERF_FLAG_FD_CLOEXEC;
    // Nor are there places for them there while others watch.
    if (one_in(40) && event.attr.type != PERF_TYPE_BREAKPOINT) flags |= PERF_FLAG_PID_CGROUP;
    if (one_in(60)) flags |= uint64_t{1} << (4 + random_() % 60);
    const auto group = one_in(2) ? std::pair{-1, -1} : any_fd();
    const int cgroup = kBadFd;
    const int target = (flags & PERF_FLAG_PID_CGROUP) != 0 && pid == 0 ? cgroup : pid;
    const perf_event_attr& attr = event.attr;
    log_ << " type " << attr.type << " period " << attr.sample_period << " sample_type " << std::hex
         << attr.sample_type << " format " << attr.read_format << std::dec << " pid " << target
         << " cpu " << cpu << " flags " << flags << " group " << group.second << " inherit "
         << attr.inherit << " disabled " << attr.disabled << " backward " << attr.write_backward
         << " watermark " << attr.watermark << " wakeup " << attr.wakeup_events << " aux "
         << attr.aux_sample_size << " pinned " << attr.pinned << " exclusive " << attr.exclusive
         << " clock " << (attr.use_clockid != 0 ? attr.clockid : -1) << " variable "
         << event.variable;
    const long played = played_.open(attr, target, cpu, group.first, flags);
    const long real = real_.open(attr, target, cpu, group.second, flags);
    event.played = static_cast<int>(played);
    event.real = static_cast<int>(real);
    if (same("open", played, real)) {
      opened_.push_back(event);
      learn_id(event);
      if (group.second != -1) reschedule();
    } else if (real >= 0) {
      real_.close(event.real);
    }
  }

  void learn_id(const Opened& event) {
    uint64_t ours = 0;
    uint64_t theirs = 0;
    played_.ioctl(event.played, PERF_EVENT_IOC_ID, reinterpret_cast<uint64_t>(&ours));
    real_.ioctl(event.real, PERF_EVENT_IOC_ID, reinterpret_cast<uint64_t>(&theirs));
    ids_[ours] = theirs;
  }

  void close() {
    size_t number = 0;
    if (any_event(number)) close(number);
  }
  void close(size_t number) {
    Opened& event = opened_[number];
    same("close", played_.close(event.played), real_.close(event.real));
    event.closed = true;
    forget(number);
    reschedule();
  }
  // The kernel puts some events on their PMUs only when the thread is next scheduled: siblings
  // whose leader was off and is closed, siblings that are on another PMU than their leader.
  void reschedule() {
    real_.pause();
    played_.pause();
  }
  // Its watchpoint is free again once neither descriptor nor mapping is left.
  void forget(size_t number) {
    if (!opened_[number].closed) return;
    for (const Mapped& area : mapped_) {
      if (area.event == number) return;
    }
    opened_[number].variable = -1;
  }

  void map() {
    size_t number = 0;
    if (!any_event(number)) return;
    const Opened& event = opened_[number];
    Mapped area;
    area.event = number;
    area.length = 4096 * pick<uint64_t>({2, 2, 2, 3, 3, 5, 9, 1, 4, 6});
    if (one_in(10)) area.length -= random_() % 4096;
    if (one_in(20))
      area.length = pick<uint64_t>({0, uint64_t{524289} << 12, uint64_t{1} << 44, uint64_t{1} << 50,
                                    (uint64_t{1} << 38) + 4096});
    area.protection = pick({PROT_READ | PROT_WRITE, PROT_READ | PROT_WRITE, PROT_READ, PROT_READ,
                            PROT_NONE, PROT_WRITE});
    int flags = one_in(12) ? pick({MAP_PRIVATE, 0, MAP_SHARED_VALIDATE}) : MAP_SHARED;
    // A private mapping may be too much for the system whatever file it is of.
    if (area.length > uint64_t{1} << 30) flags = MAP_SHARED;
    if (one_in(4)) return map_aux(area, flags);
    if (one_in(30)) area.offset = pick<uint64_t>({1, 4095, 4096, 8192});
    finish_map(area, event, flags);
  }
  // The fields of the control page are the reader's; they may be good or not.
  void map_aux(Mapped area, int flags) {
    const Opened& event = opened_[area.event];
    const Mapped* data = nullptr;
    for (const Mapped& other : mapped_) {
      if (other.event == area.event && other.offset == 0) data = &other;
    }
    area.offset = 4096 * pick<uint64_t>({2, 3, 4, 5, 9, 16, 17});
    area.length = 4096 * pick<uint64_t>({1, 2, 4, 3, 8});
    if (data != nullptr && (data->protection & PROT_WRITE) != 0) {
      const uint64_t offset = one_in(6) ? random_() % 20 * 4096 : area.offset;
      const uint64_t size = one_in(6) ? random_() % 20 * 4096 : area.length;
      for (perf_event_mmap_page* control : {page(data->real), page(data->played)}) {
        control->aux_offset = offset;
        control->aux_size = size;
      }
      log_ << " aux_offset " << offset << " aux_size " << size;
    }
    finish_map(area, event, flags);
  }
  void finish_map(Mapped area, const Opened& event, int flags) {
    log_ << " length " << area.length << " prot " << area.protection << " flags " << flags
         << " offset " << area.offset;
    area.played = played_.mmap(area.length, area.protection, flags, event.played, area.offset);
    area.real = real_.mmap(area.length, area.protection, flags, event.real, area.offset);
    if (!mapping_of_anothers_ring_is_refused() && area.played == -EBUSY) {
      if (area.real >= 0) real_.munmap(area.real, area.length);
      return;
    }
    if (same("mmap", area.played, area.real)) {
      mapped_.push_back(area);
    } else if (area.real >= 0) {
      real_.munmap(area.real, area.length);
    }
  }
  void unmap() {
    if (mapped_.empty()) return;
    const size_t number = random_() % mapped_.size();
    const Mapped area = mapped_[number];
    uint64_t length = area.length;
    uint64_t skip = 0;
    const uint64_t pages = (area.length + 4095) / 4096;
    if (one_in(4) && pages > 1) {
      if (one_in(2)) {
        length = 4096 * (1 + random_() % (pages - 1));
      } else {
        skip = 4096 * (1 + random_() % (pages - 1));
        length = 4096 * pages - skip;
      }
    } else if (one_in(20)) {
      length = 0;
    } else if (one_in(20)) {
      skip = 1;
    }
    log_ << " of #" << area.event << " skip " << skip << " length " << length;
    const long played = played_.munmap(area.played + static_cast<long>(skip), length);
    const long real = real_.munmap(area.real + static_cast<long>(skip), length);
    if (same("munmap", played, real)) {
      mapped_.erase(mapped_.begin() + static_cast<long>(number));
      forget(area.event);
      if (opened_[area.event].closed) reschedule();
    }
  }
  void remap() {
    if (mapped_.empty()) return;
    const Mapped& area = mapped_[random_() % mapped_.size()];
    const uint64_t length = pick<uint64_t>({area.length, area.length + 4096, 4096, 0});
    log_ << " from " << area.length << " to " << length;
    same("mremap", played_.mremap(area.played, area.length, length),
         real_.mremap(area.real, area.length, length));
  }

  void control() {
    size_t number = 0;
    if (!any_event(number)) return;
    const Opened& event = opened_[number];
    const auto both = [&](const char* name, uint64_t request, uint64_t ours, uint64_t theirs) {
      log_ << " " << static_cast<int64_t>(theirs);
      return same(name, played_.ioctl(event.played, request, ours),
                  real_.ioctl(event.real, request, theirs));
    };
    const uint64_t group = one_in(3) ? PERF_IOC_FLAG_GROUP : 0;
    uint64_t period = pick<uint64_t>({0, 1, 2, 5, uint64_t{1} << 63});
    const auto period_address = reinterpret_cast<uint64_t>(&period);
    switch (random_() % 16) {
      case 0:
      case 1:
      case 2:
        both("enable", PERF_EVENT_IOC_ENABLE, group, group);
        reschedule();
        break;
      case 3:
      case 4:
      case 5:
        both("disable", PERF_EVENT_IOC_DISABLE, group, group);
        break;
      case 6:
        both("reset", PERF_EVENT_IOC_RESET, group, group);
        break;
      case 7:
      case 8: {
        const auto count = pick<uint64_t>({0, 1, 2, 5});
        const bool limits = both("refresh", PERF_EVENT_IOC_REFRESH, count, count) && count != 0;
        opened_[number].limited = opened_[number].limited || limits;
        reschedule();
        break;
      }
      case 9: {
        log_ << " to " << period;
        if (both("period", PERF_EVENT_IOC_PERIOD, period_address, period_address)) {
          reschedule();  // it would put off an overflow if it came later
        }
        break;
      }
      case 10:
      case 11: {
        const auto [ours, theirs] = one_in(4) ? std::pair{-1, -1} : any_fd();
        both("set_output", PERF_EVENT_IOC_SET_OUTPUT, static_cast<uint64_t>(ours),
             static_cast<uint64_t>(theirs));
        break;
      }
      case 12:
      case 13: {
        const uint64_t paused = random_() & 1;
        both("pause_output", PERF_EVENT_IOC_PAUSE_OUTPUT, paused, paused);
        break;
      }
      case 14: {
        const uint64_t text = one_in(4) ? 0 : reinterpret_cast<uint64_t>("start 0x1/0x2");
        both("set_filter", PERF_EVENT_IOC_SET_FILTER, text, text);
        break;
      }
      default:
        if (one_in(2)) {
          both("set_bpf", PERF_EVENT_IOC_SET_BPF, ~uint64_t{0}, ~uint64_t{0});
        } else if (one_in(2)) {
          both("id", PERF_EVENT_IOC_ID, 0, 0);
        } else if (one_in(2)) {
          modify(event);
        } else if (one_in(2)) {
          const long theirs = real_.ioctl(event.real, PERF_EVENT_IOC_QUERY_BPF, 0);
          const bool knows_bpf = theirs != -EOPNOTSUPP;  // a kernel may be built without
          const long ours = played_.ioctl(event.played, PERF_EVENT_IOC_QUERY_BPF, 0);
          if (knows_bpf) same("query_bpf", ours, theirs);
        } else {
          both("no such ioctl", _IO('$', 77), 0, 0);
        }
        break;
    }
  }

  void modify(const Opened& event) {
    perf_event_attr attr = random_attr(random_, -1, false);
    if (attr.type == event.attr.type && attr.type == PERF_TYPE_BREAKPOINT) return;
    log_ << " type " << attr.type << " of " << event.attr.type;
    const auto request = [&](System& system, int fd) {
      perf_event_attr copy = attr;
      return system.ioctl(fd, PERF_EVENT_IOC_MODIFY_ATTRIBUTES, reinterpret_cast<uint64_t>(&copy));
    };
    same("modify", request(played_, event.played), request(real_, event.real));
  }

  void read() {
    size_t number = 0;
    if (!any_event(number)) return;
    const Opened& event = opened_[number];
    uint64_t ours[64] = {};
    uint64_t theirs[64] = {};
    const uint64_t size = one_in(5) ? random_() % 80 : sizeof ours;
    log_ << " size " << size << " format " << event.attr.read_format;
    const long played = played_.read(event.played, ours, size);
    const long real = real_.read(event.real, theirs, size);
    if (lost_its_group(event) && real != played) return;
    if (!same("read", played, real)) return;
    ASSERT_EQ(played, real) << "bytes" << log_.str();
    compare_reading(ours, theirs, static_cast<size_t>(real) / 8, event.attr.read_format, ids_,
                    log_.str());
  }
  // A sibling whose leader is gone gives as many bytes as before in the kernel, the rest zeros.
  bool lost_its_group(const Opened& event) {
    const PerfEvent* const played = played_.kernel.event_of(played_.tid, event.played);
    return (event.attr.read_format & PERF_FORMAT_GROUP) != 0 && played->group_leader == nullptr &&
           played->sibling_count == 0;
  }

  void poll() {
    size_t number = 0;
    if (!any_event(number)) return;
    const Opened& event = opened_[number];
    const long ours = played_.poll(event.played);
    const long theirs = real_.poll(event.real);
    history_ += "poll" + log_.str() + " -> " + std::to_string(theirs) + "\n";
    auto& [good, bad] = outcomes_["poll"];
    ++(theirs != 0 ? good : bad);
    EXPECT_EQ(ours, theirs) << "poll" << log_.str();
  }

  void write_variable() {
    const int variable = static_cast<int>(random_() % kVariables);
    const int times = pick({1, 1, 2, 3, 10, 40});
    log_ << " " << variable << " times " << times;
    played_.write_variable(variable, times);
    real_.write_variable(variable, times);
    history_ += "write" + log_.str() + "\n";
    if (stray_traps != 0) return;
    for (size_t i = 0; i < opened_.size(); ++i) retire_if_exhausted(i);
  }
  // Since Linux 6.16 a watchpoint that has used up its limit does not count again when it is
  // enabled.
  void retire_if_exhausted(size_t number) {
    Opened& event = opened_[number];
    if (event.closed || !event.limited) return;
    if (played_.kernel.event_of(played_.tid, event.played)->event_limit.load() != 0) return;
    compare_rings();
    std::erase_if(mapped_, [&](const Mapped& area) {
      if (area.event != number) return false;
      same("munmap", played_.munmap(area.played, area.length),
           real_.munmap(area.real, area.length));
      return true;
    });
    close(number);
  }

  // The reader goes on, in both rings.
  void consume() {
    for (const Mapped& area : mapped_) {
      if (area.offset != 0 || (area.protection & PROT_WRITE) == 0 || one_in(2)) continue;
      history_ += "consume #" + std::to_string(area.event) + "\n";
      for (perf_event_mmap_page* control : {page(area.real), page(area.played)}) {
        control->data_tail = control->data_head;
      }
    }
  }

  void compare_rings() {
    for (const Mapped& area : mapped_) {
      const bool backward = opened_[area.event].attr.write_backward != 0;
      if (area.offset != 0 || area.protection == PROT_NONE) continue;
      records_ += compare_ring(area, backward, log_.str());
    }
  }

  // What this kernel is too old for.
  bool knows_aux_action() {
    if (!knows_aux_action_known_) {
      perf_event_attr attr = dummy_attr();
      event::set_aux_action(attr, event::kAuxStartPaused);
      knows_aux_action_ = real_.open(attr, 0, -1, -1, 0) == -EOPNOTSUPP;  // Linux 6.13
      knows_aux_action_known_ = true;
    }
    return knows_aux_action_;
  }
  bool mapping_of_anothers_ring_is_refused() {  // Linux 6.19, and the stable kernels since
    static const bool refused = [this] {
      const auto first = static_cast<int>(real_.open(dummy_attr(), 0, -1, -1, 0));
      const auto second = static_cast<int>(real_.open(dummy_attr(), 0, -1, -1, 0));
      const long ring = real_.mmap(8192, PROT_READ, MAP_SHARED, first, 0);
      real_.ioctl(second, PERF_EVENT_IOC_SET_OUTPUT, static_cast<uint64_t>(first));
      const long again = real_.mmap(8192, PROT_READ, MAP_SHARED, second, 0);
      if (again >= 0) real_.munmap(again, 8192);
      real_.munmap(ring, 8192);
      real_.close(first);
      real_.close(second);
      return again == -EBUSY;
    }();
    return refused;
  }

  Random random_;
  PlayedSystem played_;
  RealSystem real_;
  std::vector<Opened> opened_;
  std::vector<Mapped> mapped_;
  std::map<uint64_t, uint64_t> ids_;  // of the kernel, by ours
  std::ostringstream log_;
  std::string history_;
  std::map<std::string, std::pair<int, int>> outcomes_;  // successes and failures, by call
  int calls_ = 0;
  uint64_t records_ = 0;
  bool knows_aux_action_ = false;
  bool knows_aux_action_known_ = false;
};

}  // namespace auxtrail::perf_event::testing
