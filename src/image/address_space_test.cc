// AddressSpaces: the kernel's rules of mappings over time, by example and against a byte-wise
// model.
#include "image/address_space.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

namespace auxtrail::image {
namespace {

constexpr int32_t kPid = 100;
constexpr int32_t kChild = 101;

class AddressSpacesTest : public testing::Test {
 protected:
  std::string path_at(int32_t pid, uint64_t address, uint64_t time_ns) {
    const auto layout = spaces_.layout(pid, time_ns);
    const Mapping* mapping = layout->find(address);
    return mapping != nullptr ? mapping->dso->path : "";
  }

  DsoTable dsos_;
  AddressSpaces spaces_{dsos_};
};

TEST_F(AddressSpacesTest, MappingCountsFromItsTimeOn) {
  spaces_.add_mapping(kPid, 10, 0x1000, 0x1000, 0, "/a");
  EXPECT_EQ(path_at(kPid, 0x1000, 9), "");
  EXPECT_EQ(path_at(kPid, 0x1000, 10), "/a");
  EXPECT_EQ(path_at(kPid, 0x1fff, 99), "/a");
  EXPECT_EQ(path_at(kPid, 0x2000, 99), "");
  EXPECT_EQ(path_at(kPid + 1, 0x1000, 99), "");
}

TEST_F(AddressSpacesTest, LaterMappingHidesThePartItOverlaps) {
  spaces_.add_mapping(kPid, 1, 0x1000, 0x5000, 0x7000, "/big");
  spaces_.add_mapping(kPid, 2, 0x2000, 0x1000, 0, "/small");
  const auto layout = spaces_.layout(kPid, 2);
  ASSERT_EQ(layout->mappings.size(), 3);
  EXPECT_EQ(layout->find(0x1fff)->offset_of(0x1fff), 0x7fff);
  EXPECT_EQ(layout->find(0x2000)->dso->path, "/small");
  EXPECT_EQ(layout->find(0x3000)->offset_of(0x3000), 0x9000);
  EXPECT_EQ(path_at(kPid, 0x2000, 1), "/big") << "the past stays as it was";
}

TEST_F(AddressSpacesTest, EventsMayArriveOutOfOrder) {
  spaces_.add_mapping(kPid, 20, 0x1000, 0x1000, 0, "/second");
  spaces_.add_mapping(kPid, 10, 0x1000, 0x1000, 0, "/first");
  EXPECT_EQ(path_at(kPid, 0x1000, 15), "/first");
  EXPECT_EQ(path_at(kPid, 0x1000, 25), "/second");
}

TEST_F(AddressSpacesTest, EqualTimesKeepTheFilesOrder) {
  spaces_.add_mapping(kPid, 0, 0x1000, 0x1000, 0, "/first");
  spaces_.add_mapping(kPid, 0, 0x1000, 0x1000, 0, "/second");
  EXPECT_EQ(path_at(kPid, 0x1000, 0), "/second");
}

TEST_F(AddressSpacesTest, ForkCopiesTheParentsMappingsOfThatMoment) {
  spaces_.add_mapping(kPid, 1, 0x1000, 0x1000, 0, "/before");
  spaces_.add_fork(kChild, kChild, kPid, kPid, 5);
  spaces_.add_mapping(kPid, 6, 0x1000, 0x1000, 0, "/after");
  EXPECT_EQ(path_at(kChild, 0x1000, 9), "/before");
  EXPECT_EQ(path_at(kPid, 0x1000, 9), "/after");
  EXPECT_EQ(spaces_.layout(kChild, 9)->id, spaces_.layout(kPid, 5)->id)
      << "decoders share what did not change";
}

TEST_F(AddressSpacesTest, ThreadsShareTheirProcess) {
  spaces_.add_mapping(kPid, 1, 0x1000, 0x1000, 0, "/a");
  spaces_.add_fork(kPid, kPid, kPid, kPid, 2);
  EXPECT_EQ(path_at(kPid, 0x1000, 3), "/a");
}

TEST_F(AddressSpacesTest, ExecDropsTheOldProgram) {
  spaces_.add_mapping(kPid, 1, 0x1000, 0x1000, 0, "/old");
  spaces_.add_comm(kPid, kPid, 5, "new", true);
  spaces_.add_mapping(kPid, 6, 0x8000, 0x1000, 0, "/new");
  EXPECT_EQ(path_at(kPid, 0x1000, 4), "/old");
  EXPECT_EQ(path_at(kPid, 0x1000, 5), "");
  EXPECT_EQ(path_at(kPid, 0x8000, 6), "/new");
}

TEST_F(AddressSpacesTest, RenamingIsNoExec) {
  spaces_.add_mapping(kPid, 1, 0x1000, 0x1000, 0, "/a");
  spaces_.add_comm(kPid, kPid, 5, "renamed", false);
  EXPECT_EQ(path_at(kPid, 0x1000, 6), "/a");
}

TEST_F(AddressSpacesTest, NextChange) {
  spaces_.add_mapping(kPid, 20, 0x1000, 0x1000, 0, "/a");
  spaces_.add_comm(kPid, kPid, 10, "exec", true);
  spaces_.add_comm(kPid, kPid, 15, "name", false);
  EXPECT_EQ(spaces_.next_change_ns(kPid, 0), 10U);
  EXPECT_EQ(spaces_.next_change_ns(kPid, 10), 20U);
  EXPECT_EQ(spaces_.next_change_ns(kPid, 20), ~uint64_t{0});
  EXPECT_EQ(spaces_.next_change_ns(kPid + 1, 0), ~uint64_t{0});
}

TEST_F(AddressSpacesTest, ReusedPidStartsFromScratch) {
  spaces_.add_mapping(kChild, 1, 0x1000, 0x1000, 0, "/dead");
  spaces_.add_exit(kChild, kChild, 2);
  spaces_.add_fork(kChild, kChild, kPid, kPid, 3);
  EXPECT_EQ(path_at(kChild, 0x1000, 2), "/dead");
  EXPECT_EQ(path_at(kChild, 0x1000, 3), "");
}

TEST_F(AddressSpacesTest, ForkedChildrenHaveTheirParentsNameOfThatMoment) {
  spaces_.add_comm(kPid, kPid, 1, "parent", true);
  spaces_.add_fork(kChild, kChild, kPid, kPid, 5);
  spaces_.add_comm(kPid, kPid, 6, "renamed", false);
  EXPECT_EQ(spaces_.comm(kChild, kChild, 7), "parent");
  EXPECT_EQ(spaces_.comm(kPid, kPid, 7), "renamed");
  spaces_.add_comm(kChild, kChild, 8, "child", true);
  EXPECT_EQ(spaces_.comm(kChild, kChild, 7), "parent");
  EXPECT_EQ(spaces_.comm(kChild, kChild, 9), "child");
  spaces_.add_fork(kChild, kChild, kPid, kPid, 20);  // the number again
  EXPECT_EQ(spaces_.comm(kChild, kChild, 21), "renamed");
}

TEST_F(AddressSpacesTest, ThreadsHaveTheNameOfTheThreadThatMadeThem) {
  spaces_.add_comm(kPid, kPid, 1, "main", true);
  spaces_.add_fork(kPid, 11, kPid, kPid, 2);
  spaces_.add_comm(kPid, 11, 3, "worker", false);
  spaces_.add_fork(kPid, 12, kPid, 11, 4);
  EXPECT_EQ(spaces_.comm(kPid, 12, 5), "worker");
  EXPECT_EQ(spaces_.comm(kPid, 99, 5), "main") << "a thread that nobody told of";
}

TEST_F(AddressSpacesTest, CycleOfForksEnds) {
  spaces_.add_fork(1, 1, 2, 2, 5);
  spaces_.add_fork(2, 2, 1, 1, 5);
  EXPECT_TRUE(spaces_.layout(1, 9)->mappings.empty());
  EXPECT_EQ(spaces_.comm(1, 1, 9), "");
}

TEST_F(AddressSpacesTest, MappingAtTheEndOfTheAddressSpaceIsCut) {
  spaces_.add_mapping(kPid, 1, UINT64_MAX - 0xfff, 0x10000, 0, "/a");
  EXPECT_EQ(path_at(kPid, UINT64_MAX - 1, 1), "/a");
}

TEST_F(AddressSpacesTest, ThreadNamesComeFromTheirOwnCommElseTheProcess) {
  spaces_.add_comm(kPid, kPid, 1, "program", true);
  spaces_.add_comm(kPid, kPid + 7, 5, "worker", false);
  EXPECT_EQ(spaces_.comm(kPid, kPid + 7, 2), "program");
  EXPECT_EQ(spaces_.comm(kPid, kPid + 7, 5), "worker");
  EXPECT_EQ(spaces_.comm(kPid, kPid, 9), "program");
  EXPECT_EQ(spaces_.comm(55, 56, 9), "");
}

// A model that knows nothing of intervals: one entry per page.
struct PageModel {
  std::map<uint64_t, std::pair<std::string, uint64_t>> pages;  // page -> path, file offset
};

TEST(AddressSpacesPropertyTest, AgreesWithAPageByPageModel) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    DsoTable dsos;
    AddressSpaces spaces(dsos);
    std::map<int32_t, PageModel> now;
    std::vector<std::map<int32_t, PageModel>> history;  // by time
    for (uint64_t time_ns = 0; time_ns < 40; ++time_ns) {
      const auto pid = static_cast<int32_t>(random() % 3);
      switch (random() % 10) {
        case 0: {
          const auto parent = static_cast<int32_t>(random() % 3);
          spaces.add_fork(pid, pid, parent, parent, time_ns);
          if (parent != pid) now[pid] = now[parent];
          break;
        }
        case 1:
          spaces.add_comm(pid, pid, time_ns, "x", true);
          now[pid].pages.clear();
          break;
        default: {
          const uint64_t first = random() % 30;
          const uint64_t pages = 1 + random() % 8;
          const uint64_t file_page = random() % 100;
          const auto path = "/file" + std::to_string(random() % 5);
          spaces.add_mapping(pid, time_ns, first * 4096, pages * 4096, file_page * 4096, path);
          for (uint64_t i = 0; i < pages; ++i) {
            now[pid].pages[first + i] = {path, (file_page + i) * 4096};
          }
        }
      }
      history.push_back(now);
    }
    for (int query = 0; query < 300; ++query) {
      const uint64_t time_ns = random() % history.size();
      const auto pid = static_cast<int32_t>(random() % 3);
      const uint64_t page = random() % 40;
      const auto layout = spaces.layout(pid, time_ns);
      const Mapping* mapping = layout->find(page * 4096);
      const auto& pages = history[time_ns][pid].pages;
      const auto expected = pages.find(page);
      ASSERT_EQ(mapping != nullptr, expected != pages.end()) << "round " << round;
      if (mapping == nullptr) continue;
      ASSERT_EQ(mapping->dso->path, expected->second.first);
      ASSERT_EQ(mapping->offset_of(page * 4096), expected->second.second);
    }
  }
}

}  // namespace
}  // namespace auxtrail::image
