// A program for the recorder's tests that carries a fake trace unit instead of a preloaded one.
//
//   fake_program samples N       N good samples, then exit status 7
//   fake_program scribble        good samples in its own slot, then it fills everything else with
//                                damage while a child of its own keeps writing good samples
//   fake_program threads N       N threads, one after the other, with one sample each

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "record/clock.h"
#include "record/testing/fake_unit.h"

namespace {

using auxtrail::record::monotonic_ns;
using auxtrail::record::testing::FakeUnit;
namespace channel = auxtrail::channel;

constexpr uint64_t kIp = 0x401000;

void write_samples(FakeUnit& unit, const channel::SlotView& slot, uint32_t tid, int count) {
  for (int i = 0; i < count; ++i) {
    unit.write(slot, unit.sample(tid, kIp, monotonic_ns()));
    ::usleep(200);
  }
}

// Overwrites all it can reach, again and again, like a program with a wild pointer.
void scribble(const FakeUnit& unit) {
  const size_t bytes = channel::memory_bytes(unit.config().data_pages, unit.config().aux_pages) / 8;
  std::srand(1);
  for (int round = 0; round < 20; ++round) {
    for (size_t i = 0; i < 200000; ++i) {
      const auto at = static_cast<size_t>(std::rand()) * 8 % (bytes * 8);
      const int value = std::rand();
      std::memcpy(unit.memory() + at, &value, sizeof(value));
    }
    for (uint32_t slot = 0; slot < channel::kSlotCount; ++slot) {
      const auto view = channel::slot_view(unit.memory(), slot, unit.config().data_pages,
                                           unit.config().aux_pages);
      view.control->data_head = static_cast<uint64_t>(std::rand());
      view.header->state = channel::SlotState::kClaimed;
      view.header->tid = static_cast<uint32_t>(::getpid());
    }
    ::usleep(5000);
  }
}

int run_scribble(FakeUnit& unit) {
  const pid_t child = ::fork();
  if (child == 0) {
    FakeUnit own;
    if (!own.connect(std::getenv(channel::kSocketVariable))) ::_exit(1);
    const auto pid = static_cast<uint32_t>(::getpid());
    write_samples(own, own.claim(pid), pid, 300);
    ::_exit(0);
  }
  const auto pid = static_cast<uint32_t>(::getpid());
  write_samples(unit, unit.claim(pid), pid, 10);
  ::usleep(100000);
  scribble(unit);
  int status = 0;
  ::waitpid(child, &status, 0);
  return WEXITSTATUS(status);
}

int run_threads(FakeUnit& unit, int count) {
  for (int i = 0; i < count; ++i) {
    std::thread([&unit] {
      const auto tid = static_cast<uint32_t>(::gettid());
      write_samples(unit, unit.claim(tid), tid, 1);
    }).join();
    // A slot is free again once the recorder has seen the thread's end.
    ::usleep(3000);
  }
  return 0;
}

}  // namespace

int main(int count, char** values) {
  FakeUnit unit;
  const char* socket = std::getenv(channel::kSocketVariable);
  if (count < 2 || socket == nullptr || !unit.connect(socket)) return 99;
  const std::string mode = values[1];
  const int number = count > 2 ? std::atoi(values[2]) : 0;
  if (mode == "scribble") return run_scribble(unit);
  if (mode == "threads") return run_threads(unit, number);
  const auto pid = static_cast<uint32_t>(::getpid());
  write_samples(unit, unit.claim(pid), pid, number);
  return 7;
}
