// Random programs of calls against the reference model, a million steps in all: open, close, mmap,
// munmap, ioctl, overflows, traced bytes, clone, exit, scheduling. After each step every event,
// ring and AUX area is as the model says, every reference is accounted for; at the end nothing is
// left.
#include "perf_event/testing/model.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <map>
#include <random>

#include "perf_event/testing/fixture.h"

namespace auxtrail::perf_event::testing {
namespace {

constexpr int kReadWrite = PROT_READ | PROT_WRITE;
constexpr size_t kMaxEvents = 20;
constexpr int kMaxTasks = 5;

struct Area {
  int event = 0;
  bool is_aux = false;
  bool writable = false;
  long address = 0;
  uint64_t pages = 0;
};

class ModelTest : public KernelTest, public ::testing::WithParamInterface<uint64_t> {
 protected:
  // Threads of one process, so that all share its descriptors and mappings.
  ModelTest() : random_(GetParam()) {
    model_.add_task();
    tids_.push_back(tid);
    model_.run(0, 0);
  }

  void step() {
    switch (random_() % 32) {
      case 0:
      case 1:
      case 2:
        return open();
      case 3:
        return close();
      case 4:
      case 5:
        return map_data();
      case 6:
      case 7:
        return map_aux();
      case 8:
        return unmap();
      case 9:
      case 10:
      case 11:
        return enable_or_disable();
      case 12:
        return set_output();
      case 13:
        return pause_output();
      case 14:
        return clone();
      case 15:
        return exit();
      case 16:
      case 17:
        return run_task();
      case 18:
      case 19:
        return poll();
      case 20:
      case 21:
      case 22:
      case 23:
        return consume();
      case 24:
      case 25:
      case 26:
        return trace();
      case 27:
        return interrupt();
      default:
        return overflow();
    }
  }

  void check() {
    for (size_t e = 0; e < model_.events.size(); ++e) check_event(static_cast<int>(e));
    for (const Area& area : areas_) {
      if (!area.is_aux) check_buffer(area);
    }
  }
  void finish() {
    for (size_t task = 1; task < tids_.size(); ++task) exit(task);
    while (!areas_.empty()) unmap();
    for (size_t e = 0; e < model_.events.size(); ++e) {
      if (model_.events[e].descriptors != 0) close(static_cast<int>(e));
    }
    check();
    EXPECT_TRUE(kernel.nothing_left());
    EXPECT_EQ(kernel.event_count(), 0U);
    // The model stays small.
    model_.events.clear();
    model_.buffers.clear();
    model_.task_cpu.resize(1);
    model_.task_exited.resize(1);
    model_.context.resize(1);
    tids_.resize(1);
    played_.clear();
    fds_.clear();
  }
  [[nodiscard]] size_t steps_of_each(int kind) { return did_[kind]; }
  enum { kOpen, kMap, kMapAux, kWrite, kTrace, kInherit, kExit, kKinds };
  size_t did_[kKinds] = {};

 private:
  bool one_in(unsigned n) { return random_() % n == 0; }
  // An event that fits, or -1.
  template <class Fits>
  int pick(Fits&& fits) {
    std::vector<int> fitting;
    for (size_t e = 0; e < model_.events.size(); ++e) {
      if (model_.events[e].state != ModelState::kDead && fits(static_cast<int>(e))) {
        fitting.push_back(static_cast<int>(e));
      }
    }
    return fitting.empty() ? -1 : fitting[random_() % fitting.size()];
  }
  size_t live_task() {
    std::vector<size_t> alive;
    for (size_t task = 0; task < tids_.size(); ++task) {
      if (!model_.task_exited[task]) alive.push_back(task);
    }
    return alive[random_() % alive.size()];
  }
  bool has_descriptor(int e) const { return model_.events[e].descriptors != 0; }

