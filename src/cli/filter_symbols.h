// The functions that --filter names, found in their files.
#pragma once

#include "record/address_filter.h"

namespace auxtrail::cli {

// A record::FindSymbol. Errors: the file can't be read, no such function, several without an index
// (says how to choose), an index beyond them.
Result<record::FileRange> find_filter_symbol(const std::string& file,
                                             const record::FilterPlace& place);

}  // namespace auxtrail::cli
