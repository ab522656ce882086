// Logs that are set aside, and the packets they become. libipt reads these.
#include "unit/deferred_log.h"

#include <algorithm>
#include <string>
#include <vector>

#include "unit/testing/log_fixture.h"
#include "unit/testing/no_windows.h"
#include "unit/trace_output.h"

extern "C" {
void shape_loop();
void shape_hot();
}

namespace auxtrail::unit {

namespace {

std::vector<size_t> pieces;       // bytes of packets between two commits
std::vector<uint64_t> psbs;       // where they say that the program is
std::vector<uint64_t> histories;  // where they begin
std::vector<uint64_t> psb_times;
uint32_t code_changes = 0;
size_t changes_at_piece = 0;  // some code goes away while that one is written

}  // namespace

// As trace_output.cc has them, into one long buffer.
void commit(Thread& thread) {
  pieces.push_back(thread.writer.size_bytes());
  if (pieces.size() == changes_at_piece) ++code_changes;
  if (code_changed(thread)) note_code_change(thread);
  thread.writer.continue_in(const_cast<uint8_t*>(thread.writer.position()));
}
bool psb_is_due(const Thread& thread) { return thread.writer.size_bytes() >= thread.psb_due_bytes; }
void write_psb(Thread& thread, uint64_t pc) {
  psbs.push_back(pc);
  psb_times.push_back(thread.deferred.now_ns);
  thread.returns.clear();
  thread.writer.psb_plus(pc, thread.deferred.now_ns);
}
bool code_changed(const Thread& thread) { return thread.code_changes != code_changes; }
void note_code_change(Thread& thread) { thread.code_changes = code_changes; }
void begin_history(Thread& thread, uint64_t pc) {
  histories.push_back(pc);
  thread.code_changes = code_changes;
  thread.writer.flush_tnt();
  if (pc != 0) write_psb(thread, pc);
}
void trace_on(Thread&, uint64_t) { FAIL() << "nothing is filtered"; }
void trace_stop(Thread&) { FAIL() << "nothing is filtered"; }

namespace {

constexpr DeferredSize kSize{4, 64};  // three logs set aside, and the current one

class DeferredLog : public LogFixture {
 protected:
  void SetUp() override {
    LogFixture::SetUp();
    pieces.clear();
    psbs.clear();
    histories.clear();
    psb_times.clear();
    code_changes = 0;
    changes_at_piece = 0;
    thread_->code_changes = 0;
    thread_->logs_learned_of = 0;
    window_config.stretch_units = 64;
    start(kSize);
    loop_ = get(shape_loop);
    ASSERT_NE(loop_, nullptr);
  }
  void start(const DeferredSize& size) {
    thread_->deferred = {};
    defer_packets(*thread_, size);
    ASSERT_TRUE(thread_->deferred.active);
    start_log(*thread_, thread_->log_units);
  }

  // Exit 1 of the loop: one round, and it ends.
  void log(const Block& block, uint32_t exit, uint64_t target = 0) {
    const uint32_t number = block.first_exit + exit;
    auto* const at = reinterpret_cast<LogEntry*>(tls_block.log);
    const LogWord word(number, code_cache.passages()[number]);
    at[0] = uint64_t{word.high()} << 32 | word.low();
    if (target != 0) at[1] = target;
    tls_block.log += word.units() * sizeof(LogEntry);
  }
  // A log in which the loop ends after `rounds`, 0 or 1, then is set aside.
  void log_and_set_aside(uint32_t rounds) {
    log(*loop_, rounds);
    set_aside(*thread_);
  }
  std::string packets() {
    thread_->writer.flush_tnt();
    return packet_letters(packets_,
                          static_cast<size_t>(thread_->writer.position() - packets_.data()));
  }
  [[nodiscard]] uint64_t loop_pc() const { return loop_->pc; }