  void open() {
    const size_t alive = static_cast<size_t>(
        std::count_if(model_.events.begin(), model_.events.end(),
                      [](const ModelEvent& event) { return event.state != ModelState::kDead; }));
    if (alive >= kMaxEvents) return close();
    ModelEvent what;
    what.task = static_cast<int>(live_task());
    int leader = -1;
    if (!one_in(3)) {
      leader = pick([this](int e) {
        const ModelEvent& event = model_.events[e];
        return has_descriptor(e) && event.leader == e && event.state != ModelState::kExit;
      });
    }
    if (leader >= 0) {
      what.task = model_.events[leader].task;
      what.cpu = model_.events[leader].cpu;
      what.inherit = model_.events[leader].inherit;
      const ModelBuffer* const area = model_.buffer_of(leader);
      const bool may_sample = model_.events[leader].tracer &&
                              (area == nullptr || area->aux_bytes == 0 || area->aux_overwrite);
      if (may_sample && !one_in(4)) what.aux_bytes = 8 * (1 + random_() % 2000);
    } else {
      what.tracer = one_in(2);
      what.cpu = one_in(2) ? static_cast<int>(random_() % 2) : -1;
      what.inherit = one_in(2);
    }
    what.state = one_in(3) ? ModelState::kOff : ModelState::kInactive;

    perf_event_attr attr =
        what.tracer ? tracer(101) : sampler(static_cast<uint32_t>(what.aux_bytes));
    attr.sample_type = PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_AUX;
    attr.inherit = what.inherit ? 1 : 0;
    attr.disabled = what.state == ModelState::kOff ? 1 : 0;
    const int fd =
        opened(attr, leader >= 0 ? fds_[leader] : -1, what.cpu, static_cast<int>(tids_[what.task]));
    const int e = model_.open(what, leader);
    fds_[e] = fd;
    played_[e] = &event(fd);
    ++did_[kOpen];
  }
  void close() {
    const int e = pick([this](int other) { return has_descriptor(other); });
    if (e >= 0) close(e);
  }
  void close(int e) {
    ASSERT_EQ(kernel.close(tid, fds_[e]), 0);
    model_.close(e);
  }

  const Area* data_area(int buffer) const {
    for (const Area& area : areas_) {
      if (!area.is_aux && model_.events[area.event].buffer == buffer) return &area;
    }
    return nullptr;
  }
  void map_data() {
    const int e = pick([this](int other) {
      const ModelEvent& event = model_.events[other];
      const bool own = event.buffer < 0 || event.mappings != 0;
      return has_descriptor(other) && own && (event.cpu >= 0 || !event.inherit);
    });
    if (e < 0) return;
    Area area{e, false, !one_in(3), 0, uint64_t{1} << (random_() % 3)};
    const int buffer = model_.events[e].buffer;
    if (buffer >= 0) {
      // Only a mapping of its own tells the model which buffer it is.
      if (data_area(buffer) == nullptr) return;
      area.pages = model_.buffers[buffer].bytes / kPage;
    }
    if (one_in(10) && buffer < 0) area.pages = 0;
    area.address = map(fds_[e], area.pages + 1, area.writable ? kReadWrite : PROT_READ);
    ASSERT_GT(area.address, 0);
    model_.map_data(e, area.pages, area.writable);
    areas_.push_back(area);
    ++did_[kMap];
  }
  void map_aux() {
    const int e = pick([this](int other) {
      const ModelEvent& event = model_.events[other];
      return has_descriptor(other) && event.tracer && event.buffer >= 0 &&
             (event.cpu >= 0 || !event.inherit);
    });
    if (e < 0) return;
    const int buffer = model_.events[e].buffer;
    const Area* const data = data_area(buffer);
    if (data == nullptr) return;
    ModelBuffer& state = model_.buffers[buffer];
    Area area{e, true, one_in(2), 0, uint64_t{1} << (random_() % 3)};
    if (state.aux_bytes != 0) {
      area.pages = state.aux_bytes / kPage;
    } else {
      for (size_t other = 0; other < model_.events.size(); ++other) {
        const bool writes_here = model_.events[other].buffer == buffer;
        if (writes_here && model_.is_sampled(static_cast<int>(other))) area.writable = false;
      }
      played_[e]->buffer->control().aux_offset = state.bytes + kPage;
      played_[e]->buffer->control().aux_size = area.pages * kPage;
      played_[e]->buffer->control().aux_tail = state.aux_tail = 0;
    }
    area.address =
        map(fds_[e], area.pages, area.writable ? kReadWrite : PROT_READ, state.bytes / kPage + 1);
    ASSERT_GT(area.address, 0);
    model_.map_aux(e, area.pages, area.writable);
    areas_.push_back(area);
    ++did_[kMapAux];
  }
  void unmap() {
    if (areas_.empty()) return;
    const size_t number = random_() % areas_.size();
    const Area area = areas_[number];
    areas_.erase(areas_.begin() + static_cast<long>(number));
    ASSERT_EQ(KernelTest::unmap(area.address, area.is_aux ? area.pages : area.pages + 1), 0);
    model_.unmap(area.event, area.is_aux);
  }

