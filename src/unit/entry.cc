// See entry.h.
#include "unit/entry.h"

#include "unit/context.h"
#include "unit/session.h"
#include "unit/signals.h"

constexpr auxtrail::unit::EntryInfo auxtrail_entry_info{.signal = SIGTRAP,
                                                        .error = 0,
                                                        .code = SI_TIMER,
                                                        .pad = 0,
                                                        .timer = {},
                                                        .value = auxtrail::unit::kEntryCookie,
                                                        .rest = {}};

namespace auxtrail::unit {

bool wants_entry() {
  return session.config.continuous != 0 && session.memory != nullptr && !session.stopped;
}

void return_from_entry(ucontext_t& context) {
  auto& registers = context.uc_mcontext.gregs;
  if (registers[REG_RIP] != reinterpret_cast<greg_t>(auxtrail_entered)) return;
  const auto* stack = reinterpret_cast<const greg_t*>(registers[REG_RSP]);
  registers[REG_RAX] = stack[0];
  registers[REG_RDX] = stack[1];
  registers[REG_RDI] = stack[2];
  registers[REG_RIP] = stack[3];
  registers[REG_RSP] += 4 * static_cast<greg_t>(sizeof(greg_t));
}

}  // namespace auxtrail::unit
