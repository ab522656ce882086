// ContinuousTracee: the traced process of a pair in continuous trace: how it is brought into the
// code cache, driven through it, made to overflow and to leave.
//
//   native ──enter()──► cache ──run(), step()──► cache | a call in the gate | native | exited
//                         ▲                               │
//                         └──────── Pair::make_call() ────┘
//
// All is done by signals and stops that a program under a debugger could see as well; only the
// gate's place in the unit is known.
#pragma once

#include <signal.h>

#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "pair.h"

namespace auxtrail::lockstep {

inline constexpr int kLeaveSignal = SIGWINCH;  // which programs have no handler for

enum class Place : uint8_t {
  kCache,   // in translated code, or in the unit on its behalf
  kCall,    // at the entry of a system call of the program's, in the gate
  kNative,  // at an instruction of the program's own
  kSignal,  // there, or in the gate; a signal that was sent is about to be delivered
  kExited
};

class ContinuousTracee {
 public:
  explicit ContinuousTracee(Pair& pair) : pair_(pair), traced_(pair.traced()) {}

  // Delivers the entry event's signal, natively. kNative: the unit could not enter here.
  Place enter();
  // Goes on until the unit has looked for signals that wait so many times, or it is elsewhere. It
  // does so when a log is full, and is back in translated code soon.
  Place run(uint64_t polls);
  // Goes on until some system call of the unit's own has returned, or it is elsewhere.
  Place run_to_own_call();
  // Goes on to some place in the cache where it stood before, but not further than run(1).
  Place run_to_seen(std::mt19937_64& random);
  // Goes on by at most `count` instructions of translated code or the unit.
  Place step(uint64_t count);
  // Lets the unit's code do what it is at, or what comes next, up to where translated code goes on:
  // the registers are the program's there. If that is missed `done` is false afterwards.
  Place finish_unit_work(bool* done);
  // Delivers a sampler's signal and lets its handler work until it has returned. Not at kCall.
  Place overflow();
  // Sends a signal, which is blocked in the cache, so the unit is to leave at its next chance. When
  // it arrives it is taken away, and if it is not kLeaveSignal, told. Not while one is under way.
  void send(int signal);

  // At kCall: the registers as a program has them in the kernel, its instruction pointer behind the
  // call. rcx, r11 and the flags are the gate's own.
  [[nodiscard]] Registers registers_at_call() const;
  [[nodiscard]] uint64_t call_number() const { return call_number_; }
  [[nodiscard]] uint64_t call_address() const;
  // The registers at a sample that was just taken at `ip` of the program, in the cache.
  [[nodiscard]] Registers registers_at(uint64_t ip) const;

 private:
  // What go() returns at, but for the program's calls and when it is not in the cache any more.
  enum class Until : uint8_t { kPolled, kOwnCall, kHandled, kReached };
  Place go(int signal, Until until);
  [[nodiscard]] bool is_reason_to_stop(Until until) const;
  bool returned();
  Place deliver(uint64_t cookie);
  void set_breakpoint(uint64_t address);
  void run_to_breakpoints();
  bool is_reached();
  [[nodiscard]] uint64_t return_to_cache() const;
  void note_seen(uint64_t ip);
  void save_dead_stack();
  void restore_dead_stack();
  bool take_away(int& signal);
  void take_sent();

  Pair& pair_;
  Tracee& traced_;
  Place place_ = Place::kNative;
  uint64_t call_number_ = 0;
  int sent_ = 0;                // the signal that is under way
  std::vector<uint64_t> seen_;  // addresses in the cache, the oldest at seen_next_
  size_t seen_next_ = 0;
  std::set<uint64_t> stubs_;                  // where C++ code returned to
  std::map<uint64_t, uint64_t> breakpoints_;  // and the bytes that are there
  // Of the signal that is being handled; 0: none is.
  uint64_t interrupted_ip_ = 0;
  uint64_t interrupted_rsp_ = 0;
  uint64_t dead_stack_ = 0;
  std::vector<std::byte> dead_bytes_;
};

}  // namespace auxtrail::lockstep
