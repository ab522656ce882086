#include "event/attr_copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "event/aux_action.h"

namespace auxtrail::event {
namespace {

constexpr AttrPolicy kAllowed{.may_trace_kernel = true};

// `attr` at the front of `bytes` bytes (or as many as the structure has), zeros behind it.
std::vector<std::byte> image(const perf_event_attr& attr, size_t bytes) {
  std::vector<std::byte> result(std::max(bytes, sizeof(Attr)));
  std::memcpy(result.data(), &attr, std::min(sizeof attr, result.size()));
  return result;
}

perf_event_attr sized(uint32_t size) {
  perf_event_attr attr{};
  attr.size = size;
  return attr;
}

int error_of(const perf_event_attr& attr, const AttrPolicy& policy = kAllowed) {
  return copy_attr(image(attr, attr.size).data(), policy).error;
}
int error_of(void (*change)(perf_event_attr&), const AttrPolicy& policy = kAllowed) {
  perf_event_attr attr = sized(sizeof attr);
  change(attr);
  return error_of(attr, policy);
}

TEST(AttrCopy, A2_SizesOfAllTimes) {
  for (const uint32_t size : {64, 72, 80, 96, 104, 112, 120, 128, 136}) {
    const AttrCopy copy = copy_attr(image(sized(size), size).data(), kAllowed);
    EXPECT_EQ(copy.error, 0) << size;
    EXPECT_EQ(copy.attr.v7.size, size);
    EXPECT_EQ(copy.size_back, 0U);
  }
  EXPECT_EQ(copy_attr(image(sized(0), 64).data(), kAllowed).attr.v7.size, 64U);
}

TEST(AttrCopy, A2_TooSmallOrTooLargeTellsTheKnownSize) {
  for (const uint32_t size : {1U, 63U, 4097U, ~0U}) {
    const AttrCopy copy = copy_attr(image(sized(size), 4096).data(), kAllowed);
    EXPECT_EQ(copy.error, E2BIG) << size;
    EXPECT_EQ(copy.size_back, 136U);
  }
}

TEST(AttrCopy, A2_AnUnknownTailMustBeZero) {
  for (const uint32_t size : {137U, 144U, 4096U}) {
    std::vector<std::byte> bytes = image(sized(size), size);
    EXPECT_EQ(copy_attr(bytes.data(), kAllowed).error, 0) << size;
    bytes.back() = std::byte{1};
    EXPECT_EQ(copy_attr(bytes.data(), kAllowed).error, E2BIG) << size;
    EXPECT_EQ(copy_attr(bytes.data(), kAllowed).size_back, 136U);
  }
}

TEST(AttrCopy, A2_FieldsBeyondAShortAttrAreZero) {
  perf_event_attr attr = sized(PERF_ATTR_SIZE_VER5);
  attr.aux_watermark = 4096;
  attr.aux_sample_size = 4096;
  attr.sig_data = 7;
  const AttrCopy copy = copy_attr(image(attr, sizeof attr).data(), kAllowed);
  EXPECT_EQ(copy.error, 0);
  EXPECT_EQ(copy.attr.v7.aux_watermark, 4096U);
  EXPECT_EQ(copy.attr.v7.aux_sample_size, 0U);
  EXPECT_EQ(copy.attr.v7.sig_data, 0U);
}

TEST(AttrCopy, A2_TheNewestFieldIsTaken) {
  std::vector<std::byte> bytes = image(sized(136), 136);
  bytes[128] = std::byte{5};
  EXPECT_EQ(copy_attr(bytes.data(), kAllowed).attr.config3, 5U);
}

TEST(AttrCopy, A3_ReservedBits) {
  EXPECT_EQ(error_of([](perf_event_attr& attr) { attr.__reserved_1 = 1; }), EINVAL);
  EXPECT_EQ(error_of([](perf_event_attr& attr) { attr.__reserved_2 = 1; }), EINVAL);
  EXPECT_EQ(error_of([](perf_event_attr& attr) { set_aux_action(attr, 8); }), EINVAL);
  EXPECT_EQ(error_of([](perf_event_attr& attr) { set_aux_action(attr, kAllAuxActions); }), 0);
}

TEST(AttrCopy, A3_UnknownTypesAndFormats) {
  EXPECT_EQ(error_of([](perf_event_attr& attr) { attr.sample_type = PERF_SAMPLE_MAX; }), EINVAL);
  EXPECT_EQ(error_of([](perf_event_attr& attr) { attr.read_format = PERF_FORMAT_MAX; }), EINVAL);
}

TEST(AttrCopy, A3_Weights) {
  EXPECT_EQ(error_of([](perf_event_attr& attr) {
              attr.sample_type = uint64_t{PERF_SAMPLE_WEIGHT} | PERF_SAMPLE_WEIGHT_STRUCT;
            }),
            EINVAL);
  EXPECT_EQ(error_of([](perf_event_attr& attr) { attr.sample_type = PERF_SAMPLE_WEIGHT; }), 0);
}

TEST(AttrCopy, A3_BranchMasks) {
  const auto with_mask = [](uint64_t mask) {
    perf_event_attr attr = sized(sizeof attr);
    attr.sample_type = PERF_SAMPLE_BRANCH_STACK;
    attr.branch_sample_type = mask;
    return error_of(attr);
  };
  EXPECT_EQ(with_mask(0), EINVAL);
  EXPECT_EQ(with_mask(PERF_SAMPLE_BRANCH_USER), EINVAL) << "a privilege alone is no type";
  EXPECT_EQ(with_mask(PERF_SAMPLE_BRANCH_MAX), EINVAL);
  EXPECT_EQ(with_mask(PERF_SAMPLE_BRANCH_ANY), 0);
}

TEST(AttrCopy, A3_BranchesHaveTheEventsPrivilegesUnlessSaid) {
  perf_event_attr attr = sized(sizeof attr);
  attr.sample_type = PERF_SAMPLE_BRANCH_STACK;
  attr.branch_sample_type = PERF_SAMPLE_BRANCH_ANY;
  attr.exclude_kernel = attr.exclude_hv = 1;
  const AttrPolicy user_only{};
  EXPECT_EQ(error_of(attr, user_only), 0);
  EXPECT_EQ(copy_attr(image(attr, attr.size).data(), user_only).attr.v7.branch_sample_type,
            uint64_t{PERF_SAMPLE_BRANCH_ANY} | PERF_SAMPLE_BRANCH_USER);
  attr.exclude_kernel = 0;
  EXPECT_EQ(error_of(attr, user_only), EACCES);
  EXPECT_EQ(error_of(attr, kAllowed), 0);
}

TEST(AttrCopy, A3_Registers) {
  const auto with_registers = [](uint64_t type, uint64_t mask) {
    perf_event_attr attr = sized(sizeof attr);
    attr.sample_type = type;
    attr.sample_regs_user = attr.sample_regs_intr = mask;
    return error_of(attr);
  };
  for (const uint64_t type : {PERF_SAMPLE_REGS_USER, PERF_SAMPLE_REGS_INTR}) {
    EXPECT_EQ(with_registers(type, 0), EINVAL);
    EXPECT_EQ(with_registers(type, 1 << 12), EINVAL) << "ds";
    EXPECT_EQ(with_registers(type, 1 << 24), EINVAL) << "no such register";
    EXPECT_EQ(with_registers(type, 0xff0fff), 0);
  }
}

TEST(AttrCopy, A3_UserStack) {
  const auto with_stack = [](uint32_t bytes) {
    perf_event_attr attr = sized(sizeof attr);
    attr.sample_type = PERF_SAMPLE_STACK_USER;
    attr.sample_stack_user = bytes;
    return error_of(attr);
  };
  EXPECT_EQ(with_stack(0), 0);
  EXPECT_EQ(with_stack(12), EINVAL);
  EXPECT_EQ(with_stack(65528), 0);
  EXPECT_EQ(with_stack(65535), EINVAL);
  EXPECT_EQ(with_stack(65536), EINVAL);
}

TEST(AttrCopy, A3_InheritanceAndExec) {
  EXPECT_EQ(error_of([](perf_event_attr& attr) { attr.inherit_thread = 1; }), EINVAL);
  EXPECT_EQ(error_of([](perf_event_attr& attr) { attr.inherit = attr.inherit_thread = 1; }), 0);
  EXPECT_EQ(error_of([](perf_event_attr& attr) { attr.remove_on_exec = attr.enable_on_exec = 1; }),
            EINVAL);
  EXPECT_EQ(error_of([](perf_event_attr& attr) { attr.sigtrap = 1; }), EINVAL);
  EXPECT_EQ(error_of([](perf_event_attr& attr) { attr.sigtrap = attr.remove_on_exec = 1; }), 0);
}

TEST(OpenChecks, A1_UnknownFlags) {
  EXPECT_EQ(check_open_flags(0), 0);
  EXPECT_EQ(check_open_flags(0xf), 0);
  EXPECT_EQ(check_open_flags(0x10), EINVAL);
  EXPECT_EQ(check_open_flags(uint64_t{1} << 63), EINVAL);
}

TEST(OpenChecks, A1_ControlGroupsOnOneCpu) {
  EXPECT_EQ(check_cgroup_target(PERF_FLAG_PID_CGROUP, 5, -1), EINVAL);
  EXPECT_EQ(check_cgroup_target(PERF_FLAG_PID_CGROUP, -1, 0), EINVAL);
  EXPECT_EQ(check_cgroup_target(PERF_FLAG_PID_CGROUP, 5, 0), 0);
  EXPECT_EQ(check_cgroup_target(0, -1, -1), 0);
}

TEST(OpenChecks, A4_Rights) {
  Attr attr;
  EXPECT_EQ(check_rights_and_rate(attr, {}), EACCES);
  EXPECT_EQ(check_rights_and_rate(attr, {.may_trace_kernel = true}), 0);
  attr.v7.exclude_kernel = 1;
  EXPECT_EQ(check_rights_and_rate(attr, {}), 0);
  attr.v7.sample_type = PERF_SAMPLE_PHYS_ADDR;
  EXPECT_EQ(check_rights_and_rate(attr, {}), EACCES);
  attr.v7.sample_type = 0;
  attr.v7.namespaces = 1;
  EXPECT_EQ(check_rights_and_rate(attr, {.may_trace_kernel = true}), EACCES);
  EXPECT_EQ(check_rights_and_rate(attr, {.is_perfmon = true}), 0);
}

TEST(OpenChecks, A5_Rates) {
  const AttrPolicy policy{.may_trace_kernel = true, .max_sample_rate_hz = 1000};
  Attr attr;
  attr.v7.freq = 1;
  attr.v7.sample_freq = 1000;
  EXPECT_EQ(check_rights_and_rate(attr, policy), 0);
  attr.v7.sample_freq = 1001;
  EXPECT_EQ(check_rights_and_rate(attr, policy), EINVAL);
  attr.v7.freq = 0;
  EXPECT_EQ(check_rights_and_rate(attr, policy), 0);
  attr.v7.sample_period = uint64_t{1} << 63;
  EXPECT_EQ(check_rights_and_rate(attr, policy), EINVAL);
}

TEST(AttrCopy, TheSystemsStackDepthStandsForNone) {
  EXPECT_EQ(
      copy_attr(image(sized(128), 128).data(), {.max_stack_frames = 50}).attr.v7.sample_max_stack,
      50);
  perf_event_attr attr = sized(128);
  attr.sample_max_stack = 3;
  EXPECT_EQ(copy_attr(image(attr, 128).data(), kAllowed).attr.v7.sample_max_stack, 3);
}

}  // namespace
}  // namespace auxtrail::event
