// The server and a process's rings, against a fake trace unit in this very process.

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <thread>
#include <vector>

#include "record/channel_server.h"
#include "record/clock.h"
#include "record/machine.h"
#include "record/session_config.h"
#include "record/testing/fake_unit.h"
#include "record/traced_process.h"

namespace auxtrail::record {
namespace {

using testing::FakeUnit;
using testing::FakeUnitFaults;

class ChannelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto plan = plan_session({}, {{false, 99}, 100000});
    ASSERT_TRUE(plan);
    config_ = plan->config;
    config_.data_pages = 2;
    config_.aux_pages = 1;
    auto server = ChannelServer::create();
    ASSERT_TRUE(server) << server.error().message();
    server_ = std::move(*server);
    start_ns_ = monotonic_ns();
  }
  void start(bool read_processes = false, pid_t only_pid = 0) {
    ASSERT_TRUE(server_->start({config_, read_processes, only_pid}));
  }
  std::vector<Connection> wait_for_one() {
    for (int i = 0; i < 2000; ++i) {
      auto connections = server_->take();
      if (!connections.empty() || server_->refused() != 0) return connections;
      ::usleep(1000);
    }
    return {};
  }
  std::optional<TracedProcess> connect_process() {
    start();
    EXPECT_TRUE(unit_.connect(server_->socket_path().c_str()));
    auto connections = wait_for_one();
    if (connections.empty()) return std::nullopt;
    return TracedProcess(std::move(connections[0]), config_);
  }
  TracedProcess::Context context() {
    return {check_,
            census_,
            true,
            scratch_,
            [this](uint64_t time_ns, std::span<const std::byte>) { times_.push_back(time_ns); },
            {},
            [this](const AuxPiece& piece) { pieces_.push_back(copy_of(piece)); }};
  }
  std::optional<TracedProcess> connect_for_snapshots() {
    config_.mode = channel::TraceMode::kSnapshot;
    config_.aux_pages = 8;
    return connect_process();
  }
  // What a piece told, and its bytes.
  struct Taken {
    uint64_t offset;
    uint64_t flags;
    std::vector<std::byte> bytes;
  };
  static Taken copy_of(const AuxPiece& piece) {
    Taken taken{piece.offset, piece.flags, {piece.first.begin(), piece.first.end()}};
    taken.bytes.insert(taken.bytes.end(), piece.second.begin(), piece.second.end());
    return taken;
  }
  // A thread's AUX area in which each byte tells its position.
  channel::SlotView claim_aux(uint64_t written) {
    const auto slot = unit_.claim(static_cast<uint32_t>(::getpid()));
    for (uint64_t i = written - std::min(written, aux_bytes()); i < written; ++i) {
      slot.aux[i % aux_bytes()] = byte_at(i);
    }
    slot.header->aux_written = written;
    return slot;
  }
  static std::byte byte_at(uint64_t position) { return static_cast<std::byte>(position / 8); }
  [[nodiscard]] uint64_t aux_bytes() const { return config_.aux_pages * channel::kPageBytes; }

  channel::SessionConfig config_;
  std::unique_ptr<ChannelServer> server_;
  uint64_t start_ns_ = 0;
  FakeUnit unit_;
  SampleCheck check_{plan_session({}, {{false, 99}, 100000})->config, monotonic_ns()};
  Census census_;
  event::RecordScratch scratch_;
  std::vector<uint64_t> times_;
  std::vector<Taken> pieces_;
};

