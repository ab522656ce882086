// See interpose.cc.
#pragma once

namespace auxtrail::unit {

// Looks libc's functions up before the program runs.
void resolve_interposed();

}  // namespace auxtrail::unit
