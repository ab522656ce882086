// What a test wants to know about a perf.data file, read with the product's own reader.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace auxtrail::cli::testing {

struct FileFacts {
  bool readable = false;
  std::string error;
  std::map<uint32_t, uint64_t> samples_of_pid;
  std::set<uint32_t> sample_tids;
  uint64_t samples = 0;
  uint64_t aux_bytes = 0;
  uint64_t out_of_order = 0;  // samples older than the one before them in the file
  std::set<std::string> names;
  std::set<std::string> code;
  uint64_t forks = 0;
  uint64_t exits = 0;
  std::vector<std::string> build_id_paths;
  std::vector<std::string> command_line;
  std::vector<std::string> messages;  // of the reader's statistics
};

FileFacts read_facts(const std::string& path);

}  // namespace auxtrail::cli::testing
