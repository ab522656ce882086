// What a program knows about itself: process and thread ids in threads and forks, the number of its
// threads, its command line and name, its limits, its signal dispositions and mask, its robust list
// and parent. A tracer leaves all of it as it is.
#include <dirent.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <fstream>
#include <string>
#include <thread>

#include "check.h"

namespace {

int ThreadCount() {
  DIR* directory = opendir("/proc/self/task");
  CHECK(directory != nullptr);
  int count = 0;
  while (const dirent* entry = readdir(directory)) count += entry->d_name[0] != '.' ? 1 : 0;
  closedir(directory);
  return count;
}

std::string StatusField(const std::string& name) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(name + ":", 0) == 0) return line.substr(name.size() + 1);
  }
  return "";
}

void Print(const char* when) {
  char name[17] = {};
  CHECK(prctl(PR_GET_NAME, name) == 0);
  std::ifstream command("/proc/self/cmdline");
  std::string words;
  std::getline(command, words);
  std::printf("%s: name %s, command of %zu bytes, threads %d, blocked%s, ignored%s, pending%s\n",
              when, name, words.size(), ThreadCount(), StatusField("SigBlk").c_str(),
              StatusField("SigIgn").c_str(), StatusField("ShdPnd").c_str());
  for (int signal = 1; signal < 65; ++signal) {
    struct sigaction action {};
    if (sigaction(signal, nullptr, &action) != 0) continue;
    if (action.sa_handler != SIG_DFL)
      std::printf("  %d: %s\n", signal, action.sa_handler == SIG_IGN ? "ignored" : "handled");
  }
  for (auto resource : {RLIMIT_STACK, RLIMIT_NOFILE, RLIMIT_CORE}) {
    rlimit limit{};
    CHECK(getrlimit(resource, &limit) == 0);
    std::printf("  limit %d: %lld %lld\n", static_cast<int>(resource),
                static_cast<long long>(limit.rlim_cur), static_cast<long long>(limit.rlim_max));
  }
}

void CheckIds(pid_t expected) {
  CHECK(getpid() == expected && syscall(SYS_getpid) == expected);
  CHECK(syscall(SYS_gettid) == gettid());
  pid_t in_thread = 0, thread_id = 0;
  std::thread thread([&] {
    in_thread = getpid();
    thread_id = gettid();
    check::Keep(check::Burn(1, 200000));
    CHECK(gettid() == thread_id && syscall(SYS_gettid) == thread_id);
  });
  thread.join();
  CHECK(in_thread == expected && thread_id != expected && thread_id != gettid());
}

}  // namespace

int main() {
  CHECK(gettid() == getpid());
  Print("start");
  for (int i = 0; i < 100; ++i) {
    CheckIds(getpid());
    const pid_t parent = getpid();
    std::fflush(stdout);
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
      CHECK(getppid() == parent && gettid() == getpid() && getpid() != parent);
      CheckIds(getpid());
      _exit(ThreadCount());
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 1);
    CHECK(waitpid(-1, &status, WNOHANG) == -1 && errno == ECHILD);
  }
  check::Keep(check::Burn(2, 30000000));
  Print("end");
  return 0;
}
