// Against nm(1) and readelf(1), over this test program itself.
#include "cli/filter_symbols.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <filesystem>

#include "image/symbol_ranges.h"
#include "perfdata/testing/command.h"

extern "C" __attribute__((noinline, used)) int filter_symbols_probe(int value);
extern "C" int filter_symbols_probe(int value) { return value * 3; }
namespace {
__attribute__((noinline, used)) int twice_there(int value) { return value * 5; }
}  // namespace

namespace auxtrail::cli {
namespace {

using perfdata::testing::ScratchDirectory;
using ::testing::HasSubstr;

std::string own_path() { return std::filesystem::read_symlink("/proc/self/exe"); }

// The file's bytes at the range are the function's.
TEST(FilterSymbols, FindsTheBytesOfAFunction) {
  const auto range = find_filter_symbol(own_path(), {0, "filter_symbols_probe", {}});
  ASSERT_TRUE(range) << range.error().message();
  const std::string file = perfdata::testing::read_text(own_path());
  ASSERT_LE(range->offset + range->size_bytes, file.size());
  const auto* code = reinterpret_cast<const char*>(&filter_symbols_probe);
  EXPECT_EQ(file.substr(range->offset, range->size_bytes), std::string(code, range->size_bytes));
  EXPECT_GT(range->size_bytes, 3U);
  EXPECT_EQ(twice_there(2), 10);
}

TEST(FilterSymbols, AsManyAsNmHas) {
  const ScratchDirectory scratch;
  const auto nm =
      scratch.run(fmt::format("nm --defined-only '{}' | grep -c ' [TtWwi] '", own_path()));
  if (nm.status != 0) GTEST_SKIP() << "nm is not installed";
  const auto all = image::find_symbol_ranges(own_path(), "*");
  ASSERT_TRUE(all);
  const auto count = static_cast<double>(std::stoul(nm.out));
  EXPECT_NEAR(static_cast<double>(all->size()), count, 0.01 * count + 8)
      << "but for labels without a size";
  const auto whole = find_filter_symbol(own_path(), {0, "*", {}});
  EXPECT_GT(whole->size_bytes, 10000U);
}

TEST(FilterSymbols, StrippedLibrariesHaveTheirDynamicSymbols) {
  std::string libc;
  for (const char* path : {"/lib/x86_64-linux-gnu/libc.so.6", "/lib64/libc.so.6"}) {
    if (std::filesystem::exists(path)) libc = path;
  }
  if (libc.empty()) GTEST_SKIP() << "no libc where it is looked for";
  const auto range = find_filter_symbol(libc, {0, "qsort", {}});
  ASSERT_TRUE(range) << range.error().message();
  EXPECT_GT(range->size_bytes, 0U);
}

TEST(FilterSymbols, Errors) {
  const auto message = [](const std::string& file, const record::FilterPlace& place) {
    const auto range = find_filter_symbol(file, place);
    return range ? std::string("found") : range.error().message();
  };
  EXPECT_THAT(message(own_path(), {0, "no_such_function", {}}), HasSubstr("no function"));
  EXPECT_THAT(message("/no/such/file", {0, "main", {}}), HasSubstr("/no/such/file"));
  EXPECT_THAT(message("/etc/passwd", {0, "main", {}}), HasSubstr("no ELF file"));
  EXPECT_THAT(message(own_path(), {0, "filter_symbols_probe", 2}), HasSubstr("#1 to #1"));
  EXPECT_EQ(message(own_path(), {0, "filter_symbols_probe", 0}), "found");
  EXPECT_EQ(message(own_path(), {0, "filter_symbols_probe", 1}), "found");
}

}  // namespace
}  // namespace auxtrail::cli
