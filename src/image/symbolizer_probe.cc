// See symbolizer_probe.h.
#include "image/symbolizer_probe.h"

namespace auxtrail::image {
int symbolizer_probe(int number) { return number * 3 + 1; }
}  // namespace auxtrail::image
