// A reference model of the played kernel, for random programs of calls: what each event, ring and
// AUX area must be after each of them.
//
// It is made to be looked through, not to be fast or to be told wrong things: objects are numbers,
// nothing is counted that can be looked up, and it only takes calls that succeed. One kind of
// software event, with samples of a size that is easily told, and one kind of tracer that leads
// them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace auxtrail::perf_event::testing {

enum class ModelState { kDead, kExit, kError, kOff, kInactive, kActive };

struct ModelEvent {
  bool tracer = false;
  bool inherit = false;
  int task = -1;
  int cpu = -1;
  int parent = -1;
  int leader = -1;      // of its group; itself where it leads one
  int aux_leader = -1;  // whose AUX area its samples are cut from
  uint64_t aux_bytes = 0;
  ModelState state = ModelState::kOff;
  bool in_context = true;
  uint64_t count = 0;
  int buffer = -1;
  int descriptors = 0;
  int mappings = 0;
  bool transaction = false;
  bool truncated = false;
  uint64_t room = 0;     // at the beginning of the transaction
  uint64_t written = 0;  // in it
  bool disable_soon = false;
};

struct ModelBuffer {
  uint64_t bytes = 0;
  bool overwrite = false;
  bool paused = false;
  uint64_t head = 0;
  uint64_t tail = 0;
  uint64_t lost = 0;
  uint64_t wakeup = 0;
  bool poll = false;
  int mappings = 0;

  int aux_mappings = 0;
  uint64_t aux_bytes = 0;  // 0: no AUX area
  bool aux_overwrite = false;
  bool aux_closing = false;
  uint64_t aux_written = 0;
  uint64_t aux_tail = 0;
  uint64_t aux_wakeup = 0;
  bool aux_busy = false;
};

class Model {
 public:
  static constexpr uint64_t kPage = 4096;

  std::vector<ModelEvent> events;
  std::vector<ModelBuffer> buffers;
  std::vector<int> task_cpu;  // where it runs, -1: nowhere
  std::vector<bool> task_exited;
  std::vector<std::vector<int>> context;  // of each task: its events in the order they came

  int add_task() {
    task_cpu.push_back(-1);
    task_exited.push_back(false);
    context.emplace_back();
    return static_cast<int>(task_cpu.size()) - 1;
  }

  int open(const ModelEvent& what, int leader) {
    const int e = add(what, leader);
    events[e].descriptors = 1;
    if (what.aux_bytes != 0) events[e].aux_leader = leader;
    install(e);
    settle();
    return e;
  }
  void close(int e) {
    --events[e].descriptors;
    release_if_unused(e);
    settle();
  }
  void run(int task, int cpu) {
    for (size_t other = 0; other < task_cpu.size(); ++other) {
      if (task_cpu[other] == cpu && static_cast<int>(other) != task) stop(static_cast<int>(other));
    }
    if (task_cpu[task] == cpu) return;
    stop(task);
    task_cpu[task] = cpu;
    const std::vector<int> all = context[task];
    for (const int e : all) {
      if (events[e].leader == e) group_on(e);
    }
    settle();
  }
  void stop(int task) {
    if (task_cpu[task] < 0) return;
    for (const int e : context[task]) {
      if (events[e].leader == e) group_off(e);
    }
    settle();
    task_cpu[task] = -1;
  }
  // The new events, in pairs with their parents.
  std::vector<std::pair<int, int>> clone(int task, int child) {
    std::vector<std::pair<int, int>> inherited;
    const std::vector<int> all = context[task];
    for (const int leader : all) {
      if (events[leader].leader != leader || !events[leader].inherit) continue;
      const int copy = inherit(leader, -1, child, inherited);
      for (const int sibling : siblings_of(leader)) {
        const int sibling_copy = inherit(sibling, copy, child, inherited);
        if (events[sibling].aux_leader == leader) events[sibling_copy].aux_leader = copy;
      }
    }
    settle();
    return inherited;
  }
  void exit(int task) {
    stop(task);
    task_exited[task] = true;
    while (!context[task].empty()) {
      const int e = context[task].front();
      if (events[e].parent >= 0) {
        destroy(e);
      } else {
        off(e);
        leave_context(e);
        events[e].state = ModelState::kExit;
      }
    }
    settle();
  }
  void enable(int e) {
    for_family(e, [this](int member) {
      ModelEvent& event = events[member];
      if (event.state != ModelState::kOff && event.state != ModelState::kError) return;
      event.state = ModelState::kInactive;
      if (event.leader == member) {
        group_on(member);
      } else if (events[event.leader].state == ModelState::kActive) {
        on(member);
      }
    });
    settle();
  }
  void disable(int e) {
    for_family(e, [this](int member) { turn_off(member); });
    settle();
  }
  void map_data(int e, uint64_t pages, bool writable) {
    ModelEvent& event = events[e];
    if (event.buffer < 0) {
      buffers.push_back({.bytes = pages * kPage, .overwrite = !writable});
      attach(e, static_cast<int>(buffers.size()) - 1);
    }
    ++buffers[event.buffer].mappings;
    ++event.mappings;
    settle();
  }
  void map_aux(int e, uint64_t pages, bool writable) {
    ModelBuffer& buffer = buffers[events[e].buffer];
    if (buffer.aux_bytes == 0) {
      buffer.aux_bytes = pages * kPage;
      buffer.aux_overwrite = !writable;
      buffer.aux_closing = buffer.aux_busy = false;
      buffer.aux_written = buffer.aux_wakeup = 0;
    }
    ++buffer.aux_mappings;
    ++buffer.mappings;
    ++events[e].mappings;
  }
  void unmap(int e, bool is_aux) {
    const int b = events[e].buffer;
    if (is_aux && --buffers[b].aux_mappings == 0) {
      buffers[b].aux_closing = true;
      for (size_t other = 0; other < events.size(); ++other) {
        if (events[other].buffer != b) continue;
        end(static_cast<int>(other));
        for (const int child : children_of(static_cast<int>(other))) end(child);
      }
      buffers[b].aux_bytes = 0;
    }
    --buffers[b].mappings;
    if (--events[e].mappings == 0) attach(e, -1);
    if (buffers[b].mappings == 0) {
      for (size_t other = 0; other < events.size(); ++other) {
        if (events[other].buffer == b) attach(static_cast<int>(other), -1);
      }
    }
    release_if_unused(e);
    settle();
  }
  void set_output(int e, int to) {
    attach(e, to < 0 ? -1 : events[to].buffer);
    settle();
  }
  // A sample of an active software event.
  void overflow(int e) {
    ++events[e].count;
    if (buffer_of(e) != nullptr) write(*buffer_of(e), 24 + aux_bytes_of_sample(e));
    settle();
  }
  void trace(int e, uint64_t bytes) {
    ModelEvent& event = events[e];
    if (!event.transaction) return;
    ModelBuffer& buffer = *buffer_of(e);
    if (!buffer.aux_overwrite) {
      if (event.written + bytes > event.room) {
        bytes = event.room - event.written;
        event.truncated = true;
      }
    } else {
      buffer.aux_written += bytes;
    }
    event.written += bytes;
  }
  void interrupt(int e) {
    if (!events[e].transaction) return;
    end(e);
    begin(e);
    settle();
  }

