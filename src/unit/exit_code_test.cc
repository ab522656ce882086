// The code of exits, executed: what it logs, where it goes, and that the program's registers and
// flags survive.
#include "unit/exit_code.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>

namespace auxtrail::unit {

// The test's own, as it does not link the unit.
__thread TlsBlock tls_block __attribute__((tls_model("initial-exec")));

namespace {

constexpr size_t kCodeBytes = 4096;
constexpr uint64_t kRcx = 0x1122334455667788;
constexpr uint32_t kNumber = 0x12345;
constexpr LogWord kWord(kNumber, Passage{0, 0, Passage::kDirect, 1, 0, 0, false, 0, 0});

struct Result {
  uint64_t rcx;    // as the code that was reached sees it
  uint64_t carry;  // all ones if the carry flag was set
};

class ExitCode : public ::testing::Test {
 protected:
  ExitCode()
      : code_(static_cast<uint8_t*>(mmap(nullptr, kCodeBytes, PROT_READ | PROT_WRITE | PROT_EXEC,
                                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))),
        emit_(code_, code_ + kCodeBytes) {
    alignas(65536) static LogEntry area[8192 + kIndirectUnits];
    log_end_ = reinterpret_cast<uint64_t>(area + 8192);
  }
  ~ExitCode() override { munmap(code_, kCodeBytes); }

  // Code that returns what it finds, and marks that it was reached.
  uint8_t* destination(int32_t mark) {
    uint8_t* const at = emit_.here();
    emit_.code(0x48, 0x19, 0xd2);  // sbb rdx, rdx
    emit_.code(0x48, 0x89, 0xc8);  // mov rax, rcx
    emit_.fs_store32(tls_offsets().resume, static_cast<uint32_t>(mark));
    emit_.code(0xc3);  // ret
    return at;
  }
  // A function that sets rcx and the carry flag and runs into whatever is emitted next.
  uint8_t* entry() {
    uint8_t* const at = emit_.here();
    emit_.code(0x48, 0xb9);  // mov rcx, ...
    emit_.u64(kRcx);
    emit_.code(0xf9);  // stc
    return at;
  }
  static Result run(const uint8_t* function) {
    tls_block.resume = 0;
    return reinterpret_cast<Result (*)()>(reinterpret_cast<uintptr_t>(function))();
  }
  LogEntry* log_with_room(size_t units) {
    tls_block.log = log_end_ - units * sizeof(LogEntry);
    return reinterpret_cast<LogEntry*>(tls_block.log);
  }

