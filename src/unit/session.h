// Session: this process's connection with the recorder, and the memory both share
// (channel/layout.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "channel/layout.h"

namespace auxtrail::unit {

struct Thread;

struct Session {
  channel::SessionConfig config{};
  bool stopped = false;         // for good: overflows are ignored without a single system call
  std::byte* memory = nullptr;  // the shared memory, null while not sampled
  size_t memory_bytes = 0;
  Thread* threads[channel::kSlotCount] = {};  // private state, kept when a slot changes hands

  [[nodiscard]] channel::ProcessHeader* header() const {
    return reinterpret_cast<channel::ProcessHeader*>(memory);
  }
};
extern Session session;

// Connects to the recorder named in `socket_path`, creates the shared memory and opens the trigger
// for the calling thread and all threads it will create. Called with our handlers installed, from a
// constructor or an atfork handler (single threaded). On any failure the process goes on without
// being sampled. Leaves no descriptor open.
bool session_start(const char* socket_path);
// Tells the recorder that this process is left alone, and why. Not where a sandbox could object.
void session_decline(const char* socket_path, channel::Declined why);
// The process is about to restrict its own system calls (seccomp): stops sampling it for good. The
// recorder is asked to close the trigger, and gets a moment to do so.
void session_stop();
// In a forked child: forgets the parent's memory (it stays the parent's).
void session_forget();

}  // namespace auxtrail::unit