  [[nodiscard]] uint64_t references(int e) const {
    uint64_t references = events[e].state == ModelState::kDead ? 0 : 1;
    for (const ModelEvent& other : events) {
      if (other.state == ModelState::kDead) continue;
      references += other.aux_leader == e ? 1 : 0;
      references += other.parent == e ? 1 : 0;
    }
    return references;
  }
  [[nodiscard]] ModelBuffer* buffer_of(int e) {
    const int b = events[primary(e)].buffer;
    return b >= 0 ? &buffers[b] : nullptr;
  }
  [[nodiscard]] std::vector<int> siblings_of(int leader) const {
    std::vector<int> siblings;
    for (size_t e = 0; e < events.size(); ++e) {
      const bool sibling = events[e].leader == leader && static_cast<int>(e) != leader;
      if (sibling && events[e].state != ModelState::kDead) siblings.push_back(static_cast<int>(e));
    }
    return siblings;
  }
  [[nodiscard]] std::vector<int> children_of(int parent) const {
    std::vector<int> children;
    for (size_t e = 0; e < events.size(); ++e) {
      const bool child = events[e].parent == parent && events[e].state != ModelState::kDead;
      if (child) children.push_back(static_cast<int>(e));
    }
    return children;
  }
  [[nodiscard]] bool is_sampled(int e) const {
    for (const ModelEvent& other : events) {
      if (other.state != ModelState::kDead && other.aux_leader == e) return true;
    }
    return false;
  }

 private:
  [[nodiscard]] int primary(int e) const { return events[e].parent >= 0 ? events[e].parent : e; }

  int add(ModelEvent what, int leader) {
    const int e = static_cast<int>(events.size());
    what.leader = leader >= 0 ? leader : e;
    events.push_back(what);
    return e;
  }
  void install(int e) {
    context[events[e].task].push_back(e);
    if (events[e].leader == e) {
      group_on(e);
    } else if (events[events[e].leader].state == ModelState::kActive) {
      on(e);
    }
  }
  void leave_context(int e) {
    std::erase(context[events[e].task], e);
    events[e].in_context = false;
  }
  int inherit(int e, int leader, int child, std::vector<std::pair<int, int>>& inherited) {
    const int parent = primary(e);
    ModelEvent copy = events[parent];
    copy.parent = parent;
    copy.task = child;
    copy.aux_leader = -1;
    copy.buffer = -1;
    copy.in_context = true;
    copy.count = 0;
    copy.descriptors = copy.mappings = 0;
    copy.transaction = copy.truncated = copy.disable_soon = false;
    copy.written = 0;
    copy.state =
        events[e].state >= ModelState::kInactive ? ModelState::kInactive : ModelState::kOff;
    const int added = add(copy, leader);
    install(added);
    inherited.emplace_back(added, parent);
    return added;
  }
  // Leaves the group and the links of AUX, then the world.
  void destroy(int e) {
    off(e);
    if (events[e].in_context) leave_context(e);
    events[e].state = ModelState::kDead;
    for (ModelEvent& sampler : events) {
      if (sampler.aux_leader != e || sampler.state == ModelState::kDead) continue;
      sampler.aux_leader = -1;
      off(static_cast<int>(&sampler - events.data()));
      sampler.state = std::min(sampler.state, ModelState::kError);
    }
    events[e].aux_leader = -1;
    for (const int sibling : siblings_of(e)) {
      events[sibling].leader = sibling;
      if (events[sibling].in_context) group_on(sibling);
    }
    events[e].leader = -1;
    for (const int child : children_of(e)) destroy(child);
    attach(e, -1);
  }
  void release_if_unused(int e) {
    if (events[e].descriptors == 0 && events[e].mappings == 0) destroy(e);
  }

