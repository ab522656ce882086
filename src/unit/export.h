// Marks the libc functions that the unit stands in front of; exports.map lists them too.
#pragma once

#define AUXTRAIL_EXPORT extern "C" __attribute__((visibility("default")))
