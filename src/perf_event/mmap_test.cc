// mmap of both areas: checklist B.
#include <gtest/gtest.h>

#include <cerrno>

#include "perf_event/testing/fixture.h"

namespace auxtrail::perf_event::testing {
namespace {

constexpr int kReadWrite = PROT_READ | PROT_WRITE;

class MmapTest : public KernelTest {};

TEST_F(MmapTest, B1_SizesOffsetsAndSharing) {
  const int fd = opened(dummy());
  for (uint64_t pages = 1; pages < 40; ++pages) {
    const uint64_t data = pages - 1;
    const bool good = (data & (data - 1)) == 0;
    const long address = map(fd, pages);
    EXPECT_EQ(address > 0, good) << pages;
    EXPECT_EQ(good ? unmap(address, pages) : address, good ? 0 : -EINVAL);
  }
  EXPECT_EQ(map(fd, 0), -EINVAL);
  EXPECT_EQ(map(fd, 3, kReadWrite, 0, MAP_PRIVATE), -EINVAL);
  EXPECT_EQ(kernel.mmap(tid, 3 * kPage, kReadWrite, MAP_SHARED, fd, 100), -EINVAL);
  EXPECT_EQ(map(fd, 4, kReadWrite, 1), -EINVAL) << "no AUX area without a data area";
  EXPECT_EQ(map(99, 3), -EBADF);
  EXPECT_EQ(map(fd, uint64_t{1} << 32), -ENOMEM);
  EXPECT_EQ(map(fd, (1 << 19) + 1), -ENOMEM);
}

TEST_F(MmapTest, B1_AnotherSizeOnRemap) {
  const int fd = opened(dummy());
  const long first = map(fd, 3);
  EXPECT_EQ(map(fd, 5), -EINVAL);
  const long second = map(fd, 3);
  ASSERT_GT(second, 0);
  EXPECT_NE(first, second);
  page(first).data_tail = 1234;
  EXPECT_EQ(page(second).data_tail, 1234U) << "the same memory";
  // The buffer lives until its last mapping goes.
  EXPECT_EQ(unmap(first, 3), 0);
  EXPECT_EQ(map(fd, 5), -EINVAL);
  EXPECT_EQ(unmap(second, 3), 0);
  EXPECT_GT(map(fd, 5), 0);
}

TEST_F(MmapTest, B1_InheritedTaskEventsHaveNoMapping) {
  perf_event_attr attr = dummy();
  attr.inherit = 1;
  EXPECT_EQ(map(opened(attr), 3), -EINVAL);
  EXPECT_GT(map(opened(attr, -1, 0), 3), 0) << "on one CPU there is one writer";
}

TEST_F(MmapTest, B1_PartsOfAMappingStay) {
  const int fd = opened(sampler());
  const long ring = map(fd, 5);
  EXPECT_EQ(unmap(ring, 2), -EINVAL);
  EXPECT_EQ(unmap(ring + static_cast<long>(kPage), 4), -EINVAL);
  auto* const address = reinterpret_cast<void*>(ring);
  EXPECT_EQ(kernel.mremap(tid, address, 5 * kPage, 9 * kPage), -EFAULT);
  EXPECT_EQ(kernel.mremap(tid, address, 5 * kPage, 3 * kPage), -EINVAL);
  EXPECT_EQ(kernel.mremap(tid, address, 5 * kPage, 5 * kPage), ring);
  page_faults(1);
  EXPECT_GT(page(ring).data_head, 0U) << "still there";
  EXPECT_EQ(unmap(ring, 5), 0);
  EXPECT_EQ(unmap(ring, 5), 0) << "there is nothing any more, which is no fault";
}

TEST_F(MmapTest, B2_WritableMeansTheTailIsHonoured) {
  const int fd = opened(sampler());
  const long ring = map(fd, 2, kReadWrite);
  page_faults(1000);
  EXPECT_LT(page(ring).data_head, kPage);
  EXPECT_GT(event(fd).lost.load(), 0U);
}

TEST_F(MmapTest, B2_ReadOnlyMeansTheOldestIsOverwritten) {
  const int fd = opened(sampler());
  const long ring = map(fd, 2, PROT_READ);
  page_faults(1000);
  const uint64_t sample_bytes = 32;
  EXPECT_EQ(page(ring).data_head, 1000 * sample_bytes);
  EXPECT_EQ(event(fd).lost.load(), 0U);
}

TEST_F(MmapTest, B2_TheFirstMappingDecides) {
  const int fd = opened(sampler());
  const long ring = map(fd, 2, PROT_READ);
  ASSERT_GT(map(fd, 2, kReadWrite), 0);
  page_faults(1000);
  EXPECT_EQ(event(fd).lost.load(), 0U);
  EXPECT_GT(page(ring).data_head, kPage);
}

TEST_F(MmapTest, B2_SeparatelyForTheAuxArea) {
  for (const bool data_writable : {false, true}) {
    for (const bool aux_writable : {false, true}) {
      const int fd = opened(tracer(101));
      const long ring = map(fd, 2, kReadWrite);
      page(ring).aux_offset = 4 * kPage;
      page(ring).aux_size = 4 * kPage;
      EXPECT_EQ(unmap(ring, 2), 0) << "only to show that the fields are a new buffer's";
      const long other = map(fd, 2, data_writable ? kReadWrite : PROT_READ);
      // A reader with a read-only mapping cannot say where the AUX area is to be.
      const long aux = data_writable ? map_aux(fd, other, 4, aux_writable ? kReadWrite : PROT_READ)
                                     : map(fd, 4, PROT_READ, 4);
      EXPECT_EQ(aux > 0, data_writable);
      if (aux > 0) {
        EXPECT_EQ(event(fd).buffer->aux().overwrite(), !aux_writable);
      }
      kernel.close(tid, fd);
      unmap(other, 2);
      if (aux > 0) unmap(aux, 4);
    }
  }
}

TEST_F(MmapTest, B3_AuxFieldsAreZeroUntilTheUserWritesThem) {
  const int fd = opened(tracer(101));
  const long ring = map(fd, 5);
  EXPECT_EQ(page(ring).data_offset, kPage);
  EXPECT_EQ(page(ring).data_size, 4 * kPage);
  EXPECT_EQ(page(ring).aux_offset, 0U);
  EXPECT_EQ(page(ring).aux_size, 0U);
  ASSERT_GT(map_aux(fd, ring, 2, PROT_READ), 0);
  EXPECT_EQ(page(ring).aux_head, 0U);
}

TEST_F(MmapTest, B4_WhatTheAuxAreaNeeds) {
  const int fd = opened(tracer(101));
  EXPECT_EQ(map(fd, 2, PROT_READ, 3), -EINVAL) << "no data area";
  const long ring = map(fd, 3);
  const auto try_map = [&](uint64_t offset, uint64_t size, uint64_t at, uint64_t pages) {
    page(ring).aux_offset = offset * kPage;
    page(ring).aux_size = size * kPage;
    const long address = map(fd, pages, PROT_READ, at);
    return address > 0 ? unmap(address, pages) : address;
  };
  EXPECT_EQ(try_map(0, 0, 3, 2), -EINVAL) << "the user has not said where";
  EXPECT_EQ(try_map(2, 2, 2, 2), -EINVAL) << "inside the data area";
  EXPECT_EQ(try_map(3, 2, 4, 2), -EINVAL) << "somewhere else";
  EXPECT_EQ(try_map(3, 2, 3, 4), -EINVAL) << "another size";
  EXPECT_EQ(try_map(3, 3, 3, 3), -EINVAL) << "no power of two";
  EXPECT_EQ(try_map(3, 2, 3, 2), 0);
  EXPECT_EQ(try_map(3, 4, 3, 4), 0) << "after unmapping it may be another size";
  EXPECT_EQ(try_map(100, 1, 100, 1), 0) << "anywhere behind the data";
  EXPECT_EQ(kernel.mmap(tid, 2 * kPage + 1, PROT_READ, MAP_SHARED, fd, 3 * kPage), -EINVAL);
}

TEST_F(MmapTest, B4_TheSameAreaAgain) {
  const int fd = opened(tracer(101));
  const long ring = map(fd, 3);
  const long first = map_aux(fd, ring, 4, PROT_READ);
  const long second = map_aux(fd, ring, 4, PROT_READ);
  ASSERT_GT(first, 0);
  ASSERT_GT(second, 0);
  EXPECT_EQ(map_aux(fd, ring, 8, PROT_READ), -EINVAL) << "with another size";
  page(ring).aux_offset = 16 * kPage;
  page(ring).aux_size = 4 * kPage;
  EXPECT_EQ(map(fd, 4, PROT_READ, 16), -EINVAL) << "at another place";
  EXPECT_EQ(unmap(first, 4), 0);
  EXPECT_TRUE(event(fd).buffer->has_aux());
  EXPECT_EQ(unmap(second, 4), 0);
  EXPECT_FALSE(event(fd).buffer->has_aux());
}

TEST_F(MmapTest, B4_APmuWithoutAux) {
  const int fd = opened(dummy());
  const long ring = map(fd, 3);
  EXPECT_EQ(map_aux(fd, ring, 4, PROT_READ), -EOPNOTSUPP);
}

TEST_F(MmapTest, B4_TooBig) {
  const int fd = opened(tracer(101));
  const long ring = map(fd, 3);
  EXPECT_EQ(map_aux(fd, ring, uint64_t{1} << 20, PROT_READ), -ENOMEM);
  EXPECT_EQ(map_aux(fd, ring, uint64_t{1} << 30, PROT_READ), -ENOMEM);
  EXPECT_GT(map_aux(fd, ring, 4, PROT_READ), 0) << "the data area is as usable as before";
}

// An ordinary user: 258 pages of his own with 516 KiB for each of two CPUs, and what RLIMIT_MEMLOCK
// allows the process.
class MlockTest : public KernelTest {
 protected:
  MlockTest() : KernelTest({.memlock_bytes = 64 * kPage}) {
    tid_of_root = tid;
    tid = kernel.start_process(nobody);
    extra_tasks = {tid_of_root};
  }
  static perf_event_attr user_only(perf_event_attr attr) {
    attr.exclude_kernel = 1;
    return attr;
  }
  Tid tid_of_root;
};

TEST_F(MlockTest, B4_OverTheMlockLimit) {
  const int fd = opened(user_only(tracer(101)));
  const long ring = map(fd, 257);  // 257 of 258
  EXPECT_EQ(nobody.locked_pages, 257U);
  EXPECT_EQ(map_aux(fd, ring, 128, PROT_READ), -EPERM);
  EXPECT_EQ(nobody.locked_pages, 257U) << "nothing was charged";
  const long aux = map_aux(fd, ring, 64, PROT_READ);  // 1 of his, 63 of the process's
  ASSERT_GT(aux, 0);
  EXPECT_EQ(nobody.locked_pages, 258U);
  const int another = opened(user_only(dummy()));
  EXPECT_EQ(map(another, 2), -EPERM) << "two pages, where one is left";
  EXPECT_GT(map(another, 1), 0);
  EXPECT_EQ(unmap(aux, 64), 0);
  EXPECT_EQ(nobody.locked_pages, 257U);
  EXPECT_EQ(unmap(ring, 257), 0);
  EXPECT_EQ(nobody.locked_pages, 0U);
}

TEST_F(MlockTest, B4_TheLimitsAreTheUsersAndTheProcesss) {
  const int fd = opened(user_only(dummy()));
  ASSERT_GT(map(fd, 257), 0);
  const Tid second = kernel.start_process(nobody);
  extra_tasks.push_back(second);
  perf_event_attr attr = user_only(dummy());
  const auto other = static_cast<int>(kernel.perf_event_open(second, &attr, 0, -1, -1, 0));
  // The user's pages are used up, the other process's own are not.
  EXPECT_GT(kernel.mmap(second, 65 * kPage, kReadWrite, MAP_SHARED, other, 0), 0);
  EXPECT_EQ(map(opened(user_only(dummy())), 129), -EPERM);
  nobody.may_lock = true;
  EXPECT_GT(map(opened(user_only(dummy())), 129), 0) << "CAP_IPC_LOCK";
}

TEST_F(MmapTest, B5_SamplingNeedsTheAreaReadOnly) {
  const int leader = opened(tracer(101));
  const int sampling = opened(sampler(64), leader);
  const long ring = map(leader, 3);
  EXPECT_EQ(map_aux(leader, ring, 4, kReadWrite), -EINVAL);
  EXPECT_GT(map_aux(leader, ring, 4, PROT_READ), 0);
  (void)sampling;
}

TEST_F(MmapTest, B5_NorCanASamplerComeLater) {
  const int leader = opened(tracer(101));
  const long ring = map(leader, 3);
  const long aux = map_aux(leader, ring, 4, kReadWrite);
  ASSERT_GT(aux, 0);
  EXPECT_EQ(open(sampler(64), leader), -EINVAL);
  EXPECT_GE(open(sampler(0), leader), 0) << "it wants no bytes";
  EXPECT_EQ(event(leader).refcount.load(), 1U);
  EXPECT_EQ(unmap(aux, 4), 0);
  EXPECT_GE(open(sampler(64), leader), 0);
}

TEST_F(MmapTest, B5_NorCanASampledLeaderBeRedirectedThere) {
  const int owner = opened(tracer(101));
  const long ring = map(owner, 3);
  const long aux = map_aux(owner, ring, 4, kReadWrite);
  ASSERT_GT(aux, 0);
  const int leader = opened(tracer(101));
  const int sampling = opened(sampler(64), leader);
  const auto redirect = [&](int fd) {
    return ioctl(fd, PERF_EVENT_IOC_SET_OUTPUT, static_cast<uint64_t>(owner));
  };
  EXPECT_EQ(redirect(leader), -EINVAL);
  EXPECT_EQ(redirect(sampling), 0) << "its records may go anywhere";
  EXPECT_EQ(unmap(aux, 4), 0);
  EXPECT_EQ(redirect(leader), 0);
  EXPECT_EQ(map_aux(owner, ring, 4, kReadWrite), -EINVAL) << "now its leader is sampled";
  EXPECT_GT(map_aux(owner, ring, 4, PROT_READ), 0);
}

TEST_F(MmapTest, B6_UnmappingTheAuxAreaStopsItsWriters) {
  perf_event_attr attr = tracer(101);
  attr.inherit = 1;
  attr.disabled = 1;
  const int fd = opened(attr, -1, 0);
  const long ring = map(fd, 3);
  const long aux = map_aux(fd, ring, 4, kReadWrite);
  const long again = map_aux(fd, ring, 4, kReadWrite);
  ASSERT_GT(again, 0);
  enable(fd);
  ASSERT_EQ(event(fd).state, event::EventState::kActive);
  units.trace(event(fd), 100);
  EXPECT_EQ(unmap(again, 4), 0);
  EXPECT_FALSE(event(fd).hw.stopped) << "it is still mapped";
  EXPECT_EQ(unmap(aux, 4), 0);
  EXPECT_TRUE(event(fd).hw.stopped);
  EXPECT_EQ(unit_of(event(fd)).log, "be") << "the transaction was closed first";
  EXPECT_EQ(event(fd).aux, nullptr);
  auto read = reader(ring);
  const auto found = records(read);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(event::testing::header_of(found[0]).type, static_cast<uint32_t>(PERF_RECORD_AUX));
}

TEST_F(MmapTest, B6_InheritedWritersToo) {
  perf_event_attr attr = tracer(101);
  attr.inherit = 1;
  attr.disabled = 1;
  const int fd = opened(attr, -1, 0);
  const long ring = map(fd, 3);
  const long aux = map_aux(fd, ring, 4, kReadWrite);
  enable(fd);
  const Tid child = cloned();
  kernel.run(child, 0);
  PerfEvent& inherited = *kernel.inherited(event(fd), child);
  ASSERT_EQ(inherited.state, event::EventState::kActive);
  units.trace(inherited, 100);
  EXPECT_EQ(unmap(aux, 4), 0);
  EXPECT_TRUE(inherited.hw.stopped);
  EXPECT_FALSE(unit_of(inherited).output.is_open());
  // And it does not start again.
  kernel.run(tid, 0);
  kernel.run(child, 0);
  EXPECT_NE(inherited.state, event::EventState::kActive);
  (void)ring;
}

}  // namespace
}  // namespace auxtrail::perf_event::testing
