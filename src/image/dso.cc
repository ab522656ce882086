// Finding the file behind a recorded path, and saying what is wrong with it.
#include "image/dso.h"

#include <fmt/format.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>

#include "base/unique_fd.h"
#include "image/elf_file.h"

namespace auxtrail::image {
namespace {

constexpr std::string_view kVdsoPath = "[vdso]";
constexpr size_t kMaxVdsoBytes = 64 * 1024;

// Names the kernel gives to memory without a file. "/memfd:", "/dev/zero" and "/SYSV" are files
// nobody can open again.
bool has_no_file(std::string_view path) {
  constexpr std::array<std::string_view, 7> kPrefixes = {
      "[", "//anon", "anon_inode:", "/memfd:", "/SYSV", "/dev/", "/proc/"};
  return path.empty() || std::any_of(kPrefixes.begin(), kPrefixes.end(),
                                     [path](auto prefix) { return path.starts_with(prefix); });
}

// The kernel appends this to the path of a file that was unlinked while mapped.
constexpr std::string_view kDeletedSuffix = " (deleted)";

}  // namespace

struct DsoTable::Entry {
  Dso dso;
  bool resolved = false;
  bool deleted = false;  // when it was mapped: whatever has its path now is another file
};

// This process's vdso as a file that libipt and libdw can open by name.
struct DsoTable::OwnVdso {
  UniqueFd file;
  std::string path;
  ElfFacts facts;

