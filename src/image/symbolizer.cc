// One libdwfl module per DSO, opened on first use.
#include "image/symbolizer.h"

#include <elfutils/libdwfl.h>

#include <optional>

#include "image/source_lines.h"
#include "image/symbol_table.h"

namespace auxtrail::image {
namespace {

struct DwflEnd {
  void operator()(Dwfl* dwfl) const { dwfl_end(dwfl); }
};

const Dwfl_Callbacks kCallbacks = {
    .find_elf = nullptr,
    .find_debuginfo = dwfl_standard_find_debuginfo,
    .section_address = dwfl_offline_section_address,
    .debuginfo_path = nullptr,  // the default: beside the file, .debug/, /usr/lib/debug
};

}  // namespace

struct Symbolizer::Module {
  std::unique_ptr<Dwfl, DwflEnd> dwfl;
  Dwfl_Module* module = nullptr;
  SymbolTable symbols;
  std::optional<SourceLines> lines;
  std::unordered_map<uint64_t, std::vector<SourceFrame>> frames;

  void open(const std::string& path) {
    dwfl.reset(dwfl_begin(&kCallbacks));
    if (!dwfl) return;
    module = dwfl_report_offline(dwfl.get(), path.c_str(), path.c_str(), -1);
    (void)dwfl_report_end(dwfl.get(), nullptr, nullptr);
  }
};

std::string_view Location::function_name() const {
  return function != nullptr ? std::string_view(function->name) : kUnknown;
}

std::string_view Location::dso_name() const {
  return dso != nullptr ? dso->short_name() : kUnknown;
}

Symbolizer::Symbolizer(DsoTable& dsos, SymbolizerOptions options)
    : dsos_(dsos), options_(options) {}
Symbolizer::~Symbolizer() = default;

Symbolizer::Module& Symbolizer::module(const Dso* dso) {
  auto& module = modules_[dso];
  if (module) return *module;
  module = std::make_unique<Module>();
  const Dso& resolved = dsos_.resolve(dso);
  if (resolved.state != DsoState::kUsable) return *module;
  module->open(resolved.file_path);
  if (module->module != nullptr) {
    module->symbols = SymbolTable::read(module->module, dso, options_.demangle);
  }
  return *module;
}

Location Symbolizer::locate(const Layout& layout, uint64_t address) {
  const Mapping* mapping = layout.find(address);
  if (mapping == nullptr) return {nullptr, nullptr, address};
  return locate(mapping->dso, mapping->offset_of(address));
}

Location Symbolizer::locate(const Dso* dso, uint64_t file_offset) {
  Module& owner = module(dso);
  const uint64_t dso_address = dso->address_of(file_offset);
  const Function* function = owner.symbols.find(dso_address);
  const Function* unnamed = function == nullptr ? owner.symbols.find_unnamed(dso_address) : nullptr;
  return {function, dso, dso_address, unnamed};
}

const std::vector<SourceFrame>& Symbolizer::source(const Location& location) {
  static const std::vector<SourceFrame> kNone;
  if (location.dso == nullptr) return kNone;
  Module& owner = module(location.dso);
  if (owner.module == nullptr) return kNone;
  const auto [place, is_new] = owner.frames.try_emplace(location.dso_address);
  if (is_new) {
    if (!owner.lines) owner.lines.emplace(owner.module);
    place->second = owner.lines->frames(location.dso_address, options_.demangle);
    for (auto& frame : place->second) {
      if (frame.function.empty()) frame.function = location.function_name();
    }
  }
  return place->second;
}

}  // namespace auxtrail::image
