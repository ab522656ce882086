// The running kernel as the oracle of attribute checks: the same attr goes to its perf_event_open
// and to ours. The type is one that no PMU has, so whatever passes these checks ends with ENOENT.
//
// Differences that are the kernel's age and not ours: it may know a larger structure, and branch
// types and attribute bits that are newer than the header here. So those are not tried.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <random>

#include "event/attr_copy.h"
#include "event/test_support.h"

namespace auxtrail::event {
namespace {

constexpr uint32_t kNoSuchType = 0x7fffffff;
constexpr int kRounds = 100000;

uint64_t read_setting(const char* name, uint64_t otherwise) {
  std::ifstream file(std::string("/proc/sys/kernel/") + name);
  int64_t value = 0;
  return file >> value ? static_cast<uint64_t>(value) : otherwise;
}

AttrPolicy policy_of_this_system(bool privileged) {
  const auto paranoid = static_cast<int64_t>(read_setting("perf_event_paranoid", 2));
  return {.is_perfmon = privileged,
          .may_trace_kernel = privileged || paranoid <= 1,
          .max_sample_rate_hz = read_setting("perf_event_max_sample_rate", 100000)};
}

int ask_kernel(std::byte* attr, uint64_t flags) {
  const long fd = syscall(SYS_perf_event_open, attr, 0, -1, -1, flags);
  if (fd < 0) return errno;
  close(static_cast<int>(fd));
  return 0;
}

// Refused after these checks and before the PMU is looked for: by Linux 6.12 and later if the
// samples do not tell whose the counts are (TID), by older kernels always.
bool may_refuse_inherited_reads(const perf_event_attr& attr) {
  return attr.inherit != 0 && (attr.sample_type & PERF_SAMPLE_READ) != 0;
}

int ask_ours(const std::byte* bytes, uint64_t flags, const AttrPolicy& policy) {
  if (const int error = check_open_flags(flags); error != 0) return error;
  const AttrCopy copy = copy_attr(bytes, policy);
  if (copy.error != 0) return copy.error;
  if (const int error = check_rights_and_rate(copy.attr, policy); error != 0) return error;
  if (const int error = check_cgroup_target(flags, 0, -1); error != 0) return error;
  return ENOENT;
}

class RandomAttr {
 public:
  explicit RandomAttr(uint64_t seed) : random_(seed) {}

  // A sound attr with some things changed.
  void make(std::byte* bytes, size_t size) {
    perf_event_attr attr{};
    attr.type = kNoSuchType;
    attr.size = pick<uint32_t>({128, 128, 128, 120, 112, 96, 64, 0, 136, 200, 63, 4097});
    attr.exclude_kernel = attr.exclude_hv = 1;
    attr.sample_period = 1000;
    for (int changes = number(4); changes > 0; --changes) change(attr);
    std::memset(bytes, 0, size);
    std::memcpy(bytes, &attr, sizeof attr);
    // Behind every structure there is: what no kernel knows.
    if (attr.size == 200 && number(2) == 0) bytes[199] = std::byte{1};
  }
  uint64_t flags() { return number(20) == 0 ? uint64_t{1} << number(64) : 0; }

 private:
  int number(int below) { return static_cast<int>(random_() % static_cast<uint64_t>(below)); }
  template <class T>
  T pick(std::initializer_list<T> values) {
    return *(values.begin() + number(static_cast<int>(values.size())));
  }
  uint64_t bits(int known) {
    return number(8) == 0 ? uint64_t{1} << 40 : random_() >> (64 - known);
  }

