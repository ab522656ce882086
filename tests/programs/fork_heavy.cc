// A tree of forks: every process computes, forks on, and passes its result up in its exit status
// and through a shared mapping. Then forks by the hundred that end at once, and a chain in which
// each child outlives its parent.
#include <sys/mman.h>
#include <sys/wait.h>

#include <atomic>

#include "check.h"

namespace {

std::atomic<uint64_t>* g_shared = nullptr;

void Tree(int depth, uint64_t path) {
  *g_shared += check::Burn(path, 200000) & 0xffff;
  if (depth == 0) return;
  pid_t children[2];
  for (uint64_t i = 0; i < 2; ++i) {
    children[i] = fork();
    CHECK(children[i] >= 0);
    if (children[i] == 0) {
      Tree(depth - 1, path * 2 + i);
      _exit(depth);
    }
  }
  for (pid_t child : children) {
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == depth);
  }
}

int Many(int count) {
  int sum = 0;
  for (int i = 0; i < count; ++i) {
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) _exit(i % 50);
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    sum += WEXITSTATUS(status);
  }
  return sum;
}

// The last of the chain writes into the pipe; the reader sees the end of file when all are gone.
uint64_t Chain(int length) {
  int ends[2];
  CHECK(pipe(ends) == 0);
  const pid_t first = fork();
  CHECK(first >= 0);
  if (first == 0) {
    close(ends[0]);
    for (int i = 0; i < length; ++i) {
      const pid_t next = fork();
      CHECK(next >= 0);
      if (next != 0) _exit(0);
    }
    const uint64_t result = check::Burn(static_cast<uint64_t>(length), 1000000);
    CHECK(write(ends[1], &result, sizeof result) == sizeof result);
    _exit(0);
  }
  close(ends[1]);
  CHECK(waitpid(first, nullptr, 0) == first);
  uint64_t result = 0;
  CHECK(read(ends[0], &result, sizeof result) == sizeof result);
  char byte = 0;
  CHECK(read(ends[0], &byte, 1) == 0);
  close(ends[0]);
  return result;
}

}  // namespace

int main() {
  void* at = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(at != MAP_FAILED);
  g_shared = new (at) std::atomic<uint64_t>(0);
  Tree(7, 1);
  std::printf("tree %llu\n", check::Llu(g_shared->load()));
  std::fflush(stdout);
  std::printf("many %d\n", Many(400));
  std::printf("chain %016llx\n", check::Llu(Chain(20)));
  return 0;
}
