// The packets of a trace in the form of libipt's ptdump, which its own tests expect.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pt/trace_config.h"

namespace auxtrail::pt::testing {

// ptdump's options, as far as they change what is printed here. Those of the clock are not among
// them: pt/ reads packets, and the time they tell is another layer's.
struct PtdumpOptions {
  bool offset = true;
  bool sync = true;
  bool cyc = true;
  bool last_ip = false;
  bool exec_mode = false;
};

// From "--lastip --no-offset"; options of the clock are ignored. Others end the test's case: they
// are added to `unknown`.
PtdumpOptions ptdump_options(std::string_view text, std::vector<std::string>& unknown);

// Lines with single blanks between the columns.
std::vector<std::string> ptdump(std::span<const std::byte> trace, const PtdumpOptions& options,
                                const Errata& errata);

}  // namespace auxtrail::pt::testing
