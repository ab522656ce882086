// From the log to packets with an address filter: what libipt reads of them. What decoders make of
// whole programs is in tests/filters.
#include <dlfcn.h>
#include <link.h>

#include <climits>
#include <cstdlib>
#include <string>

#include "unit/address_filters.h"
#include "unit/testing/log_fixture.h"
#include "unit/testing/no_windows.h"
#include "unit/trace_output.h"

extern "C" {
void shape_filtered();
void shape_filtered_jump();
void shape_filtered_call();
void shape_filtered_after();
void shape_filtered_local();
void shape_filtered_local_end();
void shape_filtered_not_taken();
void shape_outside();
void shape_outside_falls();
void shape_stopped();
void shape_long();
}

namespace auxtrail::unit {

// As continuous.cc has them, but for the period of PSBs.
void write_psb(Thread& thread, uint64_t pc) {
  thread.returns.clear();
  thread.writer.psb_plus(pc, 1);
  thread.psb_due_bytes = SIZE_MAX;
}
void trace_on(Thread& thread, uint64_t pc) {
  thread.returns.clear();
  thread.packet_en = true;
  if (thread.writer.size_bytes() < thread.psb_due_bytes) return thread.writer.tip_pge(pc);
  thread.psb_due_bytes = SIZE_MAX;
  thread.writer.begin(pc, 1);
}
void trace_stop(Thread& thread) {
  thread.writer.trace_stop();
  thread.trace_stopped = true;
  thread.packet_en = false;
}

namespace {

uint64_t address(void (*function)()) { return reinterpret_cast<uint64_t>(function); }

// The file offset of an address of the shapes.
uint64_t offset_of(uint64_t at) {
  struct Search {
    uint64_t at;
    uint64_t offset;
  } search{at, 0};
  dl_iterate_phdr(
      [](dl_phdr_info* module, size_t, void* closure) {
        auto& found = *static_cast<Search*>(closure);
        for (int i = 0; i < module->dlpi_phnum; ++i) {
          const auto& part = module->dlpi_phdr[i];
          const uint64_t start = module->dlpi_addr + part.p_vaddr;
          const bool has = part.p_type == PT_LOAD && found.at - start < part.p_memsz;
          if (has) found.offset = found.at - start + part.p_offset;
        }
        return 0;
      },
      &search);
  return search.offset;
}

std::string text_of_filters() {
  Dl_info shapes{};
  dladdr(reinterpret_cast<void*>(&shape_outside), &shapes);
  char path[PATH_MAX];
  if (::realpath(shapes.dli_fname, path) == nullptr) return "";
  const auto range = [&path](const char* action, uint64_t start, uint64_t end) {
    return std::string(action) + " " + std::to_string(offset_of(start)) + "/" +
           std::to_string(end - start) + "@" + path;
  };
  return range("filter", address(&shape_filtered), address(&shape_outside)) + "," +
         range("stop", address(&shape_stopped), address(&shape_stopped) + 1);
}

class FilteredLog : public LogFixture {
 protected:
  void SetUp() override {
    session.config.continuous = 1;
    const std::string text = text_of_filters();
    text.copy(session.config.filters, sizeof session.config.filters);
    session.config.filter_bytes = static_cast<uint32_t>(text.size());
    ASSERT_TRUE(address_filters.set(session.config)) << text;
    LogFixture::SetUp();
    ASSERT_EQ(address_filters.at(address(&shape_filtered)), TracedRanges::Place::kTraced) << text;
  }

