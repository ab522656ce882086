// Branch: one taken transfer of control, the unit of everything that comes after decoding.
//
// The meaning is Linux perf's (`perf script --itrace=b`): only taken branches; tracing that begins
// or ends is a branch from or to address 0.
#pragma once

#include <cstdint>
#include <string_view>

namespace auxtrail::decode {

enum class BranchKind : uint8_t {
  kConditional,   // jcc, loop, jcxz: taken
  kJump,          // jmp rel
  kCall,          // call rel
  kJumpIndirect,  // jmp r/m
  kCallIndirect,  // call r/m
  kReturn,        // ret
  kSyscall,       // syscall, sysenter, int n: into the kernel
  kFar,           // iret, sysret, far jmp/call/ret and the like
  kAsync,         // interrupt, exception or signal at `from`
  kTraceBegin,    // from is 0
  kTraceEnd,      // to is 0, asynchronous: the flow was at `from`, which is no branch
  kCount
};

// perf's words: "jcc", "jmp", "call", "return", "syscall", "async", "tr strt", "tr end" ...
std::string_view name(BranchKind kind);

struct Branch {
  uint64_t from = 0;  // address of the branch instruction; 0 for kTraceBegin
  uint64_t to = 0;    // where it led; 0 when tracing ended with it
  BranchKind kind = BranchKind::kJump;
  // Tracing ended with this branch (a system call, say): `to` is 0 or the first address outside the
  // filter.
  bool ends_trace = false;
  // Of the branch instruction, bytes; 0: unknown. A call's return address is from + length.
  uint8_t length = 0;

  [[nodiscard]] bool is_marker() const {
    return kind == BranchKind::kTraceBegin || kind == BranchKind::kTraceEnd;
  }
  // By what happened: the length is the code's, and not every decoder knows it everywhere.
  bool operator==(const Branch& other) const {
    return from == other.from && to == other.to && kind == other.kind &&
           ends_trace == other.ends_trace;
  }
};
static_assert(sizeof(Branch) == 24);

// Instructions executed one after the other, without a taken branch between them.
struct Block {
  uint64_t first_ip = 0;
  uint64_t last_ip = 0;  // address of the last instruction, not behind it
  uint32_t instructions = 0;
};

}  // namespace auxtrail::decode
