// The log: one entry per transfer between superblocks, written by translated code, turned into
// packets when it is full.
//
// The first unit of an entry names the exit taken (LogWord, passage.h says what that means); the
// second, if it is an indirect branch, its target. How many units an entry takes goes by how much
// it may become: the room that is left for packets says how far the log may go. An indirect branch
// takes kIndirectUnits in a window, so one unit never stands for much more than a byte of packets,
// and kPackedUnits in continuous tracing, where a log holds more.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pt/packet_writer.h"
#include "unit/passage.h"
#include "unit/return_stack.h"

namespace auxtrail::unit {

struct Thread;

using LogEntry = uint64_t;
inline constexpr uint64_t kTargetMask = 0x0000ffffffffffff;
inline constexpr size_t kIndirectUnits = 8;
inline constexpr size_t kPackedUnits = 2;

// Windows are short: longer superblocks would not pay for their translation.
inline constexpr uint32_t kWindowPathBits = 7;
// Six times the most that one unit of a window's log can become: its outcomes at six to a byte. An
// indirect entry has these, a byte for what the TIP flushes unfilled, and the TIP itself.
inline constexpr size_t kMaxUnitBytes6 = kWindowPathBits;
static_assert(kIndirectUnits * kMaxUnitBytes6 >=
              kWindowPathBits + 6 * (1 + pt::PacketWriter::kMaxTipBytes));

// The most bytes that a unit of a packed log can become.
inline constexpr size_t kMaxPackedUnitBytes = 6;
static_assert(kPackedUnits * kMaxPackedUnitBytes >=
              kMaxPathBits / 6 + 2 + pt::PacketWriter::kMaxTipBytes);
// A direct exit in filtered trace: its outcomes, a byte for what is flushed unfilled, then what
// ends the trace, FUP and TIP.PGD; or what begins it.
inline constexpr size_t kFilteredUnits = 2;
static_assert(kFilteredUnits * kMaxPackedUnitBytes >=
              kMaxPathBits / 6 + 2 + pt::PacketWriter::kMaxTipBytes + 1);
inline constexpr size_t kViaUnits = 2;
static_assert(kViaUnits * kMaxPackedUnitBytes >=
              kMaxPathBits / 6 + 2 + pt::PacketWriter::kMaxTipBytes);

// "Full" is "bits 8 to 15 of the position are zero", which translated code can test without
// touching flags (movzx from ch). So the log's end lies on a 64 KiB boundary, and an entry may
// reach beyond it by less than 256 bytes.
inline constexpr size_t kLogUnits = 512;
inline constexpr size_t kLogAlignment = 65536;
inline constexpr size_t kMaxEntryUnits = 16;
static_assert(kIndirectUnits <= kMaxEntryUnits &&
              kPackedUnits + kMaxVias * kViaUnits <= kMaxEntryUnits &&
              kFilteredUnits + kMaxVias * kViaUnits <= kMaxEntryUnits);
inline constexpr size_t kLogOverrunBytes = kMaxEntryUnits * sizeof(LogEntry);
static_assert(kLogOverrunBytes < 256 && kLogUnits * sizeof(LogEntry) <= kLogAlignment - 256);

constexpr bool log_is_full(uint64_t position) { return (position & 0xff00) == 0; }

// Continuous trace: hot_code.cc gets to know of a thread's first so many logs, then of one in so
// many, whose exits stand for as many of their like.
inline constexpr uint32_t kLearnsAll = 1 << 12;
inline constexpr uint32_t kLearnsEvery = 8;

// For how many of its like an exit of the thread's next log stands; 0: nothing is learned of it.
// Counts the logs: once for each.
uint32_t next_learning_weight(Thread& thread);
// Turns entries into packets, from `entry` up to the first that does not begin before `end`, which
// is returned. hot_code.cc learns of their exits with that weight, if it is not 0.
const LogEntry* write_packets(Thread& thread, const LogEntry* entry, const LogEntry* end,
                              uint32_t weight);
// Learns of some entries alone.
void learn(Thread& thread, const LogEntry* entry, const LogEntry* end, uint32_t weight);
// What write_packets() does where address filters say what is traced (filtered_log.cc); each exit
// stands for `weight` of its like, if that is not 0.
void write_filtered(Thread& thread, const LogEntry* entry, const LogEntry* end, uint32_t weight);
// Lets hot_code.cc know of an exit that was taken. `target` is an indirect exit's.
void learn_exit(Thread& thread, LogWord word, uint64_t target, uint32_t weight);
// The packets of what happened in a superblock.
void write_way(pt::PacketWriter& writer, ReturnStack& returns, const Way& way);
// Begins an empty log of so many units.
void start_log(Thread& thread, size_t units);

}  // namespace auxtrail::unit
