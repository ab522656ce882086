// For tests of what becomes of the log: a thread of the unit's that never runs, and libipt to read
// its packets.
#pragma once

#include <gtest/gtest.h>
#include <intel-pt.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "unit/branch_log.h"
#include "unit/code_cache.h"
#include "unit/session.h"
#include "unit/thread_state.h"

namespace auxtrail::unit {

// 'T' and 'N' for outcomes, 'I' for a TIP, 'E' for TIP.PGE, 'D' for TIP.PGD with a target ('d'
// without), 'P' for a PSB, 'F' for a FUP, 'S' for TraceStop.
inline std::string packet_letters(const std::vector<uint8_t>& packets, size_t bytes) {
  pt_config config;
  pt_config_init(&config);
  config.begin = const_cast<uint8_t*>(packets.data());
  config.end = config.begin + bytes;
  pt_packet_decoder* const decoder = pt_pkt_alloc_decoder(&config);
  EXPECT_EQ(pt_pkt_sync_set(decoder, 0), 0);
  std::string result;
  pt_packet packet{};
  while (pt_pkt_next(decoder, &packet, sizeof packet) > 0) {
    if (packet.type == ppt_tip) result += 'I';
    if (packet.type == ppt_tip_pge) result += 'E';
    if (packet.type == ppt_tip_pgd) {
      result += packet.payload.ip.ipc == pt_ipc_suppressed ? 'd' : 'D';
    }
    if (packet.type == ppt_psb) result += 'P';
    if (packet.type == ppt_fup) result += 'F';
    if (packet.type == ppt_stop) result += 'S';
    for (int i = packet.type == ppt_tnt_8 ? packet.payload.tnt.bit_size : 0; i-- > 0;) {
      result += (packet.payload.tnt.payload >> i & 1) != 0 ? 'T' : 'N';
    }
  }
  pt_pkt_free_decoder(decoder);
  return result;
}

class LogFixture : public ::testing::Test {
 protected:
  void SetUp() override {
    session.config.continuous = 1;
    ASSERT_TRUE(code_cache.ensure_ready());
    thread_->writer = pt::PacketWriter(packets_.data());
    thread_->psb_due_bytes = SIZE_MAX;
  }

  static Block* get(void (*function)()) {
    channel::Reason why;
    return code_cache.get(reinterpret_cast<uint64_t>(function), true, &why);
  }
  // The exit of that index was taken; to `target`, if it is indirect.
  void take(const Block& block, uint32_t exit, uint64_t target = 0) {
    const uint32_t number = block.first_exit + exit;
    const size_t at = log_.size();
    const LogWord word(number, code_cache.passages()[number]);
    log_.resize(at + word.units());
    log_[at] = uint64_t{word.high()} << 32 | word.low();
    if (target != 0) log_[at + 1] = target;
  }
  // The thread is about to empty its log: returns where that ends.
  uint64_t start_draining() {
    const size_t bytes = log_.size() * sizeof(LogEntry);
    log_.resize(log_.size() + 1);  // the unit reads one beyond
    thread_->log_start = reinterpret_cast<uint64_t>(log_.data());
    return thread_->log_start + bytes;
  }
  // The packets of the log, and what hot code learns of it.
  void write() {
    const auto* const end = reinterpret_cast<const LogEntry*>(start_draining());
    (void)write_packets(*thread_, log_.data(), end, next_learning_weight(*thread_));
  }
  std::string read() {
    thread_->writer.flush_tnt();
    return packet_letters(packets_, thread_->writer.size_bytes());
  }

  std::vector<uint8_t> packets_ = std::vector<uint8_t>(65536);
  std::vector<LogEntry> log_;
  std::unique_ptr<Thread> thread_ = std::make_unique<Thread>();
};

}  // namespace auxtrail::unit