  uint8_t* code_;
  Emitter emit_;
  uint64_t log_end_;
};

TEST_F(ExitCode, LoggedExitLogsAndGoesOn) {
  const uint8_t* next = destination(1);
  const uint8_t* stub = destination(2);
  const uint8_t* function = entry();
  ASSERT_NE(emit_logged_exit(emit_, tls_offsets(), kWord, stub, next), nullptr);
  const LogEntry* log = log_with_room(2);
  const Result result = run(function);
  EXPECT_EQ(tls_block.resume, 1u);
  EXPECT_EQ(*log, uint64_t{kWord.high()} << 32 | kWord.low());
  EXPECT_EQ(tls_block.log, log_end_ - sizeof(LogEntry));
  EXPECT_EQ(result.rcx, kRcx);
  EXPECT_EQ(result.carry, ~uint64_t{0});
}

TEST_F(ExitCode, LoggedExitLeavesWhenTheLogIsFull) {
  const uint8_t* next = destination(1);
  const uint8_t* stub = destination(2);
  const uint8_t* function = entry();
  ASSERT_NE(emit_logged_exit(emit_, tls_offsets(), kWord, stub, next), nullptr);
  const LogEntry* log = log_with_room(1);
  const Result result = run(function);
  EXPECT_EQ(tls_block.resume, 2u);
  EXPECT_EQ(*log, uint64_t{kWord.high()} << 32 | kWord.low());
  EXPECT_EQ(tls_block.rcx, kRcx);  // for the stub to restore
  EXPECT_EQ(result.carry, ~uint64_t{0});
  EXPECT_EQ(static_cast<uint32_t>(tls_block.target), exit_token(kNumber, true));
}

// However far an indirect entry overruns the end, the next exit must see that the log is full.
TEST_F(ExitCode, FullIsSeenBehindTheEnd) {
  const uint8_t* next = destination(1);
  const uint8_t* stub = destination(2);
  const uint8_t* function = entry();
  ASSERT_NE(emit_logged_exit(emit_, tls_offsets(), kWord, stub, next), nullptr);
  for (size_t over = 0; over < kIndirectUnits; ++over) {
    tls_block.log = log_end_ + over * sizeof(LogEntry) - sizeof(LogEntry);
    (void)run(function);
    EXPECT_EQ(tls_block.resume, 2u) << over;
  }
}

TEST_F(ExitCode, UnchainedExitLeavesUntilItIsChained) {
  const uint8_t* next = destination(1);
  const uint8_t* stub = destination(2);
  const uint8_t* function = entry();
  uint8_t* field = emit_logged_exit(emit_, tls_offsets(), kWord, stub, nullptr);
  ASSERT_NE(field, nullptr);
  log_with_room(8);
  (void)run(function);
  EXPECT_EQ(tls_block.resume, 2u);
  Emitter::set_rel32(field, next);
  EXPECT_EQ(run(function).rcx, kRcx);
  EXPECT_EQ(tls_block.resume, 1u);
}

TEST_F(ExitCode, UnloggedExitOnlyNamesItself) {
  const uint8_t* stub = destination(2);
  const uint8_t* function = entry();
  const uint8_t* start = emit_.here();
  emit_unlogged_exit(emit_, tls_offsets(), kNumber, stub);
  EXPECT_LE(static_cast<size_t>(emit_.here() - start), kMaxUnloggedExitBytes);
  log_with_room(8);
  const uint64_t before = tls_block.log;
  const Result result = run(function);
  EXPECT_EQ(tls_block.resume, 2u);
  EXPECT_EQ(result.rcx, kRcx);
  EXPECT_EQ(result.carry, ~uint64_t{0});
  EXPECT_EQ(tls_block.log, before);
  EXPECT_EQ(static_cast<uint32_t>(tls_block.target), exit_token(kNumber, false));
}

TEST_F(ExitCode, FieldsLieWithinEightAlignedBytes) {
  for (size_t shift = 0; shift < 8; ++shift) {
    for (size_t skip = 1; skip < 7; ++skip) {
      Emitter emit(code_ + shift, code_ + kCodeBytes);
      emit.pad_for_field(skip);
      const auto field = reinterpret_cast<uintptr_t>(emit.here()) + skip;
      EXPECT_EQ(field / 8, (field + 3) / 8) << shift << ' ' << skip;
    }
  }
}

TEST_F(ExitCode, NoRoomIsRememberedAndNothingWritten) {
  std::array<uint8_t, kMaxLoggedExitBytes + 16> bytes;
  for (size_t room = 0; room < kMaxLoggedExitBytes; ++room) {
    bytes.fill(0xaa);
    Emitter emit(bytes.data(), bytes.data() + room);
    const uint8_t* field = emit_logged_exit(emit, tls_offsets(), kWord, code_, nullptr);
    EXPECT_EQ(field == nullptr, emit.overflowed());
    for (size_t i = room; i < bytes.size(); ++i) ASSERT_EQ(bytes[i], 0xaa) << room;
  }
  Emitter emit(bytes.data(), bytes.data() + bytes.size());
  EXPECT_NE(emit_logged_exit(emit, tls_offsets(), kWord, code_, nullptr), nullptr);
  EXPECT_LE(static_cast<size_t>(emit.here() - bytes.data()), kMaxLoggedExitBytes);
}

}  // namespace
}  // namespace auxtrail::unit
