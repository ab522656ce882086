// Dso: one file whose code ran, and the table of all of them.
//
// A DSO is named by what the MMAP2 record says: a path and perhaps a build id. The file behind it
// is looked for once, on first use: the path (below `symfs` if given), then ~/.debug by build id. A
// file that is gone or whose build id differs from the recorded one is never used: its code would
// decode to nonsense. Both are said once, in problems().
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace auxtrail::image {

using BuildId = std::vector<uint8_t>;  // empty: unknown
std::string to_hex(const BuildId& id);

enum class DsoState : uint8_t {
  kUsable,   // an ELF file (or the vdso) with the recorded build id, if one was recorded
  kNotFile,  // anonymous, JIT, heap, stack, device: never had a file
  kMissing,  // the file is gone or unreadable
  kChanged,  // the file's build id is not the recorded one
  kNotElf,   // a regular file, no ELF file; its bytes can be decoded, it has no symbols
};

std::string_view name(DsoState state);

// One PT_LOAD: file bytes [offset, offset + size_bytes) live at `address` in the ELF file's own
// numbering.
struct ElfSegment {
  uint64_t offset = 0;
  uint64_t size_bytes = 0;
  uint64_t address = 0;
};

struct Dso {
  std::string path;  // as recorded
  BuildId build_id;  // as recorded, else the file's own once it was opened
  DsoState state = DsoState::kMissing;
  std::string file_path;  // what to open; empty unless kUsable or kNotElf
  uint64_t file_size_bytes = 0;
  std::vector<ElfSegment> segments;  // kUsable only

  // The last component of the path, or the path itself for "[vdso]" and "//anon".
  [[nodiscard]] std::string_view short_name() const;
  // The ELF address of a file offset; the offset itself if no segment holds it.
  [[nodiscard]] uint64_t address_of(uint64_t file_offset) const;
};

struct DsoOptions {
  std::string symfs;      // prefix for every path, as perf's --symfs
  std::string vdso_file;  // the captured vdso; empty: this process's own, if its build id fits
};

// Owns all DSOs; references stay valid for the table's lifetime. Not thread safe.
class DsoTable {
 public:
  explicit DsoTable(DsoOptions options = {});
  ~DsoTable();
  DsoTable(const DsoTable&) = delete;
  DsoTable& operator=(const DsoTable&) = delete;

  // The DSO of that path and build id; created at first sight, without touching the file.
  const Dso* intern(std::string_view path, const BuildId& build_id = {});
  // A build id that became known later (perf.data's BUILD_ID feature): kept for every DSO of that
  // path that has none, now or from now on.
  void set_build_id(std::string_view path, const BuildId& build_id);
  // Looks for the file if that has not happened yet. `dso` must be of this table.
  const Dso& resolve(const Dso* dso);

  // One sentence per DSO that could not be used: which, why, what to do.
  [[nodiscard]] const std::vector<std::string>& problems() const { return problems_; }

 private:
  struct Entry;
  struct OwnVdso;
  void find_file(Entry& entry);
  void find_vdso(Entry& entry);
  void report(const Dso& dso, std::string_view why, std::string_view fix);

  DsoOptions options_;
  std::unordered_map<std::string, std::unique_ptr<Entry>> entries_;
  std::unordered_map<const Dso*, Entry*> by_dso_;
  std::unordered_map<std::string, BuildId> known_build_ids_;
  std::unique_ptr<OwnVdso> own_vdso_;
  std::vector<std::string> problems_;
};

}  // namespace auxtrail::image
