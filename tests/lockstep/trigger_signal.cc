// See trigger_signal.h.
#include "trigger_signal.h"

#include <cstddef>
#include <cstring>

namespace auxtrail::lockstep {
namespace {

constexpr int kTrapPerf = 6;            // TRAP_PERF
constexpr size_t kPerfDataOffset = 24;  // of si_perf_data

}  // namespace

siginfo_t TriggerInfo(uint64_t cookie) {
  siginfo_t info{};
  info.si_signo = SIGTRAP;
  info.si_code = kTrapPerf;
  std::memcpy(reinterpret_cast<char*>(&info) + kPerfDataOffset, &cookie, sizeof cookie);
  return info;
}

}  // namespace auxtrail::lockstep
