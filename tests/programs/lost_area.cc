// Memory that a tracer has mapped into the program is out of reach now and then: writes to it fault
// at any place. In continuous trace that is the AUX area, which is mapped twice in a row.
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <atomic>
#include <cinttypes>
#include <thread>
#include <vector>

#include "check.h"

namespace {

struct Mapping {
  uint64_t start;
  uint64_t end;
  uint64_t offset;
};

std::vector<Mapping> MappedTwice() {
  std::vector<Mapping> found;
  std::FILE* const maps = std::fopen("/proc/self/maps", "re");
  CHECK(maps != nullptr);
  char line[512];
  Mapping last{};
  while (std::fgets(line, sizeof line, maps) != nullptr) {
    Mapping mapping{};
    if (std::strstr(line, "/memfd:") == nullptr) continue;
    if (std::sscanf(line, "%" SCNx64 "-%" SCNx64 " %*s %" SCNx64, &mapping.start, &mapping.end,
                    &mapping.offset) != 3) {
      continue;
    }
    if (mapping.start == last.end && mapping.offset == last.offset) {
      found.push_back({last.start, mapping.end, last.offset});
    }
    last = mapping;
  }
  (void)std::fclose(maps);
  return found;
}

// Past whoever stands in front of libc.
void Protect(const Mapping& mapping, int protection) {
  long result = SYS_mprotect;
  asm volatile("syscall"
               : "+a"(result)
               : "D"(mapping.start), "S"(mapping.end - mapping.start), "d"(protection)
               : "rcx", "r11", "memory");
  CHECK(result == 0);
}

uint64_t Work() {
  uint64_t hash = 1469598103934665603;
  int ends[2];
  CHECK(pipe(ends) == 0);
  for (int round = 0; round < 400; ++round) {
    for (uint64_t i = 0; i < 4000; ++i) {
      hash = (hash ^ i) * 1099511628211;
      if ((hash >> 33 & 3) == 0) hash += i;
    }
    uint64_t copy = 0;
    CHECK(write(ends[1], &hash, sizeof hash) == sizeof hash);
    CHECK(read(ends[0], &copy, sizeof copy) == sizeof copy);
    CHECK(copy == hash);
  }
  CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
  return hash;
}

uint64_t WorkWithoutTheArea() {
  std::atomic<bool> done{false};
  std::thread thief([&done] {
    while (!done) {
      const auto areas = MappedTwice();
      for (const Mapping& area : areas) Protect(area, PROT_NONE);
      usleep(300);
      for (const Mapping& area : areas) Protect(area, PROT_READ | PROT_WRITE);
      usleep(700);
    }
  });
  const uint64_t result = Work();
  done = true;
  thief.join();
  return result;
}

}  // namespace

int main() {
  const uint64_t expected = Work();
  for (int i = 0; i < 30; ++i) {
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) _exit(WorkWithoutTheArea() == expected ? 0 : 1);
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
  }
  std::printf("%" PRIx64 "\n", expected);
  return 0;
}
