#include "image/demangle.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace auxtrail::image {
namespace {

TEST(DemangleTest, NamesForPeople) {
  EXPECT_EQ(demangle("_ZNSt6vectorIiSaIiEE9push_backERKi"),
            "std::vector<int, std::allocator<int> >::push_back");
  EXPECT_EQ(demangle("_Z3fooIiEvT_"), "foo<int>");
  EXPECT_EQ(demangle("_ZL8hashworkRji.constprop.0"), "hashwork");
  EXPECT_EQ(demangle("_ZN3FooclEi"), "Foo::operator()");
  EXPECT_EQ(demangle("_ZNK3FoocvbEv"), "Foo::operator bool");
  EXPECT_EQ(demangle("_ZThn8_N3Foo3barEv"), "non-virtual thunk to Foo::bar()");
  EXPECT_EQ(demangle("_ZSt4cout@plt"), "std::cout@plt");
  EXPECT_EQ(demangle("main"), "main");
  EXPECT_EQ(demangle("_Zgarbage"), "_Zgarbage");
}

std::vector<std::string> output_lines(const std::string& command) {
  std::vector<std::string> lines;
  FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return lines;
  std::string text;
  char buffer[4096];
  for (size_t count = 0; (count = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) {
    text.append(buffer, count);
  }
  ::pclose(pipe);
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// All functions of this program and of libstdc++, against binutils.
TEST(DemangleTest, NamesOfCxxfiltWithoutParameters) {
  const std::string own = std::filesystem::read_symlink("/proc/self/exe").string();
  const auto raw =
      output_lines("(nm " + own +
                   "; nm -D --without-symbol-versions /usr/lib/x86_64-linux-gnu/libstdc++.so.6) "
                   "2>/dev/null | sed -nE 's/.* [TtWw] (_Z[A-Za-z0-9_]+)$/\\1/p' | grep -v ^_ZGT | "
                   "sort -u");
  if (raw.size() < 1000) GTEST_SKIP() << "no nm, or no symbols";
  char path[] = "/tmp/demangle_test_XXXXXX";
  const int fd = ::mkstemp(path);
  ASSERT_GE(fd, 0);
  {
    std::ofstream file(path);
    for (const auto& name : raw) file << name << '\n';
  }
  const auto expected = output_lines(std::string("c++filt -p -i < ") + path);
  ::close(fd);
  std::remove(path);
  if (expected.empty()) GTEST_SKIP() << "no c++filt (package binutils)";
  ASSERT_EQ(expected.size(), raw.size());
  size_t differences = 0;
  for (size_t i = 0; i < raw.size(); ++i) {
    const std::string ours = demangle(raw[i]);
    if (ours == expected[i]) continue;
    if (++differences <= 20) {
      std::printf("%s\n  ours    %s\n  c++filt %s\n", raw[i].c_str(), ours.c_str(),
                  expected[i].c_str());
    }
  }
  EXPECT_LE(differences * 200, raw.size());
}

}  // namespace
}  // namespace auxtrail::image
