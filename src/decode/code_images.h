// CodeImages: the programs' code as libipt wants it, kept from sample to sample.
//
// One section cache for everything: a file that many processes map is mapped and block-decoded
// once, whatever its address. Per CodeMap one image, and a table of the branches that end its
// blocks.
#pragma once

#include <intel-pt.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <unordered_map>

#include "decode/branch_insn.h"
#include "image/code_map.h"

namespace auxtrail::decode {

class CodeImages {
 public:
  struct Image {
    std::unique_ptr<pt_image, decltype(&pt_image_free)> image{nullptr, &pt_image_free};
    std::unordered_map<uint64_t, std::optional<BranchInsn>> block_ends;  // by the branch's address
  };

  CodeImages();

  // The image of `code`, built or remembered by its id.
  std::shared_ptr<Image> get(const image::CodeMap& code);

  // The branch that ends `block`, with its length if it is known; nothing if the block ends for
  // another reason.
  const std::optional<BranchInsn>& block_end(Image& image, const pt_block& block);

 private:
  // A file section at an address: what libipt calls an isid.
  using SectionKey = std::tuple<std::string, uint64_t, uint64_t, uint64_t>;
  static constexpr size_t kMaxImages = 512;

  int section_id(const image::CodeSection& section);
  std::shared_ptr<Image> build(const image::CodeMap& code);
  std::optional<BranchInsn> classify(const pt_block& block);

  std::unique_ptr<pt_image_section_cache, decltype(&pt_iscache_free)> sections_;
  std::map<SectionKey, int> section_ids_;
  std::unordered_map<uint64_t, std::shared_ptr<Image>> images_;
};

}  // namespace auxtrail::decode