  Block* loop_ = nullptr;
};

TEST_F(DeferredLog, WhatIsSetAsideComesBeforeTheCurrentLog) {
  EXPECT_FALSE(has_deferred(*thread_));
  log_and_set_aside(0);
  log_and_set_aside(1);
  EXPECT_TRUE(has_deferred(*thread_));
  log(*loop_, 0);
  catch_up(*thread_);
  EXPECT_FALSE(has_deferred(*thread_));
  EXPECT_EQ(packets(), "NTNN");
  EXPECT_TRUE(psbs.empty());
  EXPECT_TRUE(histories.empty());
  EXPECT_EQ(thread_->window_branches, 4U);
}

TEST_F(DeferredLog, TheOldestAreForgotten) {
  log(*loop_, 0);
  catch_up(*thread_);  // nothing yet, but for what is in the writer
  for (int i = 0; i < 5; ++i) log_and_set_aside(0);
  for (int i = 0; i < 3; ++i) log_and_set_aside(1);
  EXPECT_TRUE(has_deferred(*thread_));
  catch_up(*thread_);
  const DeferredLogs& logs = thread_->deferred;
  const uint64_t begin_ns = logs.logs[(logs.oldest + logs.places - 3) % logs.places].begin_ns;
  EXPECT_EQ(packets(), "NPFTNTNTN");
  EXPECT_EQ(histories, std::vector{loop_pc()});
  EXPECT_NE(begin_ns, 0U);
  EXPECT_EQ(psb_times, std::vector{begin_ns});  // when the oldest was begun
}

// The memory goes round; the logs stay in order, and none is written twice.
TEST_F(DeferredLog, LogsStayInOrderFromRoundToRound) {
  std::string expected;
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i <= round % 3; ++i) {
      log_and_set_aside(static_cast<uint32_t>(i & 1));
      expected += (i & 1) != 0 ? "TN" : "N";
    }
    catch_up(*thread_);
    start_log(*thread_, thread_->log_units);
  }
  EXPECT_EQ(packets(), expected);
  EXPECT_TRUE(histories.empty());
}

// The current log may have begun in code that is gone, too.
TEST_F(DeferredLog, ACodeChangeForgetsAll) {
  log_and_set_aside(1);
  log_and_set_aside(1);
  code_changes = 1;
  log(*loop_, 0);
  catch_up(*thread_);
  EXPECT_EQ(packets(), "");
  EXPECT_EQ(histories, std::vector<uint64_t>{0});
  EXPECT_FALSE(has_deferred(*thread_));
}

// What is logged since then is kept.
TEST_F(DeferredLog, LogsBehindACodeChangeAreKept) {
  log_and_set_aside(0);
  code_changes = 1;
  log_and_set_aside(0);  // it may have begun before
  log_and_set_aside(1);
  log(*loop_, 0);
  catch_up(*thread_);
  EXPECT_EQ(packets(), "PFTNN");
  EXPECT_EQ(histories, std::vector{loop_pc()});
}

// One in the middle of writing, by another thread: what is not written is from before.
TEST_F(DeferredLog, ACodeChangeInTheMiddleForgetsTheRest) {
  log_and_set_aside(1);
  log_and_set_aside(0);
  log_and_set_aside(0);
  log(*loop_, 0);
  changes_at_piece = 1;
  catch_up(*thread_);
  EXPECT_EQ(packets(), "TN");
  EXPECT_EQ(histories, std::vector<uint64_t>{0});
  EXPECT_FALSE(has_deferred(*thread_));
}

// A PSB+ says where the program was where it stands, and when: the log's time.
TEST_F(DeferredLog, PsbsComeBetweenLogs) {
  const Block* const hot = get(shape_hot);
  ASSERT_NE(hot, nullptr);
  thread_->psb_due_bytes = 0;
  log_and_set_aside(0);
  log(*hot, 0);
  set_aside(*thread_);
  const std::vector<uint64_t> times{thread_->deferred.logs[0].end_ns,
                                    thread_->deferred.logs[1].end_ns};
  log(*loop_, 1);
  catch_up(*thread_);
  EXPECT_EQ(psbs, (std::vector{hot->pc, loop_pc()}));
  EXPECT_EQ(psb_times, times);
  thread_->psb_due_bytes = SIZE_MAX;
  EXPECT_EQ(packets(), "NPFTPFTN");
}

