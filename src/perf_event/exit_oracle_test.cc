// The running kernel as the oracle of what ends and what is inherited: tasks that exit, closed
// descriptors that are still mapped, children's counts; and of the limits on locked memory.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <functional>

#include "perf_event/testing/system.h"

namespace auxtrail::perf_event::testing {
namespace {

// A process that does what it is told over a pipe: w(rite a variable), f(ork a child that writes it
// and exits), q(uit).
class Child {
 public:
  explicit Child() {
    int to[2];
    int from[2];
    if (pipe(to) != 0 || pipe(from) != 0) return;
    pid_ = fork();
    if (pid_ == 0) serve(to[0], from[1]);
    ::close(to[0]);
    ::close(from[1]);
    to_ = to[1];
    from_ = from[0];
  }
  ~Child() {
    tell('q');
    ::close(to_);
    ::close(from_);
    reap();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void tell(char what) {
    if (gone_) return;
    char done = 0;
    if (::write(to_, &what, 1) == 1 && what != 'q') (void)!::read(from_, &done, 1);
  }
  // Exits and becomes a zombie.
  void quit() {
    tell('q');
    siginfo_t info;
    (void)waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT);
    gone_ = true;
  }
  void reap() {
    if (pid_ > 0) waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  [[noreturn]] static void serve(int from, int to) {
    char what = 0;
    while (::read(from, &what, 1) == 1 && what != 'q') {
      if (what == 'w') variables[0] = variables[0] + 1;
      if (what == 'f') {
        const pid_t grandchild = fork();
        if (grandchild == 0) {
          variables[0] = variables[0] + 1;
          _exit(0);
        }
        waitpid(grandchild, nullptr, 0);
      }
      (void)!::write(to, &what, 1);
    }
    _exit(0);
  }
  pid_t pid_ = -1;
  int to_ = -1;
  int from_ = -1;
  bool gone_ = false;
};

// The two systems with a child process in each.
class ExitOracle : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const char* why = why_no_oracle(); why != nullptr) GTEST_SKIP() << why;
    if (geteuid() != 0) GTEST_SKIP() << "needs root";
    stay_on_cpu_0();
    child_ = std::make_unique<Child>();
    const long cloned = played_.kernel.clone(played_.tid, false);
    ASSERT_GT(cloned, 0);
    played_child_ = static_cast<Tid>(cloned);
  }
  void TearDown() override {
    for (const int fd : real_fds_) real_.close(fd);
  }
  // The same call to both; the results must agree (descriptors by success alone).
  int open(const perf_event_attr& attr, bool on_child, int group = -1) {
    const long theirs =
        real_.open(attr, on_child ? child_->pid() : 0, -1, group < 0 ? -1 : real_fds_[group], 0);
    const long ours = played_.open(attr, on_child ? static_cast<int>(played_child_) : 0, -1,
                                   group < 0 ? -1 : played_fds_[group], 0);
    EXPECT_EQ(std::min(ours, 0L), std::min(theirs, 0L));
    real_fds_.push_back(static_cast<int>(theirs));
    played_fds_.push_back(static_cast<int>(ours));
    return static_cast<int>(real_fds_.size()) - 1;
  }
  long open_error(const perf_event_attr& attr, bool on_child, int group = -1) {
    const int number = open(attr, on_child, group);
    return real_fds_[number];
  }
  void same(const std::function<long(System&, int)>& call, int number) {
    EXPECT_EQ(call(played_, played_fds_[number]), call(real_, real_fds_[number]));
  }
  void same_reading(int number) {
    uint64_t ours[4] = {};
    uint64_t theirs[4] = {};
    EXPECT_EQ(played_.read(played_fds_[number], ours, sizeof ours),
              real_.read(real_fds_[number], theirs, sizeof theirs));
    EXPECT_EQ(ours[0], theirs[0]);
  }
  void same_poll(int number) {
    same([](System& system, int fd) { return system.poll(fd); }, number);
  }
  void child_writes() {
    child_->tell('w');
    run_child([this](Tid tid) { write_in(tid); });
  }
  void child_forks_and_writes() {
    child_->tell('f');
    run_child([this](Tid tid) {
      const long forked = played_.kernel.clone(tid, false);
      ASSERT_GT(forked, 0);
      const auto grandchild = static_cast<Tid>(forked);
      played_.kernel.run(grandchild, 0);
      write_in(grandchild);
      played_.kernel.exit(grandchild);
      played_.kernel.reap(grandchild);
    });
  }
  void child_quits() {
    child_->quit();
    played_.kernel.exit(played_child_);
  }
  void run_child(const std::function<void(Tid)>& what) {
    played_.kernel.run(played_child_, 0);
    what(played_child_);
    played_.kernel.run(played_.tid, 0);
  }
  void write_in(Tid tid) {
    played_.kernel.count(tid, PERF_TYPE_BREAKPOINT, address_of_variable(0), 1);
  }
  static perf_event_attr watch(uint64_t period = 0) {
    perf_event_attr attr = breakpoint_attr(0);
    attr.sample_period = period;
    attr.sample_type = PERF_SAMPLE_IP;
    return attr;
  }

  RealSystem real_;
  PlayedSystem played_{settings_of_this_system(), {}};
  std::unique_ptr<Child> child_;
  Tid played_child_ = 0;
  std::vector<int> real_fds_;
  std::vector<int> played_fds_;
};

