#include "record/sample_check.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "abi/sample_layout.h"
#include "abi/side_band.h"

namespace auxtrail::record {
namespace {

// More lost records than this in one go is a scribble, not a count.
constexpr uint64_t kMaxLost = uint64_t{1} << 40;
constexpr size_t kPsbRepeats = 8;
constexpr std::array<uint8_t, 2> kPsbUnit = {0x02, 0x82};
constexpr std::array<uint8_t, 2> kPsbEnd = {0x02, 0x23};

void overwrite_pid_tid(std::span<std::byte> record, size_t offset, const RingOwner& owner) {
  const std::array<uint32_t, 2> ids = {static_cast<uint32_t>(owner.pid),
                                       static_cast<uint32_t>(owner.tid)};
  std::memcpy(record.data() + offset, ids.data(), sizeof(ids));
}

void overwrite_misc(std::span<std::byte> record, uint16_t misc) {
  std::memcpy(record.data() + offsetof(perf_event_header, misc), &misc, sizeof(misc));
}

}  // namespace

SampleCheck::SampleCheck(const channel::SessionConfig& config, uint64_t session_start_ns)
    : session_start_ns_(session_start_ns) {
  for (uint32_t i = 0; i < config.sampler_count; ++i) {
    const channel::Sampler& sampler = config.samplers[i];
    samplers_.push_back(
        {abi::SampleFormat::from_attr(sampler.attr), sampler.id, sampler.attr.aux_sample_size});
  }
}

const SampleCheck::Sampler* SampleCheck::sampler_of(uint64_t id) const {
  const auto found = std::find_if(samplers_.begin(), samplers_.end(),
                                  [id](const Sampler& sampler) { return sampler.id == id; });
  return found == samplers_.end() ? nullptr : &*found;
}

SampleCheck::Accepted SampleCheck::check(std::span<std::byte> record, const RingOwner& owner,
                                         uint64_t now_ns) const {
  perf_event_header header{};
  if (record.size() < sizeof(header)) return {};
  std::memcpy(&header, record.data(), sizeof(header));
  if (header.type == PERF_RECORD_SAMPLE) return check_sample(record, owner, now_ns);
  if (header.type == PERF_RECORD_LOST) return check_lost(record, owner, now_ns);
  return {};
}

SampleCheck::Accepted SampleCheck::check_sample(std::span<std::byte> record, const RingOwner& owner,
                                                uint64_t now_ns) const {
  const abi::Record view{PERF_RECORD_SAMPLE, PERF_RECORD_MISC_USER, record};
  abi::Sample sample;
  uint64_t id = 0;  // IDENTIFIER is the first field of every layout
  if (record.size() < sizeof(perf_event_header) + sizeof(id)) return {};
  std::memcpy(&id, record.data() + sizeof(perf_event_header), sizeof(id));
  const Sampler* const sampler = sampler_of(id);
  if (sampler == nullptr) return {};
  if (abi::parse_sample(view, sampler->format, sample) != abi::ParseStatus::kOk) return {};
  if (!believable(sample.id, owner, now_ns)) return {};
  const bool needs_trace = sampler->max_aux_bytes != 0;
  if (sample.aux.size() > sampler->max_aux_bytes || (needs_trace && !has_trace_start(sample.aux)))
    return {};
  overwrite_misc(record, PERF_RECORD_MISC_USER);
  overwrite_pid_tid(
      record, abi::sample_field_offset(sampler->format.sample_type, abi::SampleField::kTid), owner);
  return {Verdict::kSample, sample.id.time_ns, sample.aux.size(), 0};
}

SampleCheck::Accepted SampleCheck::check_lost(std::span<std::byte> record, const RingOwner& owner,
                                              uint64_t now_ns) const {
  const abi::Record view{PERF_RECORD_LOST, 0, record};
  // The trailers of all samplers have the same layout.
  const abi::SampleFormat& format = samplers_.front().format;
  const size_t trailer_bytes = abi::trailer_bytes(format.sample_type, format.sample_id_all);
  if (record.size() != sizeof(perf_event_header) + 2 * sizeof(uint64_t) + trailer_bytes) return {};
  abi::LostRecord lost;
  if (abi::parse(view, format, lost) != abi::ParseStatus::kOk) return {};
  if (lost.lost > kMaxLost || sampler_of(lost.event_id) == nullptr || lost.id.id != lost.event_id ||
      !believable(lost.id, owner, now_ns)) {
    return {};
  }
  overwrite_misc(record, 0);
  overwrite_pid_tid(record,
                    record.size() - abi::trailer_field_offset_from_end(format.sample_type,
                                                                       abi::SampleField::kTid),
                    owner);
  return {Verdict::kLost, lost.id.time_ns, 0, lost.lost};
}

bool SampleCheck::believable(const abi::SampleId& id, const RingOwner& owner,
                             uint64_t now_ns) const {
  return id.pid == owner.inner_pid && id.tid == owner.inner_tid &&
         id.time_ns >= session_start_ns_ && id.time_ns <= now_ns;
}

bool has_trace_start(std::span<const std::byte> aux) {
  std::array<uint8_t, 2 * kPsbRepeats> psb{};
  for (size_t i = 0; i < psb.size(); ++i) psb[i] = kPsbUnit[i % kPsbUnit.size()];
  const auto* first = reinterpret_cast<const uint8_t*>(aux.data());
  const auto* last = first + aux.size();
  const auto* found = std::search(first, last, psb.begin(), psb.end());
  if (found == last) return false;
  return std::search(found + psb.size(), last, kPsbEnd.begin(), kPsbEnd.end()) != last;
}

}  // namespace auxtrail::record
