// Address space limits (RLIMIT_AS, RLIMIT_DATA) and the unit's own mappings.
//
// A process that starts with such a limit is not sampled. One that sets a limit itself gets that
// limit plus what the unit has mapped so far, reads back what it asked for, and the unit maps
// nothing more.
#pragma once

namespace auxtrail::unit {

bool address_space_is_limited();

}  // namespace auxtrail::unit
