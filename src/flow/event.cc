// The names of events, for people and tests.
#include "flow/event.h"

#include <array>

namespace auxtrail::flow {
namespace {

constexpr std::array<std::string_view, static_cast<size_t>(EventKind::kCount)> kNames = {
    "none",         "tnt",
    "tip",          "enabled",
    "disabled",     "async disabled",
    "async branch", "overflow",
    "stop",         "exec mode",
    "tsx",          "paging",
    "async paging", "vmcs",
    "async vmcs",   "interrupt flag",
    "exstop",       "mwait",
    "pwre",         "pwrx",
    "ptwrite",      "tick",
    "cbr",          "mnt",
    "trigger",      "interrupt",
    "iret",         "smi",
    "rsm",          "sipi",
    "init",         "vmentry",
    "vmexit",       "shutdown",
    "uintr",        "uiret",
    "swintr",       "syscall",
    "block item",   "block end"};
static_assert(!kNames.back().empty());

}  // namespace

std::string_view name(EventKind kind) {
  return kind < EventKind::kCount ? kNames[static_cast<size_t>(kind)] : "unknown";
}

}  // namespace auxtrail::flow
