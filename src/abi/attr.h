// perf_event_attr: reading one of any published size, and event names in both directions.
#pragma once

#include <linux/perf_event.h>

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace auxtrail::abi {

// The event of continuous trace by the software unit whose samples are signals that ended a
// process; the weight is the signal, the address what it was about. A file of windows has no such
// event.
inline constexpr char kFatalSignalEvent[] = "fatal-signal";

// PMU type number -> name, as in /sys/bus/event_source/devices/*/type or the PMU_MAPPINGS feature.
using PmuNames = std::map<uint32_t, std::string>;

// An attr of `bytes.size()` bytes: shorter than ours gets zeros at the end, longer (a newer
// kernel's) is cut. attr.size is left as it was. Nothing if there are fewer than
// PERF_ATTR_SIZE_VER0 bytes.
std::optional<perf_event_attr> read_attr(std::span<const std::byte> bytes);

// A name in perf's form, "cpu-clock:u", "cycles:ppp", "L1-dcache-load-misses", "intel_pt//u",
// "r1a8", "mem:0x1234:rw", as far as the attr tells; "unknown-attr-type-8" for a type that nobody
// names.
std::string event_name(const perf_event_attr& attr, const PmuNames& pmus = {});

// The attr (type and config only, plus exclude_* and precise_ip from a ":modifier") of a generic
// hardware, software, hardware cache or raw (rNNN) event name; aliases as perf has them. Nothing if
// no such name.
std::optional<perf_event_attr> find_event(std::string_view name);

// All generic names of find_event(), for help texts: software first, then hardware.
std::vector<std::string_view> generic_event_names();

}  // namespace auxtrail::abi
