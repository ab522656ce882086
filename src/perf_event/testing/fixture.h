// A played system with one user, one process and the tracer PMUs, for tests that look at one thing.
#pragma once

#include <gtest/gtest.h>
#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include <vector>

#include "event/aux_action.h"
#include "event/test_support.h"
#include "perf_event/kernel.h"
#include "perf_event/testing/tracer_pmu.h"

namespace auxtrail::perf_event::testing {

inline constexpr uint64_t kPage = kPageBytes;

inline perf_event_attr attr_of(uint32_t type) {
  perf_event_attr attr{};
  attr.size = sizeof attr;
  attr.type = type;
  return attr;
}
inline perf_event_attr dummy() {
  perf_event_attr attr = attr_of(PERF_TYPE_SOFTWARE);
  attr.config = PERF_COUNT_SW_DUMMY;
  return attr;
}
// A software event that count() makes happen and whose every occurrence is a sample.
inline perf_event_attr sampler(uint32_t aux_sample_size = 0) {
  perf_event_attr attr = attr_of(PERF_TYPE_SOFTWARE);
  attr.config = PERF_COUNT_SW_PAGE_FAULTS;
  attr.sample_period = 1;
  attr.sample_type = PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_TID | PERF_SAMPLE_AUX;
  attr.aux_sample_size = aux_sample_size;
  return attr;
}
inline perf_event_attr tracer(uint32_t type = 100) { return attr_of(type); }

class KernelTest : public ::testing::Test {
 protected:
  explicit KernelTest(const Settings& settings = {}) : kernel(settings) {
    for (const event::Pmu* pmu :
         {&kTracer, &kSharedTracer, &kStreamer, &kCounter, &kOutputCounter}) {
      kernel.add_pmu(*pmu, units.context());
    }
    tid = kernel.start_process(root);
    kernel.run(tid, 0);
  }
  ~KernelTest() override {
    for (const Tid task : extra_tasks) kernel.exit(task);
    kernel.exit(tid);
    EXPECT_TRUE(kernel.nothing_left());
  }

  long open(perf_event_attr attr, int group = -1, int cpu = -1, int pid = 0, uint64_t flags = 0) {
    return kernel.perf_event_open(tid, &attr, pid, cpu, group, flags);
  }
  // Opens what must open.
  int opened(const perf_event_attr& attr, int group = -1, int cpu = -1, int pid = 0,
             uint64_t flags = 0) {
    const long fd = open(attr, group, cpu, pid, flags);
    EXPECT_GE(fd, 0);
    return static_cast<int>(fd);
  }
  PerfEvent& event(int fd) { return *kernel.event_of(tid, fd); }

  long map(int fd, uint64_t pages, int protection = PROT_READ | PROT_WRITE, uint64_t offset = 0,
           int flags = MAP_SHARED) {
    return kernel.mmap(tid, pages * kPage, protection, flags, fd, offset * kPage);
  }
  long unmap(long address, uint64_t pages) {
    return kernel.munmap(tid, reinterpret_cast<void*>(address), pages * kPage);
  }
  static perf_event_mmap_page& page(long address) {
    return *reinterpret_cast<perf_event_mmap_page*>(address);
  }
  // Maps `pages` pages of AUX area behind the data pages of the buffer whose control page that is.
  long map_aux(int fd, long control, uint64_t pages, int protection) {
    page(control).aux_offset = kPage + page(control).data_size;
    page(control).aux_size = pages * kPage;
    return kernel.mmap(tid, pages * kPage, protection, MAP_SHARED, fd, page(control).aux_offset);
  }
  static event::RingReader reader(long address, uint64_t from = 0) {
    return {&page(address), reinterpret_cast<std::byte*>(address) + kPage, page(address).data_size,
            from};
  }
  static std::vector<event::testing::Bytes> records(event::RingReader& reader) {
    return event::testing::drain(reader);
  }

  long ioctl(int fd, uint64_t request, uint64_t argument = 0) {
    return kernel.ioctl(tid, fd, request, argument);
  }
  void enable(int fd) { EXPECT_EQ(ioctl(fd, PERF_EVENT_IOC_ENABLE), 0); }
  void disable(int fd) { EXPECT_EQ(ioctl(fd, PERF_EVENT_IOC_DISABLE), 0); }
  void page_faults(uint64_t number) { page_faults_of(tid, number); }
  void page_faults_of(Tid task, uint64_t number) {
    for (; number > 0; --number) {
      kernel.count(task, PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS, 1);
    }
  }
  Tid cloned(bool thread = true) {
    const long child = kernel.clone(tid, thread);
    EXPECT_GT(child, 0);
    extra_tasks.push_back(static_cast<Tid>(child));
    return static_cast<Tid>(child);
  }

  Tracer units;
  Kernel kernel;
  User& root = kernel.add_user({});
  User& nobody =
      kernel.add_user({.uid = 1, .is_perfmon = false, .may_lock = false, .may_trace = false});
  Tid tid = 0;
  std::vector<Tid> extra_tasks;
};

}  // namespace auxtrail::perf_event::testing
