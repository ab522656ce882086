// libipt's images and section cache.
#include "decode/code_images.h"

#include <array>
#include <new>

#include "flow/instruction.h"

namespace auxtrail::decode {
namespace {

// Sections stay mapped up to this many bytes. Block caches count too (four bytes per byte of code),
// but only what is touched takes memory.
constexpr uint64_t kCacheLimitBytes = uint64_t{8} << 30;

flow::ExecMode mode_of(const pt_block& block) {
  switch (block.mode) {
    case ptem_16bit:
      return flow::ExecMode::k16;
    case ptem_32bit:
      return flow::ExecMode::k32;
    default:
      return flow::ExecMode::k64;
  }
}

flow::ExecMode flow_mode_of(const pt_block& block) {
  switch (block.mode) {
    case ptem_16bit:
      return flow::ExecMode::k16;
    case ptem_32bit:
      return flow::ExecMode::k32;
    default:
      return flow::ExecMode::k64;
  }
}

// What libipt itself says, for the few branches that classify_branch() does not know.
std::optional<BranchInsn> from_class(pt_insn_class iclass) {
  switch (iclass) {
    case ptic_call:
      return BranchInsn{BranchKind::kCall, 0, 0};
    case ptic_return:
      return BranchInsn{BranchKind::kReturn, 0, 0};
    case ptic_jump:
      return BranchInsn{BranchKind::kJump, 0, 0};
    case ptic_cond_jump:
      return BranchInsn{BranchKind::kConditional, 0, 0};
    case ptic_far_call:
    case ptic_far_return:
    case ptic_far_jump:
      return BranchInsn{BranchKind::kFar, 0, 0};
    default:
      return std::nullopt;
  }
}

}  // namespace

CodeImages::CodeImages() : sections_(pt_iscache_alloc("auxtrail"), &pt_iscache_free) {
  if (!sections_) throw std::bad_alloc();
  (void)pt_iscache_set_limit(sections_.get(), kCacheLimitBytes);
}

std::shared_ptr<CodeImages::Image> CodeImages::get(const image::CodeMap& code) {
  if (images_.size() >= kMaxImages) images_.clear();
  auto& image = images_[code.id];
  if (!image || code.id == 0) image = build(code);
  return image;
}

std::shared_ptr<CodeImages::Image> CodeImages::build(const image::CodeMap& code) {
  auto built = std::make_shared<Image>();
  built->image.reset(pt_image_alloc(nullptr));
  if (!built->image) throw std::bad_alloc();
  for (const auto& section : code.sections) {
    const int isid = section_id(section);
    if (isid <= 0) continue;  // the file went away meanwhile: decoding will say "no map" there
    (void)pt_image_add_cached(built->image.get(), sections_.get(), isid, nullptr);
  }
  return built;
}

int CodeImages::section_id(const image::CodeSection& section) {
  const SectionKey key(section.file, section.offset, section.size_bytes, section.address);
  const auto [place, is_new] = section_ids_.try_emplace(key, 0);
  if (is_new) {
    place->second = pt_iscache_add_file(sections_.get(), section.file.c_str(), section.offset,
                                        section.size_bytes, section.address);
  }
  return place->second;
}

const std::optional<BranchInsn>& CodeImages::block_end(Image& image, const pt_block& block) {
  const auto [place, is_new] = image.block_ends.try_emplace(block.end_ip);
  if (is_new) place->second = classify(block);
  return place->second;
}

std::optional<BranchInsn> CodeImages::classify(const pt_block& block) {
  std::array<uint8_t, pt_max_insn_size> buffer{};
  std::span<const uint8_t> bytes;
  if (block.truncated) {
    bytes = std::span(block.raw).first(std::min<size_t>(block.size, sizeof(block.raw)));
  } else {
    const int count =
        pt_iscache_read(sections_.get(), buffer.data(), buffer.size(), block.isid, block.end_ip);
    if (count > 0) bytes = std::span(buffer).first(static_cast<size_t>(count));
  }
  auto branch = classify_branch(bytes, mode_of(block));
  if (!branch) branch = from_class(block.iclass);
  if (branch && branch->length == 0) {
    flow::Instruction insn;
    if (flow::decode_instruction(bytes.data(), bytes.size(), flow_mode_of(block), insn)) {
      branch->length = insn.length;
    }
  }
  return branch;
}

}  // namespace auxtrail::decode