// A sample came before the log was full, which would be more packets than there is room claimed
// for.
TEST_F(DeferredLog, TheCurrentLogIsWrittenInPieces) {
  start({3, 512});
  window_config.stretch_units = 32;
  thread_->psb_due_bytes = 0;
  for (int i = 0; i < 200; ++i) log(*loop_, 0);
  catch_up(*thread_);
  EXPECT_EQ(pieces.size(), 7U);  // of 32 plain exits, and the rest
  EXPECT_EQ(psbs.size(), 6U);
  EXPECT_EQ(thread_->log_start, tls_block.log);
}

// Behind the newest log nothing says where the program is.
TEST_F(DeferredLog, NoPsbComesWhereThePositionIsNotKnown) {
  thread_->psb_due_bytes = 0;
  log_and_set_aside(0);
  catch_up(*thread_);
  EXPECT_EQ(packets(), "N");
}

TEST_F(DeferredLog, LongLogsAreWrittenInPieces) {
  start({3, 512});
  window_config.stretch_units = 32;
  const Block* const hot = get(shape_hot);
  const uint32_t last = hot->exit_count - 1;
  std::string expected;
  for (int i = 0; i < 200; ++i) {
    log(*hot, last, 0x1000 + static_cast<uint64_t>(i));
    expected += "NI";
  }
  set_aside(*thread_);
  catch_up(*thread_);
  EXPECT_EQ(packets(), expected);
  const size_t most = (32 + kMaxEntryUnits) * kMaxPackedUnitBytes;
  EXPECT_GT(pieces.size(), 400 / 32u);
  EXPECT_LE(*std::max_element(pieces.begin(), pieces.end()), most);
}

// Once, whether their packets are written or not.
TEST_F(DeferredLog, HotCodeLearnsOfAllLogs) {
  const uint32_t number = loop_->first_exit;
  const uint32_t before = code_cache.passages()[number].hits;
  for (int i = 0; i < 7; ++i) log_and_set_aside(0);
  EXPECT_EQ(code_cache.passages()[number].hits, before + 7);
  catch_up(*thread_);
  EXPECT_EQ(code_cache.passages()[number].hits, before + 7);
}

TEST_F(DeferredLog, DroppedLogsAreGone) {
  for (int i = 0; i < 5; ++i) log_and_set_aside(0);
  drop_deferred(*thread_);
  EXPECT_FALSE(has_deferred(*thread_));
  start_log(*thread_, thread_->log_units);
  log_and_set_aside(1);
  catch_up(*thread_);
  EXPECT_EQ(packets(), "TN");
}

TEST_F(DeferredLog, NothingIsDeferredWithoutPlaces) {
  defer_packets(*thread_, {0, 0});
  EXPECT_FALSE(thread_->deferred.active);
}

// A full log is one that ends at its place's end.
TEST_F(DeferredLog, EachPlaceIsFullAtItsEnd) {
  for (uint32_t i = 0; i < 2 * kSize.places; ++i) {
    EXPECT_EQ(thread_->log_end % kLogAlignment, 0U);
    EXPECT_EQ(tls_block.log + kSize.units * sizeof(LogEntry), thread_->log_end);
    EXPECT_FALSE(log_is_full(tls_block.log));
    EXPECT_TRUE(log_is_full(thread_->log_end));
    log_and_set_aside(0);
  }
}

TEST(DeferredSize, LogsHoldWhatSamplesTake) {
  for (const uint64_t bytes : {1, 7, 64, 192, 4096, 61440, 65528}) {
    const DeferredSize size = deferred_size(bytes);
    EXPECT_GE(size.places, 3U);
    EXPECT_LE(size.places, DeferredLogs::kMaxLogs);
    EXPECT_GE(size.units, 1U);
    EXPECT_LE(size.units * sizeof(LogEntry) + kLogOverrunBytes, kLogAlignment - 256);
    // All but the current one and the one that is forgotten next.
    EXPECT_GE((size.places - 2) * uint64_t{size.units}, 3 * bytes) << bytes;
  }
}

}  // namespace
}  // namespace auxtrail::unit
