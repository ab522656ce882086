// DsoTable and Symbolizer against readelf, objdump, addr2line and what happens to files.
#include "image/symbolizer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <sstream>

#include "image/code_map.h"
#include "image/symbolizer_probe.h"

namespace auxtrail::image {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::string output_of(const std::string& command) {
  std::string output;
  FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return output;
  char buffer[4096];
  for (size_t count = 0; (count = std::fread(buffer, 1, sizeof(buffer), pipe)) > 0;) {
    output.append(buffer, count);
  }
  return ::pclose(pipe) == 0 ? output : "";
}

// A directory that goes with the test.
class Scratch {
 public:
  Scratch() {
    std::string pattern = (fs::temp_directory_path() / "image_test_XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~Scratch() { fs::remove_all(path_); }
  [[nodiscard]] fs::path operator/(const char* name) const { return path_ / name; }

 private:
  fs::path path_;
};

// The file as if mapped in one piece at its own addresses.
Location locate(Symbolizer& symbolizer, DsoTable& dsos, const Dso* dso, uint64_t elf_address) {
  for (const auto& segment : dsos.resolve(dso).segments) {
    if (elf_address < segment.address) continue;
    const uint64_t in_segment = elf_address - segment.address;
    if (in_segment < segment.size_bytes) return symbolizer.locate(dso, segment.offset + in_segment);
  }
  return {};
}

struct ElfSymbol {
  uint64_t address;
  uint64_t size_bytes;
  std::string name;
};

std::vector<ElfSymbol> listed_functions(const std::string& file, const std::string& options) {
  std::istringstream lines(output_of(fmt::format("readelf -W {} {} 2>/dev/null", options, file)));
  std::vector<ElfSymbol> symbols;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string number, size, type, binding, visibility, section;
    ElfSymbol symbol{};
    words >> number >> std::hex >> symbol.address >> size >> type >> binding >> visibility >>
        section >> symbol.name;
    if (!words || (type != "FUNC" && type != "IFUNC") || section == "UND") continue;
    symbol.size_bytes = std::stoull(size, nullptr, 0);
    if (symbol.size_bytes != 0) symbols.push_back(symbol);
  }
  return symbols;
}

// Every function that readelf lists is found at its first and last byte, by one of its names.
void expect_symbols_of_readelf(const std::string& file, const std::string& options) {
  const auto symbols = listed_functions(file, options);
  ASSERT_GT(symbols.size(), 10) << file;
  std::multimap<uint64_t, std::string> names;
  for (const auto& symbol : symbols) {
    names.emplace(symbol.address, symbol.name.substr(0, symbol.name.find('@')));
  }
  DsoTable dsos;
  Symbolizer symbolizer(dsos, {.demangle = false});
  const Dso* dso = dsos.intern(file);
  size_t found = 0;
  for (const auto& symbol : symbols) {
    const auto first = locate(symbolizer, dsos, dso, symbol.address);
    ASSERT_NE(first.function, nullptr) << symbol.name;
    const auto [begin, end] = names.equal_range(first.function->address);
    ASSERT_TRUE(std::any_of(
        begin, end, [&](const auto& entry) { return entry.second == first.function->raw_name; }))
        << symbol.name << " became " << first.function->raw_name;
    const auto last = locate(symbolizer, dsos, dso, symbol.address + symbol.size_bytes - 1);
    ASSERT_NE(last.function, nullptr) << symbol.name;
    found += first.function->address == symbol.address ? 1 : 0;
  }
  EXPECT_EQ(found, symbols.size());
}

TEST(SymbolizerTest, FindsEveryFunctionOfAProgramWithSymtab) {
  expect_symbols_of_readelf(fs::read_symlink("/proc/self/exe").string(), "-s");
}

TEST(SymbolizerTest, FindsEveryDynamicFunctionOfAStrippedLibrary) {
  const std::string libc = "/lib/x86_64-linux-gnu/libc.so.6";
  if (!fs::exists(libc)) GTEST_SKIP() << "no " << libc;
  expect_symbols_of_readelf(libc, "--dyn-syms");
}

// What the symbols of the same file say before it was stripped.
TEST(SymbolizerTest, FunctionsOfAStrippedProgramAreToldByTheirUnwindInformation) {
  const Scratch scratch;
  const std::string whole = fs::read_symlink("/proc/self/exe").string();
  const std::string file = (scratch / "stripped").string();
  ASSERT_EQ(std::system(fmt::format("strip -o {} {}", file, whole).c_str()), 0);
  DsoTable dsos;
  Symbolizer symbolizer(dsos);
  const Dso* dso = dsos.intern(file);
  size_t compared = 0;
  size_t found = 0;
  for (const auto& symbol : listed_functions(whole, "-s")) {
    const auto inside = locate(symbolizer, dsos, dso, symbol.address + symbol.size_bytes / 2);
    if (inside.function != nullptr) continue;  // exported
    ++compared;
    if (inside.unnamed == nullptr || inside.unnamed->address != symbol.address) continue;
    EXPECT_EQ(inside.unnamed->name, fmt::format("[stripped+{:#x}]", symbol.address));
    ++found;
  }
  ASSERT_GT(compared, 1000);
  EXPECT_GE(found * 100, compared * 99);  // some start-up code has no unwind information
}

TEST(SymbolizerTest, DamagedUnwindTableIsNoTable) {
  const Scratch scratch;
  const std::string whole = fs::read_symlink("/proc/self/exe").string();
  const std::string file = (scratch / "stripped").string();
  const std::string table = (scratch / "table").string();
  std::ofstream(table, std::ios::binary)
      << std::string("\x01\x1b\x03\x3b\0\0\0\0\xff\xff\xff\x7f\x01", 13);
  ASSERT_EQ(
      std::system(fmt::format("strip -o {0} {1} && objcopy --update-section .eh_frame_hdr={2} {0}",
                              file, whole, table)
                      .c_str()),
      0);
  DsoTable dsos;
  Symbolizer symbolizer(dsos);
  const Dso* dso = dsos.intern(file);
  for (const auto& symbol : listed_functions(whole, "-s")) {
    EXPECT_EQ(locate(symbolizer, dsos, dso, symbol.address).unnamed, nullptr);
  }
}

// objdump writes the PLT's names as "<puts@plt>:".
TEST(SymbolizerTest, PltStubsCarryObjdumpsNames) {
  const std::string file = fs::read_symlink("/proc/self/exe").string();
  std::istringstream lines(
      output_of("objdump -d -j .plt -j .plt.sec -j .plt.got " + file + " 2>/dev/null"));
  DsoTable dsos;
  Symbolizer symbolizer(dsos, {.demangle = false});
  const Dso* dso = dsos.intern(file);
  size_t stubs = 0;
  for (std::string line; std::getline(lines, line);) {
    uint64_t address = 0;
    char name[4096];
    if (std::sscanf(line.c_str(), "%lx <%4095[^>]>:", &address, name) != 2) continue;
    const std::string expected = name;
    // Version suffixes are objdump's own; entries without a symbol have no name of ours.
    const auto at = expected.find('@');
    if (!expected.ends_with("@plt") || expected.starts_with("*")) continue;
    const auto location = locate(symbolizer, dsos, dso, address);
    ASSERT_NE(location.function, nullptr) << expected;
    EXPECT_EQ(location.function->raw_name, expected.substr(0, at) + "@plt");
    ++stubs;
  }
  EXPECT_GT(stubs, 20);
}

// addr2line prints name and file:line of every frame, innermost first. LLVM's, because that of
// binutils 2.40 gives template functions the file of the compilation unit.
TEST(SymbolizerTest, LinesAndInlinedFramesAreThoseOfAddr2line) {
  const std::string addr2line =
      output_of("command -v llvm-addr2line-14 || command -v llvm-addr2line");
  if (addr2line.empty()) GTEST_SKIP() << "no llvm-addr2line (package llvm-14)";
  const std::string file = fs::read_symlink("/proc/self/exe").string();
  DsoTable dsos;
  Symbolizer symbolizer(dsos, {.demangle = false});
  const Dso* dso = dsos.intern(file);
  const auto symbols = listed_functions(file, "-s");
  std::mt19937 random(1);
  std::vector<uint64_t> addresses;
  for (int i = 0; i < 2500; ++i) {
    const auto& symbol = symbols[random() % symbols.size()];
    addresses.push_back(symbol.address + random() % std::max<uint64_t>(symbol.size_bytes, 1));
  }
  std::string command = addr2line.substr(0, addr2line.find('\n')) + " -a -f -i -e " + file;
  for (const uint64_t address : addresses) command += fmt::format(" {:#x}", address);
  std::istringstream lines(output_of(command));

  std::string line;
  std::getline(lines, line);
  size_t compared = 0;
  size_t inlined = 0;
  size_t left_out = 0;
  for (const uint64_t address : addresses) {
    ASSERT_EQ(std::stoull(line, nullptr, 16), address);
    std::vector<std::pair<std::string, int>> expected;  // file name, line
    while (std::getline(lines, line) && !line.starts_with("0x")) {
      std::string place;
      std::getline(lines, place);
      const auto colon = place.rfind(':');
      expected.emplace_back(fs::path(place.substr(0, colon)).filename(),
                            std::atoi(place.c_str() + colon + 1));
    }
    if (expected.empty() || expected[0].second == 0) continue;
    auto frames = symbolizer.source(locate(symbolizer, dsos, dso, address));
    // gcc may describe one inlined call twice, once with an empty range; LLVM then leaves it out.
    if (frames.size() == expected.size() + 1) {
      frames.erase(frames.begin());
      ++left_out;
    }
    ASSERT_EQ(frames.size(), expected.size()) << fmt::format("{:#x}", address);
    for (size_t i = 0; i < frames.size(); ++i) {
      EXPECT_EQ(fs::path(frames[i].file).filename(), expected[i].first)
          << fmt::format("{:#x} frame {}", address, i);
      EXPECT_EQ(frames[i].line, expected[i].second) << fmt::format("{:#x} frame {}", address, i);
      EXPECT_EQ(frames[i].inlined, i + 1 < frames.size());
    }
    ++compared;
    inlined += frames.size() > 1 ? 1 : 0;
  }
  EXPECT_GT(compared, 50) << "build with debug info";
  EXPECT_GT(inlined, 20);
  EXPECT_LE(left_out * 100, compared);
}

TEST(SymbolizerTest, FindsTheFunctionThatRunsHere) {
  std::ifstream maps("/proc/self/maps");
  DsoTable dsos;
  AddressSpaces spaces(dsos);
  for (std::string line; std::getline(maps, line);) {
    uint64_t start = 0;
    uint64_t end = 0;
    uint64_t offset = 0;
    char protection[8];
    char path[4096] = "";
    std::sscanf(line.c_str(), "%lx-%lx %7s %lx %*s %*s %4095s", &start, &end, protection, &offset,
                path);
    if (protection[2] == 'x') spaces.add_mapping(1, 0, start, end - start, offset, path);
  }
  Symbolizer symbolizer(dsos);
  const auto layout = spaces.layout(1, 0);
  const auto address = reinterpret_cast<uint64_t>(&symbolizer_probe);  // NOLINT
  const auto location = symbolizer.locate(*layout, address + 1);
  EXPECT_EQ(location.function_name(), "auxtrail::image::symbolizer_probe");
  EXPECT_EQ(location.offset(), 1);
  EXPECT_EQ(location.dso_name(), "symbolizer_test");
  const auto vdso = std::find_if(layout->mappings.begin(), layout->mappings.end(),
                                 [](const Mapping& m) { return m.dso->path == "[vdso]"; });
  ASSERT_NE(vdso, layout->mappings.end());
  EXPECT_EQ(dsos.resolve(vdso->dso).state, DsoState::kUsable);
  EXPECT_EQ(location.dso, layout->find(address)->dso);
  const auto nowhere = symbolizer.locate(*layout, 0x10);
  EXPECT_EQ(nowhere.function_name(), "[unknown]");
  EXPECT_EQ(nowhere.dso_name(), "[unknown]");
  EXPECT_TRUE(symbolizer.source(nowhere).empty());
}

TEST(SymbolizerTest, LooksUpAMillionAddressesASecond) {
  const std::string file = fs::read_symlink("/proc/self/exe").string();
  DsoTable dsos;
  AddressSpaces spaces(dsos);
  const Dso* dso = dsos.intern(file);
  const auto code = dsos.resolve(dso).segments.at(1);
  spaces.add_mapping(1, 0, 0x400000, code.size_bytes, code.offset, file);
  Symbolizer symbolizer(dsos);
  const auto layout = spaces.layout(1, 0);
  (void)symbolizer.locate(*layout, 0x400000);  // reads the symbols
  const auto start = std::chrono::steady_clock::now();
  std::mt19937 random(1);
  size_t known = 0;
  constexpr int kLookups = 200'000;
  for (int i = 0; i < kLookups; ++i) {
    const auto location = symbolizer.locate(*layout, 0x400000 + random() % code.size_bytes);
    known += location.function != nullptr ? 1 : 0;
  }
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  EXPECT_GT(known, kLookups / 2);
  EXPECT_LT(elapsed.count(), 2.0) << "even a loaded machine does 100,000 a second";
}

TEST(DsoTableTest, MissingFileIsSaidOnce) {
  DsoTable dsos;
  Symbolizer symbolizer(dsos);
  const Dso* dso = dsos.intern("/nowhere/libgone.so");
  EXPECT_EQ(symbolizer.locate(dso, 0x1234).function_name(), "[unknown]");
  EXPECT_EQ(symbolizer.locate(dso, 0x1235).dso_name(), "libgone.so");
  EXPECT_EQ(dsos.resolve(dso).state, DsoState::kMissing);
  EXPECT_THAT(dsos.problems(), testing::ElementsAre(HasSubstr("/nowhere/libgone.so")));
}

TEST(DsoTableTest, OtherBuildIdIsNeverUsed) {
  const std::string file = fs::read_symlink("/proc/self/exe").string();
  DsoTable dsos;
  const Dso* dso = dsos.intern(file, BuildId(20, 0xab));
  EXPECT_EQ(dsos.resolve(dso).state, DsoState::kChanged);
  EXPECT_TRUE(dso->file_path.empty());
  EXPECT_THAT(dsos.problems(), testing::ElementsAre(HasSubstr("build id")));
  Layout layout{1, {{0x400000, 0x500000, 0, dso}}};
  EXPECT_TRUE(make_code_map(layout, dsos).sections.empty());
}

TEST(DsoTableTest, RightBuildIdIsUsedEvenIfItBecomesKnownLater) {
  const std::string file = fs::read_symlink("/proc/self/exe").string();
  DsoTable probe;
  const BuildId id = probe.resolve(probe.intern(file)).build_id;
  ASSERT_FALSE(id.empty()) << "linked without a build id";
  EXPECT_THAT(output_of("readelf -n " + file), HasSubstr(to_hex(id)));
  DsoTable dsos;
  const Dso* dso = dsos.intern(file);
  dsos.set_build_id(file, id);
  EXPECT_EQ(dsos.resolve(dso).state, DsoState::kUsable);
  const Dso* other = dsos.intern("/bin/true");
  dsos.set_build_id("/bin/true", id);
  EXPECT_EQ(dsos.resolve(other).state, DsoState::kChanged);
}

TEST(DsoTableTest, ReplacedFileIsNotTakenForTheMappedOne) {
  DsoTable dsos;
  const Dso* dso = dsos.intern("/bin/true (deleted)");
  EXPECT_EQ(dsos.resolve(dso).state, DsoState::kMissing);
  EXPECT_THAT(dsos.problems(), testing::ElementsAre(HasSubstr("deleted")));
}

TEST(DsoTableTest, SymfsIsPutBeforeThePath) {
  const Scratch scratch;
  fs::create_directories(scratch / "opt");
  fs::copy_file("/bin/true", scratch / "opt/program");
  DsoTable dsos({.symfs = (scratch / "").string(), .vdso_file = ""});
  EXPECT_EQ(dsos.resolve(dsos.intern("/opt/program")).state, DsoState::kUsable);
}

TEST(DsoTableTest, OddFilesNeitherHangNorCrash) {
  const Scratch scratch;
  const auto fifo = scratch / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  std::ofstream(scratch / "text") << "no ELF file";
  std::ofstream(scratch / "cut") << "\177ELF\2\1\1";
  std::ofstream(scratch / "empty");
  DsoTable dsos;
  Symbolizer symbolizer(dsos);
  for (const char* name : {"fifo", "text", "cut", "empty"}) {
    const Dso* dso = dsos.intern((scratch / name).string());
    EXPECT_EQ(symbolizer.locate(dso, 0).function, nullptr) << name;
  }
  EXPECT_EQ(dsos.resolve(dsos.intern(fifo.string())).state, DsoState::kMissing);
  EXPECT_EQ(dsos.resolve(dsos.intern((scratch / "text").string())).state, DsoState::kNotElf);
  for (const char* path : {"//anon", "[heap]", "[stack]", "", "anon_inode:[io_uring]"}) {
    EXPECT_EQ(dsos.resolve(dsos.intern(path)).state, DsoState::kNotFile) << path;
  }
}

// Every byte of an ELF header and its tables flipped in turn: no crash, whatever comes out.
TEST(DsoTableTest, DamagedElfFilesNeverCrash) {
  const Scratch scratch;
  std::ifstream stream("/bin/true", std::ios::binary);
  const std::string content{std::istreambuf_iterator<char>(stream), {}};
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    std::string damaged = content;
    for (int flip = 0; flip < 8; ++flip) {
      const size_t limit = flip % 2 == 0 ? 1024 : damaged.size();
      damaged[random() % limit] = static_cast<char>(random());
    }
    if (round % 3 == 0) damaged.resize(random() % damaged.size());
    const auto path = scratch / fmt::format("damaged{}", round).c_str();
    std::ofstream(path, std::ios::binary) << damaged;
    DsoTable dsos;
    Symbolizer symbolizer(dsos);
    const Dso* dso = dsos.intern(path.string());
    for (uint64_t offset = 0; offset < content.size(); offset += 997) {
      (void)symbolizer.source(symbolizer.locate(dso, offset));
    }
  }
}

}  // namespace
}  // namespace auxtrail::image