  // The exit of that index, from the end if it is negative, was taken; to `target`, if indirect.
  void take(void (*function)(), int exit, uint64_t target = 0) {
    const Block* const block = get(function);
    ASSERT_NE(block, nullptr);
    const auto index = static_cast<uint32_t>(exit < 0 ? block->exit_count + exit : exit);
    LogFixture::take(*block, index, target);
  }
  void enter(void (*function)()) { take(&shape_outside, 0, address(function)); }
  std::string drained() {
    write();
    return read();
  }
};

TEST_F(FilteredLog, NothingIsWrittenOutside) {
  take(&shape_outside, 0, address(&shape_outside));
  take(&shape_long, -1);
  EXPECT_EQ(drained(), "");
  EXPECT_EQ(thread_->window_branches, 0U);
  EXPECT_FALSE(thread_->packet_en);
}

TEST_F(FilteredLog, ATakenConditionalThatLeavesIsNoOutcome) {
  enter(&shape_filtered);
  take(&shape_filtered, 0);
  EXPECT_EQ(drained(), "ED");
  EXPECT_EQ(thread_->window_branches, 1U);
}

TEST_F(FilteredLog, AReturnThatLeaves) {
  enter(&shape_filtered);
  take(&shape_filtered, -1, address(&shape_long));
  EXPECT_EQ(drained(), "END");
}

TEST_F(FilteredLog, AJumpOrACallThatLeaves) {
  enter(&shape_filtered_jump);
  take(&shape_filtered_jump, 0);
  enter(&shape_filtered_call);
  take(&shape_filtered_call, 0);
  EXPECT_EQ(drained(), "EDED");
}

// No decoder would find a branch for a TIP.PGD alone.
TEST_F(FilteredLog, RunningOutOfTheRangeIsAnInterruption) {
  enter(&shape_filtered_not_taken);
  take(&shape_filtered_not_taken, 0);  // its conditional leads back, and is not taken
  EXPECT_EQ(drained(), "ENFd");
}

TEST_F(FilteredLog, ACallThatLeftIsUnknownToItsReturn) {
  enter(&shape_filtered_call);
  take(&shape_filtered_call, 0);  // to shape_outside, which returns
  take(&shape_outside, 0, address(&shape_filtered_after));
  EXPECT_EQ(drained(), "EDE");
  log_.clear();
  take(&shape_filtered_after, -1, address(&shape_filtered));
  EXPECT_EQ(drained(), "EDEI");  // inside, to inside: a TIP for want of a call
}

TEST_F(FilteredLog, InsideAllIsAsEver) {
  enter(&shape_filtered_local);
  take(&shape_filtered_local, 1);  // a call and its return, then a conditional not taken
  take(&shape_filtered_local_end, -1, address(&shape_filtered));
  EXPECT_EQ(drained(), "ETNI");
  EXPECT_TRUE(thread_->packet_en);
}

// As of a log without filters, and also of what is not traced.
TEST_F(FilteredLog, HotCodeLearnsOfAllExits) {
  const auto hits_of_first = [](void (*function)()) -> uint32_t& {
    return code_cache.passages()[get(function)->first_exit].hits;
  };
  hits_of_first(&shape_filtered) = hits_of_first(&shape_outside) = 0;
  const auto drain_both = [this] {
    log_.clear();
    take(&shape_filtered, 0);
    take(&shape_outside, 0, address(&shape_outside));
    (void)drained();
  };
  drain_both();
  EXPECT_EQ(hits_of_first(&shape_filtered), 1U);
  EXPECT_EQ(hits_of_first(&shape_outside), 1U);
  thread_->logs_learned_of = kLearnsAll;
  for (uint32_t i = 0; i < 3 * kLearnsEvery; ++i) drain_both();
  EXPECT_EQ(hits_of_first(&shape_filtered), 1U + 3 * kLearnsEvery);
  EXPECT_EQ(hits_of_first(&shape_outside), 1U + 3 * kLearnsEvery);
}

// A superblock can't go on outside, and is not made anew for that.
TEST_F(FilteredLog, ATargetThatIsFilteredOtherwiseIsNotFollowed) {
  const auto improve = [](uint64_t target) {
    const Block* const block = get(&shape_filtered_local_end);
    const uint32_t number = block->first_exit + block->exit_count - 1u;
    code_cache.passages()[number].hits = kHotHits;
    constexpr uint64_t kInARow = 100;
    code_cache.passage_details()[number].seen = kInARow << 48 | target;
    code_cache.improve(number);
    return get(&shape_filtered_local_end) != block;
  };
  EXPECT_FALSE(improve(address(&shape_outside)));
  EXPECT_TRUE(improve(address(&shape_filtered_after)));
}

TEST_F(FilteredLog, ADuePsbWaitsForTheTraceToGoOn) {
  thread_->psb_due_bytes = 0;
  take(&shape_long, -1);
  take(&shape_outside, 0, address(&shape_outside));
  EXPECT_EQ(drained(), "");
  log_.clear();
  enter(&shape_filtered);
  EXPECT_EQ(drained(), "PE");
}

TEST_F(FilteredLog, TraceStopIsForGood) {
  enter(&shape_filtered);
  take(&shape_filtered, -1, address(&shape_stopped));
  enter(&shape_filtered);
  take(&shape_filtered, 0);
  EXPECT_EQ(drained(), "ENDS");
  EXPECT_TRUE(thread_->trace_stopped);
}

TEST_F(FilteredLog, TraceStopAlsoComesFromWhereNothingIsTraced) {
  take(&shape_outside_falls, -1);
  enter(&shape_filtered);
  EXPECT_EQ(drained(), "S");
}

}  // namespace
}  // namespace auxtrail::unit
