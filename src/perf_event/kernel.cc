#include "perf_event/kernel.h"

#include <cerrno>

#include "event/overflow.h"
#include "perf_event/software_pmu.h"

namespace auxtrail::perf_event {

Kernel::Kernel(const Settings& settings) : settings_(settings) {
  for (uint32_t cpu = 0; cpu < settings_.cpus; ++cpu) {
    cpus_.push_back(std::make_unique<Cpu>(now_ns_));
    cpus_.back()->moment = {.pid = 0, .tid = kIdleTid | cpu, .cpu = cpu, .time_ns = 0};
    cpus_.back()->context.schedule_in(cpus_.back()->moment);
  }
  for (const event::Pmu* const pmu : kSoftwarePmus) add_pmu(*pmu);
}

Kernel::~Kernel() {
  std::vector<Tid> tids;
  for (const auto& [tid, task] : tasks_) tids.push_back(tid);
  for (const Tid tid : tids) exit(tid);
}

User& Kernel::add_user(const User& user) {
  users_.push_back(std::make_unique<User>(user));
  return *users_.back();
}

Tid Kernel::start_process(User& user) {
  const Tid pid = next_tid_++;
  auto& process = processes_[pid] = std::make_unique<Process>();
  process->pid = pid;
  process->user = &user;
  process->threads = 1;
  process->descriptors.resize(3);  // taken, as far as anybody here can see
  tasks_[pid] = std::make_unique<Task>(pid, *process, now_ns_);
  return pid;
}

Task* Kernel::find_task(Tid tid) {
  const auto found = tasks_.find(tid);
  return found != tasks_.end() ? found->second.get() : nullptr;
}

void Kernel::run(Tid tid, int cpu) {
  const Call call(*this);
  Task& task = task_of(tid);
  Cpu& place = *cpus_.at(static_cast<size_t>(cpu));
  if (task.exited || place.current == &task) return;
  stop_running(tid);
  if (place.current != nullptr) stop_running(place.current->tid);
  place.current = &task;
  task.cpu = cpu;
  place.moment.pid = task.process.pid;
  place.moment.tid = tid;
  place.context.change_thread();
  task.context.schedule_in(place.moment);
  run_pending();
}

void Kernel::stop_running(Tid tid) {
  const Call call(*this);
  Task& task = task_of(tid);
  if (task.cpu < 0) return;
  Cpu& place = *cpus_.at(static_cast<size_t>(task.cpu));
  task.context.schedule_out();
  task.context.run_pending();
  task.cpu = -1;
  place.current = nullptr;
  place.moment.pid = 0;
  place.moment.tid = kIdleTid | place.moment.cpu;
  place.context.change_thread();
}

void Kernel::advance(uint64_t ns) {
  now_ns_ += ns;
  for (const auto& cpu : cpus_) cpu->moment.time_ns = now_ns_;
}

void Kernel::fill_in(event::SampleData& data, const PerfEvent& event) const {
  const event::Moment* const moment = event.moment;
  if (moment == nullptr) return;
  data.pid = moment->pid;
  data.tid = moment->tid;
  data.cpu = moment->cpu;
  data.time_ns = moment->time_ns;
}

event::Outcome Kernel::overflow(PerfEvent& event, event::SampleData data) {
  const Call call(*this);
  fill_in(data, event);
  const event::Outcome outcome = event::event_overflow(event, data);
  run_pending();
  return outcome;
}

void Kernel::count(Tid tid, uint32_t type, uint64_t config, uint64_t number,
                   event::SampleData data) {
  const Call call(*this);
  Task& task = task_of(tid);
  if (task.cpu < 0) return;
  Cpu& place = *cpus_.at(static_cast<size_t>(task.cpu));
  for (const Context* const context : {&task.context, &place.context}) {
    const std::vector<PerfEvent*> events = context->events();
    for (PerfEvent* const event : events) {
      if (event->state != event::EventState::kActive || !is_counted(*event, type, config)) continue;
      fill_in(data, *event);
      count_software(*event, number, data);
    }
  }
  run_pending();
}

void Kernel::run_pending() {
  for (const auto& [tid, task] : tasks_) task->context.run_pending();
  for (const auto& cpu : cpus_) cpu->context.run_pending();
}

PerfEvent* Kernel::event_of(Tid caller, int fd) {
  File* const file = file_of(task_of(caller).process, fd);
  return file != nullptr ? file->event : nullptr;
}

PerfEvent* Kernel::inherited(const PerfEvent& parent, Tid tid) {
  for (PerfEvent* const child : parent.children) {
    if (child->task == tid) return child;
  }
  return nullptr;
}

event::AttrPolicy Kernel::policy_of(const User& user) const {
  return {.is_perfmon = user.is_perfmon,
          .may_trace_kernel = user.is_perfmon || settings_.paranoid <= 1,
          .max_sample_rate_hz = settings_.max_sample_rate_hz,
          .max_stack_frames = settings_.max_stack_frames};
}

File* Kernel::file_of(const Process& process, int fd) const {
  if (fd < 0 || static_cast<size_t>(fd) >= process.descriptors.size()) return nullptr;
  return process.descriptors[static_cast<size_t>(fd)];
}

int Kernel::free_descriptor(Process& process) const {
  constexpr size_t kFirst = 3;
  for (size_t fd = kFirst; fd < settings_.max_descriptors; ++fd) {
    if (fd == process.descriptors.size()) process.descriptors.push_back(nullptr);
    if (process.descriptors[fd] == nullptr) return static_cast<int>(fd);
  }
  return -EMFILE;
}

bool Kernel::nothing_left() const {
  if (!events_.empty() || !files_.empty() || !pmus_.all_free()) return false;
  for (const auto& user : users_) {
    if (user->locked_pages != 0) return false;
  }
  for (const auto& [pid, process] : processes_) {
    if (process->pinned_pages != 0 || !process->mappings.empty()) return false;
  }
  return true;
}

}  // namespace auxtrail::perf_event
