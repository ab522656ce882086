// See interpose.cc.
#pragma once

namespace auxtrail::unit {

// Both look libc's functions up before the program runs; the first calls the second.
void resolve_interposed();
void resolve_interposed_waits();

}  // namespace auxtrail::unit