  static std::unique_ptr<OwnVdso> capture() {
    const uint64_t start = ::getauxval(AT_SYSINFO_EHDR);
    if (start == 0) return nullptr;
    auto vdso = std::make_unique<OwnVdso>();
    // The mapping's size is not known; write() stops by itself where memory ends.
    vdso->file = UniqueFd(::memfd_create("auxtrail-vdso", MFD_CLOEXEC));
    if (!vdso->file) return nullptr;
    for (uint64_t offset = 0; offset < kMaxVdsoBytes; offset += 4096) {
      const auto* page = reinterpret_cast<const void*>(start + offset);  // NOLINT
      if (::write(vdso->file.get(), page, 4096) != 4096) break;
    }
    vdso->path = fmt::format("/proc/self/fd/{}", vdso->file.get());
    auto facts = read_elf_facts(vdso->path);
    if (!facts || !facts->is_elf) return nullptr;
    vdso->facts = std::move(*facts);
    return vdso;
  }
};

std::string to_hex(const BuildId& id) {
  std::string text;
  for (const uint8_t byte : id) text += fmt::format("{:02x}", byte);
  return text;
}

std::string_view name(DsoState state) {
  switch (state) {
    case DsoState::kUsable:
      return "usable";
    case DsoState::kNotFile:
      return "not a file";
    case DsoState::kMissing:
      return "missing";
    case DsoState::kChanged:
      return "changed";
    case DsoState::kNotElf:
      return "not an ELF file";
  }
  return "unknown";
}

std::string_view Dso::short_name() const {
  const std::string_view all = path;
  if (all.empty() || all.front() != '/' || all.starts_with("//")) return all;
  return all.substr(all.rfind('/') + 1);
}

uint64_t Dso::address_of(uint64_t file_offset) const {
  for (const auto& segment : segments) {
    if (file_offset >= segment.offset && file_offset - segment.offset < segment.size_bytes) {
      return file_offset - segment.offset + segment.address;
    }
  }
  return file_offset;
}

DsoTable::DsoTable(DsoOptions options) : options_(std::move(options)) {}
DsoTable::~DsoTable() = default;

const Dso* DsoTable::intern(std::string_view path, const BuildId& build_id) {
  std::string key(path);
  const bool deleted = path.ends_with(kDeletedSuffix);
  if (deleted) path.remove_suffix(kDeletedSuffix.size());
  key += '\0';
  key.append(build_id.begin(), build_id.end());
  auto& entry = entries_[key];
  if (!entry) {
    entry = std::make_unique<Entry>();
    entry->dso.path = path;
    entry->dso.build_id = build_id;
    entry->deleted = deleted;
    if (build_id.empty()) {
      const auto known = known_build_ids_.find(entry->dso.path);
      if (known != known_build_ids_.end()) entry->dso.build_id = known->second;
    }
    by_dso_[&entry->dso] = entry.get();
  }
  return &entry->dso;
}

void DsoTable::set_build_id(std::string_view path, const BuildId& build_id) {
  known_build_ids_[std::string(path)] = build_id;
  for (auto& [key, entry] : entries_) {
    if (entry->dso.path != path || !entry->dso.build_id.empty()) continue;
    entry->dso.build_id = build_id;
    entry->resolved = false;
  }
}

const Dso& DsoTable::resolve(const Dso* dso) {
  Entry& entry = *by_dso_.at(dso);
  if (!entry.resolved) {
    entry.resolved = true;
    if (entry.dso.path == kVdsoPath) {
      find_vdso(entry);
    } else if (has_no_file(entry.dso.path)) {
      entry.dso.state = DsoState::kNotFile;
    } else {
      find_file(entry);
    }
  }
  return entry.dso;
}

void DsoTable::find_file(Entry& entry) {
  Dso& dso = entry.dso;
  if (entry.deleted && dso.build_id.empty()) {
    dso.state = DsoState::kMissing;
    report(dso, "it was deleted or replaced while the program ran", "record again");
    return;
  }
  std::vector<std::string> candidates = {options_.symfs + dso.path};
  const char* home = std::getenv("HOME");
  const std::string hex = to_hex(dso.build_id);
  if (home != nullptr && hex.size() > 2) {
    candidates.push_back(
        fmt::format("{}/.debug/.build-id/{}/{}/elf", home, hex.substr(0, 2), hex.substr(2)));
  }
  std::string why_not;
  for (const auto& candidate : candidates) {
    auto facts = read_elf_facts(candidate);
    if (!facts) {
      if (why_not.empty()) why_not = facts.error().why;
      continue;
    }
    if (!dso.build_id.empty() && facts->build_id != dso.build_id) {
      dso.state = DsoState::kChanged;
      continue;
    }
    dso.state = facts->is_elf ? DsoState::kUsable : DsoState::kNotElf;
    dso.file_path = candidate;
    dso.file_size_bytes = facts->size_bytes;
    dso.build_id = std::move(facts->build_id);
    dso.segments = std::move(facts->segments);
    return;
  }
  if (dso.state == DsoState::kChanged) {
    report(dso, fmt::format("its build id is no longer {}", hex),
           "put the recorded version back or under a directory given by --symfs");
    return;
  }
  dso.state = DsoState::kMissing;
  report(dso, why_not, "put it back or under a directory given by --symfs");
}

void DsoTable::find_vdso(Entry& entry) {
  Dso& dso = entry.dso;
  ElfFacts facts;
  if (!options_.vdso_file.empty()) {
    auto read = read_elf_facts(options_.vdso_file);
    if (read && read->is_elf) {
      facts = std::move(*read);
      dso.file_path = options_.vdso_file;
    }
  }
  if (!facts.is_elf) {
    if (!own_vdso_) own_vdso_ = OwnVdso::capture();
    if (!own_vdso_) {
      dso.state = DsoState::kMissing;
      report(dso, "this process has none to stand in for it", "");
      return;
    }
    facts = own_vdso_->facts;
    dso.file_path = own_vdso_->path;
  }
  if (!dso.build_id.empty() && facts.build_id != dso.build_id) {
    dso.state = DsoState::kChanged;
    dso.file_path.clear();
    report(dso, "it was recorded on another kernel", "decode on the machine that recorded");
    return;
  }
  dso.state = DsoState::kUsable;
  dso.file_size_bytes = facts.size_bytes;
  dso.build_id = std::move(facts.build_id);
  dso.segments = std::move(facts.segments);
}

void DsoTable::report(const Dso& dso, std::string_view why, std::string_view fix) {
  const Error error{fmt::format("cannot use {}", dso.path), "", std::string(why), std::string(fix)};
  problems_.push_back(error.message());
}

}  // namespace auxtrail::image
