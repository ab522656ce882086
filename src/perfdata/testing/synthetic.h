// Small perf.data files made from nothing, for tests and as the fuzzer's seeds.
//
// Everything in them is fixed: no names of machines, no times of day.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "perfdata/event.h"
#include "perfdata/features.h"
#include "perfdata/writer.h"

namespace auxtrail::perfdata::testing {

inline constexpr uint64_t kLeaderId = 11;
inline constexpr uint64_t kSamplerId = 101;
inline constexpr uint32_t kPid = 4242;

// The recommended pair: an intel_pt leader and a cpu-clock sampler with AUX samples.
std::vector<Event> intel_pt_events();
// All the features that Features can hold, AUXTRACE apart.
Features all_features();

// A sample of the sampler of intel_pt_events().
void append_aux_sample(ByteWriter& out, uint64_t ip, uint64_t time_ns,
                       std::span<const std::byte> aux, uint32_t tid = kPid);

// The bytes of a file with these events and what `fill` appends.
std::vector<std::byte> make_file(std::vector<Event> events, const Features& features,
                                 const std::function<void(Writer&)>& fill,
                                 WriterOptions options = {});

// Whole files.
std::vector<std::byte> intel_pt_file();     // AUXTRACE_INFO, side-band, AUX samples, every feature
std::vector<std::byte> full_trace_file();   // ITRACE_START, AUX, AUXTRACE records of two threads
std::vector<std::byte> every_field_file();  // one sample with every sample_type bit
std::vector<std::byte> side_band_file();    // one record of every type of the kernel and the tools
std::vector<std::byte> compressed_file();   // samples inside COMPRESSED records

// The event of every_field_file() and the values that stand in its sample.
Event every_field_event();
inline constexpr uint32_t kEveryFieldRegisters = 3;  // ax, bx, cx... as many as the mask has bits

}  // namespace auxtrail::perfdata::testing
