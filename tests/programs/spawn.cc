// Children by vfork+exec, posix_spawn (with file actions, attributes, a missing program),
// fork+exec, system and popen, hundreds of them, while the parent computes. The parent's memory
// after vfork is what the child left.
//
// Usage: spawn            runs everything
//        spawn child N    is the child: computes a little and exits with N
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <string>

#include "check.h"

extern char** environ;

namespace {

const char* g_self = nullptr;

int Child(const char* code) {
  const int status = std::atoi(code);
  return check::Burn(static_cast<uint64_t>(status), 30000) != 0 ? status : 200;
}

int Wait(pid_t pid) {
  int status = 0;
  CHECK(waitpid(pid, &status, 0) == pid);
  CHECK(WIFEXITED(status));
  return WEXITSTATUS(status);
}

__attribute__((noinline)) int Vfork(const std::string& code, volatile int* shared) {
  char child_word[] = "child";
  char* const arguments[] = {const_cast<char*>(g_self), child_word, const_cast<char*>(code.c_str()),
                             nullptr};
  const pid_t pid = vfork();
  CHECK(pid >= 0);
  if (pid == 0) {
    *shared = *shared + 1;
    execve(g_self, arguments, environ);
    _exit(127);
  }
  return Wait(pid);
}

int VforkMissing() {
  char* const arguments[] = {const_cast<char*>("missing"), nullptr};
  const pid_t pid = vfork();
  CHECK(pid >= 0);
  if (pid == 0) {
    execve("/nonexistent/program", arguments, environ);
    _exit(errno == ENOENT ? 77 : 78);
  }
  return Wait(pid);
}

int Spawn(const std::string& code) {
  char child_word[] = "child";
  char* const arguments[] = {const_cast<char*>(g_self), child_word, const_cast<char*>(code.c_str()),
                             nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  sigset_t set;
  CHECK(posix_spawn_file_actions_init(&actions) == 0);
  CHECK(posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0) == 0);
  CHECK(posix_spawnattr_init(&attributes) == 0);
  sigfillset(&set);
  CHECK(posix_spawnattr_setsigdefault(&attributes, &set) == 0);
  sigemptyset(&set);
  CHECK(posix_spawnattr_setsigmask(&attributes, &set) == 0);
  CHECK(posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK) == 0);
  pid_t pid = 0;
  CHECK(posix_spawn(&pid, g_self, &actions, &attributes, arguments, environ) == 0);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  CHECK(posix_spawnp(&pid, "/nonexistent/program", nullptr, nullptr, arguments, environ) ==
            ENOENT ||
        pid == 0);
  return Wait(pid);
}

int Popen() {
  FILE* stream = popen("echo 17; exit 4", "r");
  CHECK(stream != nullptr);
  int number = 0;
  CHECK(std::fscanf(stream, "%d", &number) == 1);
  const int status = pclose(stream);
  CHECK(WIFEXITED(status));
  return number + WEXITSTATUS(status);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3) return Child(argv[2]);
  g_self = "/proc/self/exe";
  volatile int shared = 0;
  int sum = 0;
  uint64_t burnt = 0;
  for (int i = 0; i < 100; ++i) {
    const std::string code = std::to_string(i % 100);
    burnt += check::Burn(static_cast<uint64_t>(i), 300000);
    sum += Vfork(code, &shared);
    sum += Spawn(code);
    if (i % 10 == 0) sum += VforkMissing() + Popen() + WEXITSTATUS(std::system("exit 9"));
  }
  std::printf("sum %d, shared %d, burnt %016llx\n", sum, shared, check::Llu(burnt));
  return 0;
}
