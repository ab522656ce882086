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

// A sampler of page faults must not see the log's.
void touch(uint64_t from, uint64_t to) {
  constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE, of Linux 5.14
  const uint64_t start = sys::page_down(from);
  (void)sys::call(SYS_madvise, static_cast<long>(start),
                  static_cast<long>(sys::page_up(to) - start), kPopulateWrite);
  for (uint64_t at = start; at < to; at += channel::kPageBytes) {
    *reinterpret_cast<volatile char*>(at) = 0;
  }
}

// All sessions of a process have logs of the same size.
bool map_places(DeferredLogs& logs, const DeferredSize& size) {
  const void* const memory = sys::reserve<char>((size.places + size_t{2}) * kLogAlignment);
  if (memory == nullptr) return false;
  const auto start = reinterpret_cast<uint64_t>(memory);
  logs.memory = (start + kLogAlignment - 1) & ~(uint64_t{kLogAlignment} - 1);
  logs.places = size.places;
  for (uint32_t i = 0; i < logs.places; ++i) {
    const uint64_t end = end_of_place(logs, i);
    touch(end - size.units * sizeof(LogEntry), end + kLogOverrunBytes);
  }
  return true;
}

// The entry that follows the oldest log's, or null.
const LogEntry* entry_after_oldest(const Thread& thread, uint64_t current_start) {
  const DeferredLogs& logs = thread.deferred;
  if (logs.count > 1) return entry_at(logs.logs[next_place(logs, logs.oldest)].start);
  return current_start < tls_block.log ? entry_at(current_start) : nullptr;
}

// Where the program was when it began what an entry stands for.
uint64_t start_pc(const LogEntry* entry) {
  return code_cache.block_of_exit(LogWord(*entry).number()).pc;
}

// A log's packets, in pieces that the AUX area surely has room for.
void write_log(Thread& thread, const DeferredLogs::Log& log, const LogEntry* next) {
  const uint64_t piece = window_config.stretch_units * sizeof(LogEntry);
  thread.log_start = log.start;
  while (thread.log_start < log.end) {
    const uint64_t left = log.end - thread.log_start;
    drain(thread, thread.log_start + (left < piece ? left : piece), 0);
    const LogEntry* const following =
        thread.log_start < log.end ? entry_at(thread.log_start) : next;
    const bool has_psb = following != nullptr && psb_is_due(thread);
    if (has_psb) write_psb(thread, start_pc(following));
    commit(thread);
  }
}

}  // namespace

void defer_packets(Thread& thread, const DeferredSize& size) {
  DeferredLogs& logs = thread.deferred;
  logs.active = size.places != 0 && (logs.memory != 0 || map_places(logs, size));
  if (logs.active) thread.log_units = size.units;
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
  learn(thread, entry, entry_at(tls_block.log), learning_weight(thread));
  const uint32_t current = (logs.oldest + logs.count) % logs.places;
  logs.logs[current] = {thread.log_start, tls_block.log, now_ns()};
  ++logs.count;
  if (logs.count == logs.places) forget_oldest(logs);
  thread.log_end = end_of_place(logs, next_place(logs, current));
  start_log(thread, thread.log_units);
}

void catch_up(Thread& thread) {
  DeferredLogs& logs = thread.deferred;
  const uint64_t current_start = thread.log_start;
  while (logs.count != 0 && code_changed(thread)) forget_oldest(logs);
  if (logs.forgot) {
    const auto* const first = logs.count != 0 ? entry_at(logs.logs[logs.oldest].start)
                                              : entry_after_oldest(thread, current_start);
    begin_history(thread, first != nullptr ? start_pc(first) : 0);
    logs.forgot = false;
  }
  for (; logs.count != 0; --logs.count, logs.oldest = next_place(logs, logs.oldest)) {
    const DeferredLogs::Log& log = logs.logs[logs.oldest];
    logs.now_ns = log.end_ns;
    write_log(thread, log, entry_after_oldest(thread, current_start));
  }
  logs.now_ns = 0;
  thread.log_start = current_start;
}

}  // namespace auxtrail::unit
