// Threads created and ended by the thousand: joined, detached, ended by return and by pthread_exit,
// with thread-local destructors and keys. Per-thread state of a tracer must neither leak nor
// outlive its thread.
#include <pthread.h>
#include <semaphore.h>

#include <atomic>

#include "check.h"

namespace {

std::atomic<uint64_t> g_destroyed{0};
std::atomic<uint64_t> g_sum{0};
pthread_key_t g_key;
sem_t g_ended;

struct Local {
  uint64_t value = 1;
  ~Local() { g_destroyed += value; }
};
thread_local Local t_local;

void* Work(void* argument) {
  const auto index = reinterpret_cast<uintptr_t>(argument);
  t_local.value = 2;
  CHECK(pthread_setspecific(g_key, argument) == 0);
  g_sum += check::Burn(index, 20000) & 0xffff;
  if (index % 2 == 0) pthread_exit(argument);
  return argument;
}

void* WorkDetached(void* argument) {
  Work(argument);
  return nullptr;
}

void KeyDestructor(void*) { sem_post(&g_ended); }

}  // namespace

int main() {
  constexpr uintptr_t kJoined = 4000;
  constexpr uintptr_t kDetached = 1000;
  CHECK(pthread_key_create(&g_key, KeyDestructor) == 0);
  CHECK(sem_init(&g_ended, 0, 0) == 0);
  for (uintptr_t i = 1; i <= kJoined; i += 4) {
    pthread_t threads[4];
    for (uintptr_t k = 0; k < 4; ++k) {
      CHECK(pthread_create(&threads[k], nullptr, Work, reinterpret_cast<void*>(i + k)) == 0);
    }
    for (uintptr_t k = 0; k < 4; ++k) {
      void* result = nullptr;
      CHECK(pthread_join(threads[k], &result) == 0);
      CHECK(result == reinterpret_cast<void*>(i + k));
    }
  }
  std::printf("joined: sum %llu, destroyed %llu\n", check::Llu(g_sum.load()),
              check::Llu(g_destroyed.load()));
  for (uintptr_t i = 0; i < kJoined; ++i) CHECK(sem_trywait(&g_ended) == 0);
  pthread_attr_t attributes;
  CHECK(pthread_attr_init(&attributes) == 0);
  CHECK(pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED) == 0);
  for (uintptr_t i = 1; i <= kDetached; ++i) {
    pthread_t thread;
    CHECK(pthread_create(&thread, &attributes, WorkDetached, reinterpret_cast<void*>(2 * i)) == 0);
    if (i % 8 == 0) {
      for (int k = 0; k < 8; ++k) CHECK(sem_wait(&g_ended) == 0);
    }
  }
  std::printf("detached: sum %llu\n", check::Llu(g_sum.load()));
  return 0;
}
