#include "record/unit_library.h"

#include <cstdlib>
#include <filesystem>
#include <vector>

namespace auxtrail::record {
namespace {

namespace fs = std::filesystem;

Result<std::string> checked(const fs::path& path) {
  std::error_code error;
  const fs::path absolute = fs::canonical(path, error);
  if (error || !fs::is_regular_file(absolute, error)) {
    return fail({"find the trace unit", path.string(), "no such library",
                 "set AUXTRAIL_UNIT to libauxtrail-unit.so or unset it"});
  }
  // The loader splits LD_PRELOAD at blanks and colons and expands $ORIGIN and its like.
  if (absolute.string().find_first_of(" :$\t\n") != std::string::npos) {
    return fail({"preload the trace unit", absolute.string(),
                 "LD_PRELOAD cannot hold a path with blanks, ':' or '$'",
                 "set AUXTRAIL_UNIT to a copy or link in another folder"});
  }
  return absolute.string();
}

}  // namespace

Result<std::string> find_unit_library() {
  const char* chosen = std::getenv(kUnitVariable);
  if (chosen != nullptr && *chosen != '\0') return checked(chosen);
  std::error_code error;
  const fs::path folder = fs::canonical("/proc/self/exe", error).parent_path();
  const std::vector<fs::path> candidates = {
      folder / ".." / AUXTRAIL_LIBDIR / "auxtrail" / kUnitName,
      folder / ".." / "lib" / "auxtrail" / kUnitName,
      folder / ".." / "unit" / kUnitName,  // build tree: src/cli and src/unit
      folder / kUnitName,
  };
  for (const fs::path& candidate : candidates) {
    if (fs::is_regular_file(candidate, error)) return checked(candidate);
  }
  return fail({"find the trace unit", kUnitName,
               "it is neither installed beside the program nor in the build tree",
               "reinstall auxtrail, or set AUXTRAIL_UNIT to the library's path"});
}

}  // namespace auxtrail::record
