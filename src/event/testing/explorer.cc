#include "event/testing/explorer.h"

#include <ucontext.h>

#include <cstring>
#include <memory>

namespace auxtrail::event::testing {
namespace {

Explorer* current_explorer = nullptr;

// One coroutine for each thread; the scheduler is the caller.
struct Coroutine {
  static constexpr size_t kStackBytes = 256 * 1024;
  ucontext_t context;
  std::unique_ptr<char[]> stack = std::make_unique<char[]>(kStackBytes);
  const std::function<void()>* body = nullptr;
  bool done = false;
};
Coroutine coroutines[kThreads];
ucontext_t scheduler;

void enter(int thread) {
  (*coroutines[thread].body)();
  coroutines[thread].done = true;
}

bool acquires(int order) { return order == __ATOMIC_ACQUIRE || order == __ATOMIC_SEQ_CST; }
bool releases(int order) { return order == __ATOMIC_RELEASE || order == __ATOMIC_SEQ_CST; }

}  // namespace

Explorer* Explorer::current() { return current_explorer; }

void Explorer::share(const void* begin, size_t size_bytes, std::string name) {
  const auto at = reinterpret_cast<uintptr_t>(begin);
  ranges_.push_back({at, at + size_bytes, std::move(name)});
}

void Explorer::Knowledge::join(const Knowledge& other) {
  for (int i = 0; i < kThreads; ++i) {
    if (clock[i] < other.clock[i]) clock[i] = other.clock[i];
  }
  if (seen.size() < other.seen.size()) seen.resize(other.seen.size());
  for (size_t i = 0; i < other.seen.size(); ++i) {
    if (seen[i] < other.seen[i]) seen[i] = other.seen[i];
  }
}

Exploration Explorer::explore(const std::function<void()>& prepare,
                              const std::function<void()> (&threads)[2],
                              const std::function<void()>& finish, uint64_t most_runs) {
  current_explorer = this;
  result_ = {};
  choices_.clear();
  do {
    prepare();
    run_once(threads);
    finish();
    ++result_.runs;
    result_.racy_runs += racy_;
    if (racy_ && weaken_.address != nullptr) break;
  } while (next_branch() && result_.runs < most_runs);
  current_explorer = nullptr;
  return result_;
}

void Explorer::run_once(const std::function<void()> (&threads)[2]) {
  at_ = 0;
  racy_ = false;
  atomics_.clear();
  bytes_.clear();
  for (const Range& range : ranges_) bytes_.emplace_back(range.end - range.begin);
  for (int i = 0; i < kThreads; ++i) {
    knowledge_[i] = {};
    knowledge_[i].clock[i] = 1;
    Coroutine& coroutine = coroutines[i];
    coroutine.body = &threads[i];
    coroutine.done = false;
    getcontext(&coroutine.context);
    coroutine.context.uc_stack.ss_sp = coroutine.stack.get();
    coroutine.context.uc_stack.ss_size = Coroutine::kStackBytes;
    coroutine.context.uc_link = &scheduler;
    makecontext(&coroutine.context, reinterpret_cast<void (*)()>(enter), 1, i);
  }
  running_ = true;
  while (!coroutines[0].done || !coroutines[1].done) {
    const bool both = !coroutines[0].done && !coroutines[1].done;
    thread_ = both ? static_cast<int>(choose(kThreads)) : coroutines[0].done ? 1 : 0;
    swapcontext(&scheduler, &coroutines[thread_].context);
  }
  running_ = false;
}

// Back to the scheduler, which may let the other thread go on first.
void Explorer::switch_point() { swapcontext(&coroutines[thread_].context, &scheduler); }

uint32_t Explorer::choose(uint32_t count) {
  if (count == 1) return 0;
  if (at_ == choices_.size()) choices_.push_back({0, count});
  return choices_[at_++].taken;
}

bool Explorer::next_branch() {
  while (!choices_.empty() && choices_.back().taken + 1 == choices_.back().count) {
    choices_.pop_back();
  }
  if (choices_.empty()) return false;
  ++choices_.back().taken;
  return true;
}

bool Explorer::is_shared(const void* address) const {
  const auto at = reinterpret_cast<uintptr_t>(address);
  for (const Range& range : ranges_) {
    if (at >= range.begin && at < range.end) return running_;
  }
  return false;
}

size_t Explorer::atomic_at(const void* address, uint64_t value) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  size_t index = 0;
  while (index < atomics_.size() && atomics_[index].address != at) ++index;
  if (index == atomics_.size()) atomics_.push_back({at, {Message{value, false, {}}}});
  for (Knowledge& knowledge : knowledge_) {
    if (knowledge.seen.size() <= index) knowledge.seen.resize(index + 1);
  }
  return index;
}

uint64_t Explorer::atomic_load(const void* address, uint64_t newest, int order) {
  switch_point();
  ++result_.atomic_accesses;
  const size_t index = atomic_at(address, newest);
  Knowledge& mine = knowledge_[thread_];
  const std::vector<Message>& messages = atomics_[index].messages;
  const size_t known = mine.seen[index];
  const auto back = choose(static_cast<uint32_t>(messages.size() - known));  // 0: the newest
  result_.stale_loads += back != 0;
  const size_t chosen = messages.size() - 1 - back;
  mine.seen[index] = chosen;
  const bool weak = weaken_.address == address && !weaken_.store;
  const Message& message = messages[chosen];
  if (acquires(order) && !weak && message.released) mine.join(message.knowledge);
  return message.value;
}

void Explorer::atomic_store(const void* address, uint64_t value, int order) {
  switch_point();
  ++result_.atomic_accesses;
  uint64_t before = 0;
  std::memcpy(&before, address, sizeof before);
  const size_t index = atomic_at(address, before);
  Knowledge& mine = knowledge_[thread_];
  mine.seen[index] = atomics_[index].messages.size();
  const bool weak = weaken_.address == address && weaken_.store;
  atomics_[index].messages.push_back({value, releases(order) && !weak, mine});
  ++mine.clock[thread_];
}

void Explorer::plain_access(const void* address, size_t size_bytes, bool write) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  const Knowledge& mine = knowledge_[thread_];
  const int other = 1 - thread_;
  for (size_t r = 0; r < ranges_.size(); ++r) {
    for (uintptr_t a = at; a < at + size_bytes; ++a) {
      if (a < ranges_[r].begin || a >= ranges_[r].end) continue;
      Byte& byte = bytes_[r][a - ranges_[r].begin];
      if (byte.writer == other && byte.write_clock > mine.clock[other]) {
        report(write ? "two writes" : "a read of what is being written", a);
      }
      if (!write) {
        byte.read_clock[thread_] = mine.clock[thread_];
        continue;
      }
      if (byte.read_clock[other] > mine.clock[other]) report("a write over what is being read", a);
      byte.writer = thread_;
      byte.write_clock = mine.clock[thread_];
    }
  }
}

void Explorer::report(const std::string& what, uintptr_t address) {
  racy_ = true;
  if (!result_.first_race.empty()) return;
  for (const Range& range : ranges_) {
    if (address < range.begin || address >= range.end) continue;
    result_.first_race = what + ": " + range.name + " + " + std::to_string(address - range.begin);
  }
}

}  // namespace auxtrail::event::testing
