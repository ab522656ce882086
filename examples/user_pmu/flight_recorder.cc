#include "flight_recorder.h"

#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

namespace user_pmu {
namespace {

using namespace auxtrail::event;  // NOLINT: an example

constexpr uint32_t kType =
    1000;  // of our own; perf_event_open(2) numbers its dynamic PMUs likewise

int setup_aux(Event& leader, AuxArea& area, bool overwrite) {
  if (!overwrite) return EINVAL;
  leader.hw.context = &area;
  return 0;
}

int64_t snapshot_aux(Event& leader, OutputHandle& handle, uint64_t size_bytes) {
  return static_cast<AuxArea*>(leader.hw.context)->copy_newest(handle, size_bytes);
}

uint64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace

constinit const Pmu kFlightRecorder{
    .name = "flight_recorder",
    .type = kType,
    .setup_aux = setup_aux,
    .snapshot_aux = snapshot_aux,
};

FlightRecorder::FlightRecorder(uint32_t tid, uint32_t sample_bytes)
    : tid_(tid), data_(kDataBytes), lines_(kAuxBytes) {
  leader_.size = sizeof leader_;
  leader_.type = kType;
  sampler_.size = sizeof sampler_;
  sampler_.type = PERF_TYPE_SOFTWARE;
  sampler_.config = PERF_COUNT_SW_DUMMY;
  sampler_.sample_type = PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_ADDR | PERF_SAMPLE_AUX;
  sampler_.aux_sample_size = sample_bytes;
  DataRing::init_control_page(control_, sizeof control_, kDataBytes);
  AuxArea::init_control_page(control_, sizeof control_ + kDataBytes, kAuxBytes);
  const int error = context_.init({.leader = &leader_,
                                   .sampler = &sampler_,
                                   .leader_id = 1,
                                   .sampler_id = 2,
                                   .leader_pmu = &kFlightRecorder,
                                   .tid = tid,
                                   .control = &control_,
                                   .data = data_.data(),
                                   .data_bytes = kDataBytes,
                                   .aux = lines_.data(),
                                   .aux_bytes = kAuxBytes});
  if (error != 0) throw std::system_error(error, std::generic_category(), "flight recorder");
}

void FlightRecorder::note(std::string_view line) {
  // Each write becomes part of the area as a whole: a sample that comes in between has the area as
  // it was before.
  context_.aux().write(line.data(), line.size());
  context_.aux().write("\n", 1);
}

void FlightRecorder::sample(uint64_t reason) {
  context_.overflow({.pid = tid_, .tid = tid_, .time_ns = now_ns(), .addr = reason});
}

RingReader FlightRecorder::reader() { return {&control_, data_.data(), kDataBytes}; }

}  // namespace user_pmu
