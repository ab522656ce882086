// The functions of a stripped ELF file, without their names.
//
// Stripping leaves the unwind information, and .eh_frame_hdr is a sorted table of where each
// function in it begins. Reference: Linux Standard Base 5.0, "Exception Frames".
#pragma once

#include <libelf.h>

#include <vector>

#include "image/symbolizer.h"

namespace auxtrail::image {

// Sorted by address; each reaches to the next one or to the end of its section. Their names say
// where they begin: "[gzip+0x4a30]". Empty if there is no such table, or none of the usual form.
std::vector<Function> read_unwind_functions(Elf* elf, const Dso* dso);

}  // namespace auxtrail::image