TEST_F(ExitOracle, D7_A6_EventsOfATaskThatExits) {
  const int watching = open(watch(), true);
  const int alone = open(dummy_attr(), true);
  same_poll(watching);
  child_writes();
  child_writes();
  same_reading(watching);
  child_quits();
  same_poll(watching);
  same_poll(alone);
  same_reading(watching);
  for (const uint64_t request : {PERF_EVENT_IOC_ENABLE, PERF_EVENT_IOC_DISABLE}) {
    same([&](System& system, int fd) { return system.ioctl(fd, request, 0); }, watching);
  }
  same_reading(watching);
  same_poll(watching);
  EXPECT_EQ(open_error(dummy_attr(), false, alone), -ENODEV) << "it leads nobody any more";
  EXPECT_EQ(open_error(dummy_attr(), true, alone), -ENODEV) << "that comes before the task";
  EXPECT_EQ(open_error(dummy_attr(), true), -ESRCH) << "a zombie";
  perf_event_attr unknown = dummy_attr();
  unknown.config = 1000;
  EXPECT_EQ(open_error(unknown, true), -ENOENT) << "that comes before the zombie";
  // The ring of a dead task's event can still be mapped.
  same(
      [](System& system, int fd) {
        const long address = system.mmap(8192, PROT_READ, MAP_SHARED, fd, 0);
        return address > 0 ? system.munmap(address, 8192) : address;
      },
      watching);
}

TEST_F(ExitOracle, D7_ATaskThatIsGoneAltogether) {
  const int watching = open(watch(), true);
  child_quits();
  const pid_t pid = child_->pid();
  child_->reap();
  played_.kernel.reap(played_child_);
  EXPECT_EQ(real_.open(dummy_attr(), pid, -1, -1, 0), -ESRCH);
  EXPECT_EQ(played_.open(dummy_attr(), static_cast<int>(played_child_), -1, -1, 0), -ESRCH);
  same_poll(watching);
  same_reading(watching);
}

TEST_F(ExitOracle, A12_InheritedCounts) {
  perf_event_attr attr = watch();
  attr.inherit = 1;
  const int inherited = open(attr, true);
  attr.bp_addr = address_of_variable(1);
  const int other = open(attr, true, inherited);
  EXPECT_EQ(open_error(watch(), true, inherited), -EINVAL) << "inherited or not";
  for (int i = 0; i < 3; ++i) {
    child_writes();
    child_forks_and_writes();
    same_reading(inherited);
    same_reading(other);
  }
  child_quits();
  same_reading(inherited);
  same_poll(inherited);
  same([](System& system, int fd) { return system.mmap(8192, PROT_READ, MAP_SHARED, fd, 0); },
       inherited);
}

TEST_F(ExitOracle, D2_RecordsOfAnExitedTaskStay) {
  const int watching = open(watch(1), true);
  const long theirs = real_.mmap(8192, PROT_READ | PROT_WRITE, MAP_SHARED, real_fds_[watching], 0);
  const long ours =
      played_.mmap(8192, PROT_READ | PROT_WRITE, MAP_SHARED, played_fds_[watching], 0);
  ASSERT_GT(theirs, 0);
  ASSERT_GT(ours, 0);
  const auto head = [](long address) {
    return reinterpret_cast<const perf_event_mmap_page*>(address)->data_head;
  };
  for (int i = 0; i < 10; ++i) child_writes();
  EXPECT_EQ(head(ours), head(theirs));
  child_quits();
  EXPECT_EQ(head(ours), head(theirs));
  EXPECT_EQ(head(ours), 160U);
  same_poll(watching);
}

// As a user without rights, in a process of its own; returns the number of the first mapping that
// is refused, and how.
struct Refusal {
  int number;
  long error;
  bool operator==(const Refusal&) const = default;
};
Refusal map_until_refused(System& system, uint64_t pages) {
  for (int number = 0; number < 400; ++number) {
    const long fd = system.open(dummy_attr(), 0, -1, -1, 0);
    if (fd < 0) return {number, fd};
    const long address = system.mmap(pages * 4096, PROT_READ, MAP_SHARED, static_cast<int>(fd), 0);
    if (address < 0) return {number, address};
  }
  return {-1, 0};
}

TEST(MlockOracle, B4_TheSameMappingIsTheFirstTooMany) {
  if (const char* why = why_no_oracle(); why != nullptr) GTEST_SKIP() << why;
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  for (const uint64_t pages : {2, 3, 17, 129}) {
    for (const uint64_t memlock_pages : {0, 5, 100, 300}) {
      const pid_t child = fork();
      if (child == 0) {
        // A user that nobody else is, so that nobody else uses up its pages.
        const auto uid = static_cast<uid_t>(1'000'000 + getpid());
        const rlimit limit{memlock_pages * 4096, memlock_pages * 4096};
        if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || setresuid(uid, uid, uid) != 0) _exit(100);
        Settings settings = settings_of_this_system();
        settings.memlock_bytes = memlock_pages * 4096;
        PlayedSystem played(
            settings, {.uid = uid, .is_perfmon = false, .may_lock = false, .may_trace = false});
        RealSystem real;
        const Refusal theirs = map_until_refused(real, pages);
        if (theirs.error == -EACCES) _exit(101);
        const Refusal ours = map_until_refused(played, pages);
        if (ours == theirs) _exit(ours.error == -EPERM ? 0 : 102);
        std::fprintf(stderr, "%d pages, %d allowed: ours %d (%ld), the kernel's %d (%ld)\n",
                     static_cast<int>(pages), static_cast<int>(memlock_pages), ours.number,
                     ours.error, theirs.number, theirs.error);
        _exit(1);
      }
      int status = 0;
      ASSERT_EQ(waitpid(child, &status, 0), child);
      ASSERT_TRUE(WIFEXITED(status));
      if (WEXITSTATUS(status) == 101) GTEST_SKIP() << "denied to ordinary users";
      EXPECT_EQ(WEXITSTATUS(status), 0) << pages << " pages, " << memlock_pages << " allowed";
    }
  }
}

}  // namespace
}  // namespace auxtrail::perf_event::testing
