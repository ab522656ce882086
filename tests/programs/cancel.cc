// Thread cancellation, deferred and asynchronous: cleanup handlers and destructors run once each,
// also when the cancelled thread is deep in a computation.
#include <pthread.h>

#include <atomic>

#include "check.h"

namespace {

std::atomic<int> g_cleaned{0}, g_destroyed{0}, g_started{0};

struct Guard {
  ~Guard() { ++g_destroyed; }
};

void Clean(void*) { ++g_cleaned; }

void* Deferred(void*) {
  pthread_cleanup_push(Clean, nullptr);
  Guard guard;
  ++g_started;
  for (uint64_t i = 0;; ++i) {
    check::Keep(check::Burn(i, 500));
    pthread_testcancel();
  }
  pthread_cleanup_pop(0);
  return nullptr;
}

void* Sleeping(void*) {
  pthread_cleanup_push(Clean, nullptr);
  Guard guard;
  ++g_started;
  while (true) usleep(100000);
  pthread_cleanup_pop(0);
  return nullptr;
}

// No call and no object in the loop: asynchronous cancellation is only safe in such code.
void* Asynchronous(void*) {
  pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, nullptr);
  ++g_started;
  volatile uint64_t counter = 0;
  while (true) counter = counter + 1;
  return nullptr;
}

void Round(void* (*body)(void*), uint64_t work) {
  const int before = g_started;
  pthread_t thread;
  CHECK(pthread_create(&thread, nullptr, body, nullptr) == 0);
  while (g_started == before) sched_yield();
  check::Keep(check::Burn(work, work * 1000));
  CHECK(pthread_cancel(thread) == 0);
  void* result = nullptr;
  CHECK(pthread_join(thread, &result) == 0);
  CHECK(result == PTHREAD_CANCELED);
}

}  // namespace

int main() {
  for (uint64_t i = 0; i < 200; ++i) {
    Round(Deferred, i);
    Round(Sleeping, i);
    Round(Asynchronous, i);
  }
  std::printf("started %d, cleaned %d, destroyed %d\n", g_started.load(), g_cleaned.load(),
              g_destroyed.load());
  return 0;
}
