#include "decode/testing/native_flow.h"

#include <fstream>

#include "flow/flow_decoder.h"

namespace auxtrail::decode::testing {
namespace {

pt::TraceConfig config_of(const TraceConfig& config) {
  pt::TraceConfig result;
  result.mtc_freq = config.mtc_freq;
  result.nom_freq = config.nom_freq;
  result.cpuid_0x15_eax = config.cpuid_0x15_eax;
  result.cpuid_0x15_ebx = config.cpuid_0x15_ebx;
  if (config.intel_cpu) {
    (void)pt::errata_of({true, config.family, config.model, config.stepping}, result.errata);
  }
  if (config.filter_end != 0) {
    result.ranges[0] = {pt::AddressRange::Kind::kFilter, config.filter_start, config.filter_end};
  }
  return result;
}

bool is_branch(const flow::Instruction& insn) {
  return insn.cls != flow::InsnClass::kOther && insn.cls != flow::InsnClass::kPtwrite;
}

}  // namespace

const flow::CodeMemory& NativeFlow::code(const image::CodeMap& map) {
  auto& code = codes_[map.id];
  if (!code) {
    code = std::make_unique<Code>();
    for (const image::CodeSection& section : map.sections) {
      std::vector<uint8_t> bytes(section.size_bytes);
      std::ifstream file(section.file, std::ios::binary);
      file.seekg(static_cast<std::streamoff>(section.offset));
      file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
      code->bytes.push_back(std::move(bytes));
      code->memory.add(section.address, code->bytes.back());
    }
  }
  return code->memory;
}

void NativeFlow::decode(const DifferentialCase& made, BlockFlow& flow) {
  flow.clear();
  if (made.trace.bytes.empty()) return;
  const pt::TraceConfig config = config_of(made.config);
  flow::FlowDecoder decoder(config, made.trace.bytes, code(*made.code));
  decoder.set_resync(false);  // as libipt 2.0.5
  flow::FlowItem item;
  bool syncs = true;
  for (auto kind = decoder.next(item); kind != flow::FlowItemKind::kEnd;
       kind = decoder.next(item)) {
    if (syncs && (kind != flow::FlowItemKind::kError || item.stage != flow::FlowStage::kSync)) {
      flow.sync(decoder.events().sync_offset());
      syncs = false;
    }
    switch (kind) {
      case flow::FlowItemKind::kBlock: {
        const flow::FlowBlock& block = item.block;
        BlockFlow::Piece piece{block.first_ip,
                               block.last_ip,
                               block.instructions,
                               block.mode,
                               block.speculative,
                               is_branch(block.last),
                               0};
        if (!decoder.time(piece.time)) piece.time = 0;
        flow.run(piece);
        if (!flow.progress(decoder.offset())) return;
        break;
      }
      case flow::FlowItemKind::kEvent:
        flow.event(item.event, item.resumed);
        break;
      case flow::FlowItemKind::kError:
        if (syncs) flow.sync(decoder.events().sync_offset());
        flow.error(item.error, item.offset);
        syncs = true;
        break;
      default:
        break;
    }
  }
}

}  // namespace auxtrail::decode::testing
