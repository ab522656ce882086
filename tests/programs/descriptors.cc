// What a program sees of its open files: the list in /proc/self/fd, the number that the next open
// returns, and that it may close everything (close_range, a loop over all numbers) and lower
// RLIMIT_NOFILE as daemons do. Nothing of a tracer's may show up there, and nothing of it may be
// needed there.
#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <set>
#include <string>

#include "check.h"

namespace {

void List(const char* when) {
  DIR* directory = opendir("/proc/self/fd");
  CHECK(directory != nullptr);
  std::set<int> found;
  while (const dirent* entry = readdir(directory)) {
    if (entry->d_name[0] == '.') continue;
    const int fd = std::atoi(entry->d_name);
    if (fd != dirfd(directory)) found.insert(fd);
  }
  closedir(directory);
  std::printf("%s:", when);
  for (int fd : found) std::printf(" %d", fd);
  std::printf("\n");
}

int NextFree() {
  const int fd = open("/dev/null", O_RDONLY);
  CHECK(fd >= 0);
  close(fd);
  return fd;
}

void Everything(const char* name) {
  List(name);
  std::printf("%s: next %d\n", name, NextFree());
  check::Keep(check::Burn(1, 20000000));
  List(name);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) {
    Everything(argv[1]);
    return 0;
  }
  Everything("start");
  std::fflush(stdout);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    Everything("forked");
    std::fflush(stdout);
    execl("/proc/self/exe", "descriptors", "executed", nullptr);
    _exit(1);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  for (int fd = 3; fd < 1024; ++fd) close(fd);
  CHECK(close_range(3, ~0U, 0) == 0);
  Everything("closed");
  rlimit limit{};
  CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  limit.rlim_cur = 8;
  CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
  Everything("limited");
  int last = 0;
  for (int fd = 0; (fd = dup(1)) >= 0;) last = fd;
  CHECK(errno == EMFILE);
  check::Keep(check::Burn(2, 20000000));
  std::printf("last of all: %d\n", last);
  return 0;
}