  void enable_or_disable() {
    const int e = pick([this](int other) { return has_descriptor(other); });
    if (e < 0) return;
    if (one_in(3)) {
      KernelTest::disable(fds_[e]);
      model_.disable(e);
    } else {
      KernelTest::enable(fds_[e]);
      model_.enable(e);
    }
  }
  void set_output() {
    const int e = pick(
        [this](int other) { return has_descriptor(other) && model_.events[other].mappings == 0; });
    if (e < 0) return;
    const ModelEvent& event = model_.events[e];
    const int to = pick([&](int other) {
      const ModelEvent& output = model_.events[other];
      const bool same_place =
          output.cpu == event.cpu && (event.cpu >= 0 || output.task == event.task);
      if (other == e || !has_descriptor(other) || output.buffer < 0 || !same_place) return false;
      const ModelBuffer& buffer = model_.buffers[output.buffer];
      const bool in_normal_mode = buffer.aux_bytes != 0 && !buffer.aux_overwrite;
      return !in_normal_mode || !model_.is_sampled(e);
    });
    const int target = one_in(4) ? -1 : to;
    ASSERT_EQ(ioctl(fds_[e], PERF_EVENT_IOC_SET_OUTPUT,
                    static_cast<uint64_t>(target >= 0 ? fds_[target] : -1)),
              0);
    model_.set_output(e, target);
  }
  void pause_output() {
    const int e = pick([this](int other) {
      const int buffer = model_.events[other].buffer;
      return has_descriptor(other) && buffer >= 0 && model_.buffers[buffer].bytes != 0;
    });
    if (e < 0) return;
    const bool pause = one_in(3);
    ASSERT_EQ(ioctl(fds_[e], PERF_EVENT_IOC_PAUSE_OUTPUT, pause ? 1 : 0), 0);
    model_.buffers[model_.events[e].buffer].paused = pause;
  }

  void clone() {
    const size_t parent = live_task();
    const auto alive = std::count(model_.task_exited.begin(), model_.task_exited.end(), false);
    if (alive >= kMaxTasks || model_.events.size() > 300) return;
    const long child = kernel.clone(tids_[parent], true);
    ASSERT_GT(child, 0);
    tids_.push_back(static_cast<Tid>(child));
    const int number = model_.add_task();
    for (const auto& [copy, original] : model_.clone(static_cast<int>(parent), number)) {
      played_[copy] = kernel.inherited(*played_[original], static_cast<Tid>(child));
      ASSERT_NE(played_[copy], nullptr);
      ++did_[kInherit];
    }
  }
  void exit() {
    const size_t task = live_task();
    if (task != 0) exit(task);  // the first one makes the calls
  }
  void exit(size_t task) {
    if (model_.task_exited[task]) return;
    kernel.exit(tids_[task]);
    kernel.reap(tids_[task]);
    model_.exit(static_cast<int>(task));
    ++did_[kExit];
  }
  void run_task() {
    const size_t task = live_task();
    if (one_in(4)) {
      kernel.stop_running(tids_[task]);
      model_.stop(static_cast<int>(task));
    } else {
      const int cpu = static_cast<int>(random_() % 2);
      kernel.run(tids_[task], cpu);
      model_.run(static_cast<int>(task), cpu);
    }
  }

  void poll() {
    const int e = pick([this](int other) { return has_descriptor(other); });
    if (e < 0) return;
    ModelEvent& event = model_.events[e];
    short expected = POLLHUP;
    const bool gone = event.state == ModelState::kExit && model_.children_of(e).empty();
    if (!gone && event.buffer >= 0) {
      ModelBuffer& buffer = model_.buffers[event.buffer];
      expected = buffer.poll ? POLLIN : short{0};
      buffer.poll = false;
    }
    ASSERT_EQ(kernel.poll(tid, fds_[e]), expected);
  }
  // The reader goes on, in the data ring or in the AUX area.
  void consume() {
    if (areas_.empty()) return;
    const Area& area = areas_[random_() % areas_.size()];
    ModelBuffer& buffer = model_.buffers[model_.events[area.event].buffer];
    perf_event_mmap_page& control = played_[area.event]->buffer->control();
    if (area.is_aux) {
      control.aux_tail = buffer.aux_tail = buffer.aux_written;
    } else {
      control.data_tail = buffer.tail = buffer.head;
    }
  }
  void trace() {
    const int e = pick([this](int other) {
      return model_.events[other].tracer && model_.events[other].state == ModelState::kActive;
    });
    if (e < 0) return;
    const uint64_t bytes = random_() % (one_in(8) ? 20000 : 3000);
    units.trace(*played_[e], bytes);
    model_.trace(e, bytes);
    ++did_[kTrace];
  }
  void interrupt() {
    const int e = pick([this](int other) {
      return model_.events[other].tracer && model_.events[other].state == ModelState::kActive;
    });
    if (e < 0 || !model_.events[e].transaction) return;
    units.interrupt(*played_[e]);
    kernel.run_pending();
    model_.interrupt(e);
  }
  void overflow() {
    const int e = pick([this](int other) {
      return !model_.events[other].tracer && model_.events[other].state == ModelState::kActive;
    });
    if (e < 0) return;
    ++played_[e]->count;
    (void)kernel.overflow(*played_[e]);
    model_.overflow(e);
    ++did_[kWrite];
  }

