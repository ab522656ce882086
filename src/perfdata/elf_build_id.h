// The GNU build id of an ELF file, for the BUILD_ID section.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace auxtrail::perfdata {

// Nothing if the file cannot be read, is no 64-bit little-endian ELF file, or has no build id of
// 1-20 bytes.
std::optional<std::vector<std::byte>> elf_build_id(const std::string& path);
// The same for an image in memory (a file's bytes, or the vdso).
std::optional<std::vector<std::byte>> elf_build_id(std::span<const std::byte> image);

}  // namespace auxtrail::perfdata
