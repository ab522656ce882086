// Ways to end a process in good order: return from main, exit from a thread, quick_exit,
// pthread_exit of the main thread while others go on, _exit from a nested thread. What runs at the
// end runs in its order and once.
#include <pthread.h>
#include <sys/wait.h>

#include <thread>

#include "check.h"

namespace {

void Say(const char* text) {
  if (write(STDOUT_FILENO, text, std::strlen(text)) < 0) _exit(9);
}

struct Global {
  const char* name;
  ~Global() { Say(name); }
};
Global g_first{"global 1 destroyed\n"};
Global g_second{"global 2 destroyed\n"};
thread_local Global t_local{"thread-local destroyed\n"};

__attribute__((destructor)) void Last() { Say("destructor function\n"); }

void Touch() { check::Keep(reinterpret_cast<uintptr_t>(t_local.name)); }

void Return() {
  Touch();
  std::atexit([] { Say("atexit 1\n"); });
  std::atexit([] {
    check::Keep(check::Burn(5, 5000000));
    Say("atexit 2\n");
  });
}

void FromThread() {
  std::atexit([] { Say("atexit\n"); });
  std::thread([] {
    Touch();
    check::Keep(check::Burn(1, 5000000));
    std::exit(21);
  }).join();
}

void Quick() {
  std::at_quick_exit([] { Say("at_quick_exit\n"); });
  std::atexit([] { Say("never\n"); });
  check::Keep(check::Burn(1, 5000000));
  std::quick_exit(22);
}

void MainThreadFirst() {
  std::thread([] {
    usleep(30000);
    check::Keep(check::Burn(1, 5000000));
    Say("the last thread\n");
    std::exit(23);
  }).detach();
  Touch();
  pthread_exit(nullptr);
}

void AtOnce() {
  std::thread([] {
    std::thread([] {
      check::Keep(check::Burn(1, 5000000));
      _exit(24);
    }).join();
  }).join();
}

void OtherThreadsRun() {
  for (int i = 0; i < 4; ++i) {
    std::thread([] {
      for (uint64_t k = 0;; ++k) check::Keep(check::Burn(k, 1000));
    }).detach();
  }
  check::Keep(check::Burn(1, 5000000));
  std::exit(25);
}

}  // namespace

int main() {
  void (*const kWays[])() = {Return, FromThread, Quick, MainThreadFirst, AtOnce, OtherThreadsRun};
  for (int repeat = 0; repeat < 4; ++repeat) {
    for (auto way : kWays) {
      const pid_t child = fork();
      CHECK(child >= 0);
      if (child == 0) {
        way();
        return 20;
      }
      int status = 0;
      CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
      const int code = WEXITSTATUS(status);
      char line[32];
      std::snprintf(line, sizeof line, "status %d\n", code);
      Say(line);
    }
  }
  return 0;
}
