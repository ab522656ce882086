// ProgramCode: the code of one CodeMap in memory, with its graphs; and the cache of them.
//
// Files are mapped once, whatever the number of maps that show them; equal maps share one graph,
// with all that was decoded so far. May be used by many threads at once.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/unique_fd.h"
#include "decode/code_graph.h"
#include "flow/code_memory.h"
#include "image/code_map.h"

namespace auxtrail::decode {

class ProgramCode {
 public:
  [[nodiscard]] const flow::CodeMemory& memory() const { return memory_; }
  // The graph of this mode; not for kUnknown.
  CodeGraph& graph(flow::ExecMode mode);

 private:
  friend class ProgramCache;
  flow::CodeMemory memory_;
  std::vector<std::shared_ptr<const Mapping>> files_;
  std::mutex making_;
  std::array<std::unique_ptr<CodeGraph>, 3> graphs_;
};

class ProgramCache {
 public:
  // Files that can't be read are left out: decoding says "no map" there.
  std::shared_ptr<ProgramCode> get(const image::CodeMap& code);

 private:
  static constexpr size_t kMaxPrograms = 128;

  std::shared_ptr<const Mapping> file(const std::string& path);
  std::shared_ptr<ProgramCode> build(const image::CodeMap& code);

  std::mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<const Mapping>> files_;
  std::unordered_map<uint64_t, std::shared_ptr<ProgramCode>> by_id_;
  std::unordered_map<std::string, std::shared_ptr<ProgramCode>> by_sections_;
};

}  // namespace auxtrail::decode
