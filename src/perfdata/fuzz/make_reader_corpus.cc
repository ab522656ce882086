// Writes the seeds of reader_fuzzer into a directory: make_reader_corpus DIRECTORY.
#include <cstdio>
#include <string>

#include "perfdata/testing/command.h"
#include "perfdata/testing/synthetic.h"

using namespace auxtrail::perfdata::testing;

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: make_reader_corpus DIRECTORY\n");
    return 2;
  }
  const auto put = [&](const char* name, const std::vector<std::byte>& bytes) {
    write_file(std::string(argv[1]) + "/" + name,
               {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  };
  put("intel_pt.data", intel_pt_file());
  put("full_trace.data", full_trace_file());
  put("every_field.data", every_field_file());
  put("side_band.data", side_band_file());
  put("compressed.data", compressed_file());
  return 0;
}