  void change(perf_event_attr& attr) {
    switch (number(16)) {
      case 0:
        attr.sample_type = bits(25);
        break;
      case 1:
        attr.sample_type |= uint64_t{1} << number(26);
        break;
      case 2:
        attr.read_format = bits(5);
        break;
      case 3:
        attr.sample_type |= PERF_SAMPLE_BRANCH_STACK;
        attr.branch_sample_type = pick<uint64_t>({0, 1, 7, 8, 9, 0xc, 0x3fff8, uint64_t{1} << 30});
        break;
      case 4:
        attr.sample_type |= PERF_SAMPLE_REGS_USER;
        attr.sample_regs_user =
            pick<uint64_t>({0, 1, 0xff0fff, 0xff1fff, 1 << 24, uint64_t{1} << 32});
        break;
      case 5:
        attr.sample_type |= PERF_SAMPLE_REGS_INTR;
        attr.sample_regs_intr = pick<uint64_t>({0, 1, 0xff0fff, 0xf000, uint64_t{1} << 31});
        break;
      case 6:
        attr.sample_type |= PERF_SAMPLE_STACK_USER;
        attr.sample_stack_user = pick<uint32_t>({0, 8, 12, 65528, 65534, 65535, 65536});
        break;
      case 7:
        attr.inherit = 1;
        attr.inherit_thread = number(2) & 1;
        break;
      case 8:
        attr.inherit_thread = 1;
        break;
      case 9:
        attr.remove_on_exec = number(2) & 1;
        attr.enable_on_exec = number(2) & 1;
        break;
      case 10:
        attr.sigtrap = 1;
        attr.remove_on_exec = number(2) & 1;
        break;
      case 11:
        attr.exclude_kernel = 0;
        break;
      case 12:
        attr.freq = 1;
        attr.sample_freq = pick<uint64_t>({1, 99, 1000, 100000, 1000000, ~uint64_t{0}});
        break;
      case 13:
        attr.sample_period = pick<uint64_t>({0, uint64_t{1} << 62, uint64_t{1} << 63});
        break;
      case 14:
        attr.namespaces = 1;
        break;
      default:
        attr.__reserved_2 = static_cast<uint16_t>(number(2));
        attr.__reserved_3 = pick<uint32_t>({0, 8, 0x80000000});
        break;
    }
  }

  std::mt19937_64 random_;
};

// Returns how many of the attrs were answered differently, and prints the first of them.
int differences(bool privileged, uint64_t seed) {
  const AttrPolicy policy = policy_of_this_system(privileged);
  RandomAttr random(seed);
  alignas(8) std::byte bytes[8192];
  int count = 0;
  for (int round = 0; round < kRounds; ++round) {
    random.make(bytes, sizeof bytes);
    const uint64_t flags = random.flags();
    perf_event_attr attr;
    std::memcpy(&attr, bytes, sizeof attr);
    const int ours = ask_ours(bytes, flags, policy);
    const int theirs = ask_kernel(bytes, flags);
    if (ours == theirs) continue;
    if (ours == ENOENT && theirs == EINVAL && may_refuse_inherited_reads(attr)) continue;
    if (++count > 5) continue;
    std::fprintf(stderr,
                 "round %d: ours %s, the kernel's %s; flags %#llx size %u sample_type %#llx "
                 "read_format %#llx\n",
                 round, strerrorname_np(ours), strerrorname_np(theirs),
                 static_cast<unsigned long long>(flags), attr.size,
                 static_cast<unsigned long long>(attr.sample_type),
                 static_cast<unsigned long long>(attr.read_format));
  }
  return count;
}

TEST(AttrOracle, TheKernelsAnswersToAPrivilegedCaller) {
  if (!testing::perf_event_open_works()) GTEST_SKIP() << "perf_event_open is denied here";
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  EXPECT_EQ(differences(true, 1), 0);
}

TEST(AttrOracle, TheKernelsAnswersToAnOrdinaryCaller) {
  if (!testing::perf_event_open_works()) GTEST_SKIP() << "perf_event_open is denied here";
  const pid_t child = fork();
  if (child == 0) {
    if (geteuid() == 0 && setresuid(65534, 65534, 65534) != 0) _exit(100);
    _exit(testing::perf_event_open_works() ? std::min(differences(false, 2), 99) : 101);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 101) GTEST_SKIP() << "perf_event_open is denied to ordinary users";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace auxtrail::event