  bool on(int e) {
    ModelEvent& event = events[e];
    const int cpu = task_cpu[event.task];
    if (event.state != ModelState::kInactive || cpu < 0) return true;
    if (event.cpu >= 0 && event.cpu != cpu) return true;
    if (event.tracer && !begin(e)) return false;
    event.state = ModelState::kActive;
    return true;
  }
  void off(int e) {
    if (events[e].state != ModelState::kActive) return;
    events[e].state = ModelState::kInactive;
    end(e);
  }
  void group_on(int leader) {
    if (!on(leader)) return;
    if (events[leader].state != ModelState::kActive) return;
    for (const int sibling : siblings_of(leader)) on(sibling);
  }
  void group_off(int leader) {
    for (const int sibling : siblings_of(leader)) off(sibling);
    off(leader);
  }
  void turn_off(int e) {
    if (events[e].state < ModelState::kInactive) return;
    if (events[e].leader == e) {
      group_off(e);
    } else {
      off(e);
    }
    events[e].state = ModelState::kOff;
  }
  // What was put off until it is safe.
  void settle() {
    for (size_t e = 0; e < events.size(); ++e) {
      if (!events[e].disable_soon || !events[e].in_context) continue;
      events[e].disable_soon = false;
      turn_off(static_cast<int>(e));
    }
  }
  template <class Visit>
  void for_family(int e, Visit&& visit) {
    visit(e);
    for (const int child : children_of(e)) visit(child);
  }

  void attach(int e, int buffer) {
    if (events[e].state == ModelState::kActive) end(e);
    events[e].buffer = buffer;
  }

  bool begin(int e) {
    ModelBuffer* const buffer = buffer_of(e);
    if (buffer == nullptr || buffer->aux_bytes == 0) return false;
    if (buffer->aux_closing || buffer->aux_busy) return false;
    if (!buffer->aux_overwrite && buffer->aux_written - buffer->aux_tail >= buffer->aux_bytes - 1) {
      events[e].disable_soon = true;
      buffer->poll = true;
      return false;
    }
    buffer->aux_busy = events[e].transaction = true;
    events[e].room = buffer->aux_bytes - 1 - (buffer->aux_written - buffer->aux_tail);
    events[e].truncated = false;
    events[e].written = 0;
    return true;
  }
  void end(int e) {
    ModelEvent& event = events[e];
    if (!event.transaction) return;
    ModelBuffer& buffer = *buffer_of(e);
    if (!buffer.aux_overwrite) buffer.aux_written += event.written;
    if (event.written != 0 || event.truncated) write(buffer, 32);
    const uint64_t watermark = buffer.aux_bytes / 2;
    if (!buffer.aux_overwrite && buffer.aux_written - buffer.aux_wakeup >= watermark) {
      buffer.aux_wakeup = buffer.aux_written / watermark * watermark;
      buffer.poll = true;
    }
    if (event.truncated) buffer.poll = event.disable_soon = true;
    buffer.aux_busy = event.transaction = false;
  }

  void write(ModelBuffer& buffer, uint64_t bytes) {
    if (buffer.bytes == 0) return;
    const uint64_t all = bytes + (buffer.lost != 0 ? 24 : 0);
    const bool full = !buffer.overwrite && buffer.head - buffer.tail + all > buffer.bytes - 1;
    if (buffer.paused || full) {
      ++buffer.lost;
      return;
    }
    buffer.lost = 0;
    buffer.head += all;
    if (buffer.head - buffer.wakeup > buffer.bytes / 2) {
      buffer.wakeup += buffer.bytes / 2;
      buffer.poll = true;
    }
  }
  [[nodiscard]] uint64_t aux_bytes_of_sample(int e) {
    const int leader = events[e].aux_leader;
    if (leader < 0 || events[leader].state != ModelState::kActive) return 0;
    const ModelBuffer* const area = buffer_of(leader);
    if (area == nullptr || area->aux_bytes == 0 || !area->aux_overwrite) return 0;
    return std::min(events[e].aux_bytes, area->aux_bytes);
  }
};

}  // namespace auxtrail::perf_event::testing