  void check_event(int e) {
    const ModelEvent& expected = model_.events[e];
    if (expected.state == ModelState::kDead) return;
    const PerfEvent& actual = *played_[e];
    static const std::map<ModelState, EventState> kStates = {
        {ModelState::kExit, EventState::kExit},
        {ModelState::kError, EventState::kError},
        {ModelState::kOff, EventState::kOff},
        {ModelState::kInactive, EventState::kInactive},
        {ModelState::kActive, EventState::kActive}};
    ASSERT_EQ(actual.state, kStates.at(expected.state)) << "event " << e;
    ASSERT_EQ(actual.refcount.load(), model_.references(e)) << "event " << e;
    ASSERT_EQ(actual.count, expected.count);
    ASSERT_EQ(actual.oncpu, expected.state == ModelState::kActive ? tids_[expected.task] : 0);
    ASSERT_EQ(actual.aux_event, expected.aux_leader >= 0 ? played_[expected.aux_leader] : nullptr);
    ASSERT_EQ(actual.group_leader, expected.leader != e ? played_[expected.leader] : nullptr);
    ASSERT_EQ(actual.buffer != nullptr, expected.buffer >= 0) << "event " << e;
    if (expected.buffer >= 0 && expected.mappings == 0) {
      const Area* const owner = data_area(expected.buffer);
      if (owner != nullptr) {
        ASSERT_EQ(actual.buffer, played_[owner->event]->buffer);
      }
    }
    if (expected.tracer) {
      ASSERT_EQ(unit_of(actual).output.is_open(), expected.transaction) << "event " << e;
    }
  }
  void check_buffer(const Area& area) {
    const ModelBuffer& expected = model_.buffers[model_.events[area.event].buffer];
    Buffer& actual = *played_[area.event]->buffer;
    const perf_event_mmap_page& control = page(area.address);
    ASSERT_EQ(control.data_head, expected.head);
    ASSERT_EQ(actual.ring().lost_pending(), expected.lost);
    ASSERT_EQ(actual.ring().poll_pending(), expected.poll);
    ASSERT_EQ(actual.mmap_count, static_cast<uint32_t>(expected.mappings));
    ASSERT_EQ(actual.has_aux(), expected.aux_bytes != 0);
    if (expected.aux_bytes == 0) return;
    ASSERT_EQ(actual.aux().written(), expected.aux_written);
    ASSERT_EQ(actual.aux().in_transaction(), expected.aux_busy);
    if (!expected.aux_busy) {
      ASSERT_EQ(control.aux_head, expected.aux_overwrite ? expected.aux_written % expected.aux_bytes
                                                         : expected.aux_written);
    }
  }

  using EventState = event::EventState;
  std::mt19937_64 random_;
  Model model_;
  std::vector<Tid> tids_;
  std::map<int, int> fds_;
  std::map<int, PerfEvent*> played_;
  std::vector<Area> areas_;
};

constexpr int kRounds = 1000;
constexpr int kStepsPerRound = 250;

TEST_P(ModelTest, AQuarterOfAMillionSteps) {
  for (int round = 0; round < kRounds; ++round) {
    for (int i = 0; i < kStepsPerRound; ++i) {
      step();
      check();
      ASSERT_FALSE(HasFatalFailure()) << "round " << round << " step " << i;
    }
    finish();
    ASSERT_FALSE(HasFailure()) << "round " << round;
  }
  // The programs did something of everything.
  for (int kind = 0; kind < kKinds; ++kind) EXPECT_GT(steps_of_each(kind), 1000U) << kind;
}

INSTANTIATE_TEST_SUITE_P(Seeds, ModelTest, ::testing::Values(1, 2, 3, 4));

}  // namespace
}  // namespace auxtrail::perf_event::testing