TEST_F(ChannelTest, FolderIsPrivateAndGoesAway) {
  const std::filesystem::path socket = server_->socket_path();
  struct stat status {};
  ASSERT_EQ(::stat(socket.parent_path().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700U);
  server_.reset();
  EXPECT_FALSE(std::filesystem::exists(socket.parent_path()));
}

TEST_F(ChannelTest, TakesInAProcess) {
  start(true);
  ASSERT_TRUE(unit_.connect(server_->socket_path().c_str()));
  const auto connections = wait_for_one();
  ASSERT_EQ(connections.size(), 1U);
  EXPECT_EQ(connections[0].pid, ::getpid());
  EXPECT_GE(connections[0].time_ns, start_ns_);
  EXPECT_EQ(connections[0].memory.size_bytes(), channel::memory_bytes(2, 1));
  ASSERT_TRUE(connections[0].process);
  EXPECT_FALSE(connections[0].process->code.empty());
}

TEST_F(ChannelTest, RefusesWhatItCannotTrust) {
  start();
  uint64_t refused = 0;
  for (const FakeUnitFaults& faults :
       {FakeUnitFaults{true, false, false, false}, FakeUnitFaults{false, true, false, false},
        FakeUnitFaults{false, false, true, false}, FakeUnitFaults{false, false, false, true}}) {
    FakeUnit unit;
    ASSERT_TRUE(unit.connect(server_->socket_path().c_str(), faults));
    ++refused;
    for (int i = 0; i < 2000 && server_->refused() != refused; ++i) ::usleep(1000);
    EXPECT_EQ(server_->refused(), refused);
  }
  EXPECT_TRUE(server_->take().empty());
}

TEST_F(ChannelTest, TakesInThatAProcessIsLeftAlone) {
  start();
  FakeUnitFaults faults;
  faults.declined = channel::Declined::kDebugged;
  faults.no_memory = true;
  EXPECT_TRUE(unit_.connect(server_->socket_path().c_str(), faults));
  const auto connections = wait_for_one();
  ASSERT_EQ(connections.size(), 1U);
  EXPECT_EQ(connections[0].pid, ::getpid());
  EXPECT_EQ(connections[0].hello.declined, channel::Declined::kDebugged);
  EXPECT_EQ(server_->refused(), 0U);
}

TEST_F(ChannelTest, RefusesAnUnknownReasonToDecline) {
  start();
  FakeUnitFaults faults;
  faults.declined = channel::Declined::kCount;
  EXPECT_TRUE(unit_.connect(server_->socket_path().c_str(), faults));
  EXPECT_TRUE(wait_for_one().empty());
  EXPECT_EQ(server_->refused(), 1U);
}

TEST_F(ChannelTest, LeavesOtherProcessesAloneWithoutInherit) {
  start(false, ::getpid() + 1);
  EXPECT_FALSE(unit_.connect(server_->socket_path().c_str()));
}

TEST_F(ChannelTest, DrainsARing) {
  auto process = connect_process();
  ASSERT_TRUE(process);
  process->drain(context());
  EXPECT_TRUE(times_.empty());
  const auto pid = static_cast<uint32_t>(::getpid());
  const auto slot = unit_.claim(pid);
  std::vector<uint64_t> written;
  for (int round = 0; round < 30; ++round) {  // many times around the ring
    for (int i = 0; i < 10; ++i) {
      written.push_back(monotonic_ns());
      unit_.write(slot, unit_.sample(pid, 0x401000, written.back()));
    }
    process->drain(context());
  }
  EXPECT_EQ(times_, written);
  EXPECT_EQ(process->record_totals().samples, written.size());
  EXPECT_EQ(process->record_totals().aux_bytes, written.size() * 48);
  EXPECT_EQ(slot.control->data_tail, slot.control->data_head);
  EXPECT_FALSE(process->ended());
}

TEST_F(ChannelTest, FreesTheSlotOfAThreadThatIsGone) {
  auto process = connect_process();
  ASSERT_TRUE(process);
  channel::SlotView slot{};
  std::thread([&] {
    const auto tid = static_cast<uint32_t>(::gettid());
    slot = unit_.claim(tid);
    unit_.write(slot, unit_.sample(tid, 0x401000, monotonic_ns()));
    slot.header->counters.overflows = 5;
    process->drain(context());
    process->free_slots(census_, true);
  }).join();
  EXPECT_EQ(times_.size(), 1U);
  EXPECT_EQ(slot.header->state, channel::SlotState::kClaimed);
  for (int i = 0; i < 100 && slot.header->state != channel::SlotState::kFree; ++i) {
    process->drain(context());
    process->free_slots(census_, true);
    ::usleep(1000);
  }
  EXPECT_EQ(slot.header->state, channel::SlotState::kFree);
  EXPECT_EQ(process->unit_totals().overflows, 5U);
  // The next owner goes on where the ring stands.
  const auto pid = static_cast<uint32_t>(::getpid());
  const auto again = unit_.claim(pid);
  ASSERT_EQ(again.header, slot.header);
  unit_.write(again, unit_.sample(pid, 0x401000, monotonic_ns()));
  process->drain(context());
  EXPECT_EQ(times_.size(), 2U);
  EXPECT_EQ(process->record_totals().bad_rings, 0U);
}

// What it holds is still its former owner's.
TEST_F(ChannelTest, ASlotThatIsBeingPreparedIsNobodysYet) {
  config_.mode = channel::TraceMode::kFull;
  auto process = connect_process();
  ASSERT_TRUE(process);
  const auto pid = static_cast<uint32_t>(::getpid());
  const auto slot = unit_.begin_claim();
  slot.header->tid = pid;
  slot.header->aux_written = 10 * aux_bytes();
  process->drain(context());
  process->snapshot(context(), 0);
  EXPECT_EQ(process->untied_slots(), 0U);
  EXPECT_EQ(process->record_totals().bad_rings, 0U);
  unit_.finish_claim(slot, pid);
  slot.header->aux_written = 100;
  process->drain(context());
  EXPECT_EQ(process->record_totals().bad_rings, 0U);
  ASSERT_EQ(pieces_.size(), 1U);
  EXPECT_EQ(pieces_[0].bytes.size(), 100U);
}

TEST_F(ChannelTest, AThreadThatIsNotTheProcessesGetsNothingThrough) {
  auto process = connect_process();
  ASSERT_TRUE(process);
  const auto slot = unit_.claim(1);  // init's
  unit_.write(slot, unit_.sample(1, 0x401000, monotonic_ns()));
  process->drain(context());
  EXPECT_TRUE(times_.empty());
  EXPECT_EQ(process->untied_slots(), 1U);
}

TEST_F(ChannelTest, DamagedRingsAreCountedAndLeftBehind) {
  auto process = connect_process();
  ASSERT_TRUE(process);
  const auto pid = static_cast<uint32_t>(::getpid());
  const auto slot = unit_.claim(pid);
  slot.control->data_head = 0x1234567;
  process->drain(context());
  EXPECT_EQ(process->record_totals().bad_rings, 1U);
  std::vector<std::byte> garbage(64, std::byte{0xff});
  slot.control->data_head = slot.control->data_tail;
  unit_.write(slot, garbage);
  process->drain(context());
  EXPECT_EQ(process->record_totals().bad_rings, 2U);
  EXPECT_TRUE(times_.empty());
  unit_.write(slot, unit_.sample(pid, 0x401000, monotonic_ns()));
  process->drain(context());
  EXPECT_EQ(times_.size(), 1U);
}

// What the thread wrote up to the hole comes before it, be the loss over or not.
TEST_F(ChannelTest, ALossIsAHoleWhereItBegan) {
  config_.mode = channel::TraceMode::kFull;
  auto process = connect_process();
  ASSERT_TRUE(process);
  const auto slot = claim_aux(1000);
  process->drain(context());
  slot.header->aux_written = 3000;
  slot.header->aux_lost_at = 3000;
  process->drain(context());  // before a byte is lost
  slot.header->aux_lost = 50;
  process->drain(context());
  ASSERT_EQ(pieces_.size(), 2U);
  EXPECT_EQ(pieces_[1].offset, 1000U);
  EXPECT_EQ(pieces_[1].bytes.size(), 2000U);
  EXPECT_EQ(pieces_[1].flags, static_cast<uint64_t>(PERF_AUX_FLAG_TRUNCATED));
  EXPECT_EQ(process->record_totals().aux_lost_bytes, 50U);
  slot.header->aux_lost = 80;
  process->drain(context());
  EXPECT_EQ(process->record_totals().aux_lost_bytes, 80U);
  slot.header->aux_lost = 100;
  slot.header->aux_written = 3500;  // there is room again
  process->drain(context());
  ASSERT_EQ(pieces_.size(), 3U);
  EXPECT_EQ(pieces_[2].offset, 3100U);
  EXPECT_EQ(pieces_[2].bytes.size(), 500U);
  EXPECT_EQ(pieces_[2].flags, 0U);
  EXPECT_EQ(process->record_totals().aux_lost_bytes, 100U);
  EXPECT_EQ(process->record_totals().bad_rings, 0U);
}

TEST_F(ChannelTest, ASnapshotIsTheNewestBytesAskedFor) {
  auto process = connect_for_snapshots();
  ASSERT_TRUE(process);
  const uint64_t end = 5 * aux_bytes() + 1000;
  (void)claim_aux(end);
  const uint64_t most = aux_bytes() - channel::kAuxAheadBytes;
  process->snapshot(context(), most);
  ASSERT_EQ(pieces_.size(), 1U);
  EXPECT_EQ(pieces_[0].offset, end - most);
  EXPECT_EQ(pieces_[0].flags, static_cast<uint64_t>(PERF_AUX_FLAG_OVERWRITE));
  ASSERT_EQ(pieces_[0].bytes.size(), most);
  for (uint64_t i = 0; i < most; ++i) ASSERT_EQ(pieces_[0].bytes[i], byte_at(end - most + i));
  EXPECT_EQ(process->record_totals().short_snapshots, 0U);
  process->snapshot(context(), most);  // nothing new
  EXPECT_EQ(pieces_.size(), 1U);
  EXPECT_EQ(process->record_totals().short_snapshots, 0U);
}

TEST_F(ChannelTest, SnapshotsThatAreCutShortAreCounted) {
  auto process = connect_for_snapshots();
  ASSERT_TRUE(process);
  const auto slot = claim_aux(5 * aux_bytes());
  process->snapshot(context(), aux_bytes());
  ASSERT_EQ(pieces_.size(), 1U);
  EXPECT_EQ(pieces_[0].bytes.size(), aux_bytes() - channel::kAuxAheadBytes);
  EXPECT_EQ(process->record_totals().short_snapshots, 1U);
  slot.header->aux_written = 100;  // fewer than before, as damage may have it
  process->snapshot(context(), aux_bytes());
  ASSERT_EQ(pieces_.size(), 2U);
  EXPECT_EQ(pieces_[1].bytes.size(), 100U);
}

// A program that scribbles while its snapshots are taken damages no more than these.
TEST_F(ChannelTest, SnapshotsOfADamagedPositionStayWithinTheArea) {
  auto process = connect_for_snapshots();
  ASSERT_TRUE(process);
  const auto slot = claim_aux(100);
  std::atomic<bool> stop{false};
  std::thread scribbler([&] {
    for (uint64_t i = 1; !stop; ++i) slot.header->aux_written = i * 0x9e3779b97f4a7c15;
  });
  while (slot.header->aux_written == 100) ::usleep(100);
  for (int i = 0; i < 2000; ++i) process->snapshot(context(), i % 2 == 0 ? 0 : 4096);
  stop = true;
  scribbler.join();
  for (const Taken& taken : pieces_) ASSERT_LE(taken.bytes.size(), aux_bytes());
}

}  // namespace
}  // namespace auxtrail::record
