// The line that tells which programs of the traced tree were not sampled, and why.
#pragma once

#include <string>

#include "record/census.h"

namespace auxtrail::record {

// "4 of 9 program starts; static: 2 busybox, ldconfig; under a debugger: ls"; "all 9 program
// starts;
// ..."; empty if all were sampled. The commonest names come first. Reads the headers of the
// programs' files.
std::string not_sampled_text(const Census::Coverage& coverage);

}  // namespace auxtrail::record
