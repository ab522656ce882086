// A function with a name that only this test can have; in its own file so that it is not inlined.
#pragma once

namespace auxtrail::image {
int symbolizer_probe(int number);
}  // namespace auxtrail::image
