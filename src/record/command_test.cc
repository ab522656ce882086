#include "record/command.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace auxtrail::record {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class CommandTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "auxtrail-command-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string make(const std::string& name, const std::string& text, mode_t mode) {
    const std::string path = folder_ / name;
    std::ofstream(path) << text;
    ::chmod(path.c_str(), mode);
    return path;
  }
  std::string copy(const std::string& program, const std::string& name, mode_t mode) {
    const std::string path = folder_ / name;
    fs::copy_file(program, path);
    ::chmod(path.c_str(), mode);
    return path;
  }
  fs::path folder_;
};

TEST_F(CommandTest, FindsInPath) {
  const auto command = find_command("sh");
  ASSERT_TRUE(command);
  EXPECT_TRUE(fs::exists(command->path));
  EXPECT_EQ(command->program, command->path);
  EXPECT_TRUE(check_can_be_sampled(*command));
}

TEST_F(CommandTest, MissingAndForbiddenAreToldApart) {
  for (const char* name : {"no-such-command-here", "/no/such/file", ""}) {
    const auto missing = find_command(name);
    ASSERT_FALSE(missing) << name;
    EXPECT_EQ(exit_status_of_start_failure(missing.error().sys_errno), 127) << name;
  }
  const auto plain = find_command(make("plain", "text", 0644));
  ASSERT_FALSE(plain);
  EXPECT_EQ(exit_status_of_start_failure(plain.error().sys_errno), 126);
  const auto folder = find_command(folder_.string());
  ASSERT_FALSE(folder);
  EXPECT_EQ(exit_status_of_start_failure(folder.error().sys_errno), 126);
}

TEST_F(CommandTest, ScriptsResolveToTheirInterpreter) {
  EXPECT_EQ(find_command(make("a", "#!/bin/bash -e\n", 0755))->program, "/bin/bash");
  EXPECT_EQ(find_command(make("b", "echo no first line\n", 0755))->program, "/bin/sh");
  const std::string inner = make("c", "#! /bin/bash\n", 0755);
  EXPECT_EQ(find_command(make("d", "#!" + inner + "\n", 0755))->program, "/bin/bash");
  EXPECT_FALSE(find_command(make("e", "#!/no/such/interpreter\n", 0755)));
}

TEST_F(CommandTest, AnEndlessScriptIsAnError) {
  const std::string path = folder_ / "loop";
  make("loop", "#!" + path + "\n", 0755);
  EXPECT_FALSE(find_command(path));
}

TEST_F(CommandTest, RefusesStaticPrograms) {
  const auto status = check_can_be_sampled({AUXTRAIL_STATIC_PROGRAM, AUXTRAIL_STATIC_PROGRAM});
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message(), HasSubstr("statically linked"));
}

TEST_F(CommandTest, AcceptsTheLoaderRunByName) {
  const std::string loader = "/lib64/ld-linux-x86-64.so.2";
  if (!fs::exists(loader)) GTEST_SKIP() << "no " << loader;
  EXPECT_TRUE(check_can_be_sampled({loader, loader}));
}

TEST_F(CommandTest, RefusesOtherMachines) {
  const std::string path = copy("/bin/sh", "foreign", 0755);
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(18);           // e_machine
  file.write("\xb7\0", 2);  // AArch64
  file.close();
  const auto status = check_can_be_sampled({path, path});
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message(), HasSubstr("another machine"));
}

TEST_F(CommandTest, TruncatedProgramsAreAnError) {
  const std::string path = copy("/bin/sh", "cut", 0755);
  for (const size_t size : {16, 40, 63, 64, 100, 600}) {
    fs::resize_file(path, size);
    EXPECT_FALSE(check_can_be_sampled({path, path})) << size;
    fs::remove(path);
    copy("/bin/sh", "cut", 0755);
  }
}

TEST_F(CommandTest, RefusesSetIdOnlyWhereItChangesRights) {
  const std::string path = copy("/bin/sh", "setuid", 0755);
  ::chmod(path.c_str(), 04755);
  EXPECT_TRUE(check_can_be_sampled({path, path})) << "it is our own: nothing changes";
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to give a file away";
  ASSERT_EQ(::chown(path.c_str(), 65534, 65534), 0);
  ::chmod(path.c_str(), 04755);
  const auto user = check_can_be_sampled({path, path});
  ASSERT_FALSE(user);
  EXPECT_THAT(user.error().message(), HasSubstr("set-user-id"));
  ::chmod(path.c_str(), 02755);
  const auto group = check_can_be_sampled({path, path});
  ASSERT_FALSE(group);
  EXPECT_THAT(group.error().message(), HasSubstr("set-group-id"));
}

}  // namespace
}  // namespace auxtrail::record
