// See deferred_log.h. Compiled without vector registers.
#include "unit/deferred_log.h"

#include <sys/mman.h>

#include "unit/branch_log.h"
#include "unit/clock.h"
#include "unit/code_cache.h"
#include "unit/sys.h"
#include "unit/thread_state.h"
#include "unit/trace_output.h"
#include "unit/window.h"

namespace auxtrail::unit {

namespace {

const LogEntry* entry_at(uint64_t position) { return reinterpret_cast<const LogEntry*>(position); }

uint64_t end_of_place(const DeferredLogs& logs, uint32_t place) {
  return logs.memory + (place + uint64_t{1}) * kLogAlignment;
}

uint32_t next_place(const DeferredLogs& logs, uint32_t place) {
  return place + 1 == logs.places ? 0 : place + 1;
}

void forget_oldest(DeferredLogs& logs) {
  logs.oldest = next_place(logs, logs.oldest);
  --logs.count;
  logs.forgot = true;
}

// All sessions of a process have logs of the same size.
bool map_places(DeferredLogs& logs, const DeferredSize& size) {
  const void* const memory = sys::reserve<char>((size.places + size_t{2}) * kLogAlignment);
  if (memory == nullptr) return false;
  const auto start = reinterpret_cast<uint64_t>(memory);
  logs.memory = (start + kLogAlignment - 1) & ~(uint64_t{kLogAlignment} - 1);
  return true;
}

// The first entry that is not in packets yet, or null.
const LogEntry* next_entry(const Thread& thread) {
  const DeferredLogs& logs = thread.deferred;
  if (logs.count != 0) return entry_at(logs.logs[logs.oldest].start);
  return thread.log_start < tls_block.log ? entry_at(thread.log_start) : nullptr;
}

// Where the program was when it began what an entry stands for.
uint64_t start_pc(const LogEntry* entry) {
  return code_cache.block_of_exit(LogWord(*entry).number()).pc;
}

// The packets of a log, in pieces that the AUX area surely has room for. What is next comes behind
// it, or nothing.
void write_log(Thread& thread, const LogEntry* entry, const LogEntry* end, const LogEntry* next,
               uint32_t weight) {
  while (entry < end) {
    const LogEntry* const limit = entry + window_config.stretch_units;
    entry = write_packets(thread, entry, limit < end ? limit : end, weight);
    const LogEntry* const following = entry < end ? entry : next;
    if (following != nullptr && psb_is_due(thread)) write_psb(thread, start_pc(following));
    commit(thread);
  }
}

void write_oldest(Thread& thread) {
  DeferredLogs& logs = thread.deferred;
  const DeferredLogs::Log log = logs.logs[logs.oldest];
  logs.oldest = next_place(logs, logs.oldest);
  --logs.count;
  logs.now_ns = log.end_ns;
  write_log(thread, entry_at(log.start), entry_at(log.end), next_entry(thread), 0);
  logs.now_ns = 0;
}

void write_current(Thread& thread) {
  const LogEntry* const entry = entry_at(thread.log_start);
  thread.log_start = tls_block.log;
  write_log(thread, entry, entry_at(tls_block.log), nullptr, next_learning_weight(thread));
}

// Nothing of what is logged can be decoded: some code that it leads through is gone.
void forget_all(Thread& thread) {
  DeferredLogs& logs = thread.deferred;
  logs.count = 0;
  logs.forgot = false;
  thread.log_start = tls_block.log;
  begin_history(thread, 0);
}

}  // namespace

void defer_packets(Thread& thread, const DeferredSize& size) {
  DeferredLogs& logs = thread.deferred;
  logs.active = size.places != 0 && (logs.memory != 0 || map_places(logs, size));
  logs.places = size.places;
  if (!logs.active) return;
  thread.log_units = size.units;
  // A child has its parent's pages, and its first store to each would be a page fault.
  for (uint32_t i = 0; i < logs.places; ++i) {
    const uint64_t end = end_of_place(logs, i);
    sys::touch(end - size.units * sizeof(LogEntry), end + kLogOverrunBytes);
  }
  drop_deferred(thread);
}

bool has_deferred(const Thread& thread) {
  return thread.deferred.count != 0 || thread.deferred.forgot;
}

void drop_deferred(Thread& thread) {
  DeferredLogs& logs = thread.deferred;
  if (!logs.active) return;
  logs.oldest = 0;
  logs.count = 0;
  logs.forgot = false;
  logs.now_ns = 0;
  thread.log_end = end_of_place(logs, 0);
}

void set_aside(Thread& thread) {
  DeferredLogs& logs = thread.deferred;
  const auto* const entry = entry_at(thread.log_start);
  learn(thread, entry, entry_at(tls_block.log), next_learning_weight(thread));
  const uint64_t now = now_ns();
  const uint32_t current = (logs.oldest + logs.count) % logs.places;
  if (code_changed(thread)) {  // and this log may have begun before
    note_code_change(thread);
    logs.oldest = current;
    logs.count = 0;
    logs.forgot = true;
  } else {
    logs.logs[current] = {thread.log_start, tls_block.log, logs.last_ns, now};
    ++logs.count;
    if (logs.count == logs.places) forget_oldest(logs);
    thread.log_end = end_of_place(logs, next_place(logs, current));
  }
  logs.last_ns = now;
  start_log(thread, thread.log_units);
}

void catch_up(Thread& thread) {
  DeferredLogs& logs = thread.deferred;
  if (code_changed(thread)) return forget_all(thread);
  if (logs.forgot) {
    const LogEntry* const first = next_entry(thread);
    if (logs.count != 0) logs.now_ns = logs.logs[logs.oldest].begin_ns;
    begin_history(thread, first != nullptr ? start_pc(first) : 0);
    logs.forgot = false;
  }
  logs.now_ns = 0;
  const uint32_t changes = thread.code_changes;
  while (logs.count != 0) {
    write_oldest(thread);
    // Another thread's doing; commit() has noticed.
    if (thread.code_changes != changes) return forget_all(thread);
  }
  write_current(thread);
}

}  // namespace auxtrail::unit
