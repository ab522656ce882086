// Writes vector_tables.h: which VEX, EVEX and XOP encodings exist, found by asking Zydis about each
// field of every opcode in turn. Run by hand when the tables' shape changes; decode_test.cc checks
// the product.
//
// Fields are taken as independent of each other. Where they are not (registers that must differ,
// AMX), the decoder itself adds the restriction or the opcode is left out.
#include <Zydis/Zydis.h>

#include <cstdio>
#include <optional>
#include <vector>

#include "isa/vector_form.h"

namespace {

using namespace auxtrail::isa;

struct Fields {
  unsigned space = 0, opcode = 0, pp = 0;
  unsigned w = 0, l = 0;
  bool r = false, r2 = false, x = false, b = false;
  unsigned vvvv = 0;
  bool v2 = false, z = false, bit_b = false;
  unsigned aaa = 0;
  unsigned modrm = 0;
  unsigned sib = 0;
};

unsigned map_of(unsigned space) {
  static constexpr unsigned kMaps[] = {1, 2, 3, 1, 2, 3, 5, 6, 8, 9, 10};
  return kMaps[space];
}

ZydisDecoder g_decoder;

unsigned length_of(const Fields& f) {
  uint8_t code[16] = {};
  unsigned n = 0;
  const auto inverted = [](bool bit, unsigned shift) { return bit ? 0u : 1u << shift; };
  const unsigned rxb = inverted(f.r, 7) | inverted(f.x, 6) | inverted(f.b, 5);
  const unsigned wvp = (f.w << 7) | ((~f.vvvv & 15) << 3) | f.pp;
  if (f.space >= kEvex1 && f.space <= kEvex6) {
    code[n++] = 0x62;
    code[n++] = static_cast<uint8_t>(rxb | inverted(f.r2, 4) | map_of(f.space));
    code[n++] = static_cast<uint8_t>(wvp | 4);
    code[n++] =
        static_cast<uint8_t>((f.z << 7) | (f.l << 5) | (f.bit_b << 4) | inverted(f.v2, 3) | f.aaa);
  } else {
    if (f.l > 1 || f.r2 || f.v2 || f.z || f.bit_b || f.aaa) return 0;
    code[n++] = f.space >= kXop8 ? 0x8F : 0xC4;
    code[n++] = static_cast<uint8_t>(rxb | map_of(f.space));
    code[n++] = static_cast<uint8_t>(wvp | (f.l << 2));
  }
  code[n++] = static_cast<uint8_t>(f.opcode);
  code[n++] = static_cast<uint8_t>(f.modrm);
  code[n++] = static_cast<uint8_t>(f.sib);
  ZydisDecodedInstruction insn;
  if (!ZYAN_SUCCESS(ZydisDecoderDecodeInstruction(&g_decoder, nullptr, code, sizeof code, &insn)))
    return 0;
  const auto ext = insn.meta.isa_ext;
  const bool knights_corner =
      ext == ZYDIS_ISA_EXT_KNC || ext == ZYDIS_ISA_EXT_KNCE || ext == ZYDIS_ISA_EXT_KNCV;
  return knights_corner ? 0 : insn.length;
}

bool valid(const Fields& f) { return length_of(f) != 0; }

// The first accepted combination of the fields that select an instruction.
std::optional<Fields> find_base(Fields f, bool memory, bool vsib) {
  for (unsigned aaa : {0u, 1u}) {
    for (unsigned wlb = 0; wlb < 16; ++wlb) {
      for (unsigned reg = 0; reg < 8; ++reg) {
        f.aaa = aaa;
        f.w = wlb & 1;
        f.l = (wlb >> 1) & 3;
        f.bit_b = wlb >> 3;
        f.modrm = (memory ? (vsib ? 4 : 0) : 0xC2) | (reg << 3);
        f.sib = vsib ? 0x28 : 0;  // index 5
        f.vvvv = vsib && f.space <= kVex3 ? 6 : 0;
        if (valid(f)) return f;
      }
    }
  }
  return std::nullopt;
}

template <typename Change>
bool valid_with(Fields f, Change change) {
  change(f);
  return valid(f);
}

uint8_t probe_zero(const Fields& base, bool memory, bool vsib) {
  uint8_t zero = 0;
  const auto need = [&](ZeroField field, auto change) {
    if (!valid_with(base, change)) zero |= field;
  };
  need(kFieldR, [](Fields& f) { f.r = true; });
  need(kFieldR2, [](Fields& f) { f.r2 = true; });
  if (!memory) need(kFieldX, [](Fields& f) { f.x = true; });
  if (!memory) need(kFieldB, [](Fields& f) { f.b = true; });
  const bool evex = base.space >= kEvex1 && base.space <= kEvex6;
  if (vsib && !evex) return zero;
  need(kFieldV, [](Fields& f) { f.vvvv = 1; });
  need(kFieldV3, [](Fields& f) { f.vvvv = 8; });
  if (evex) need(kFieldV2, [](Fields& f) { f.v2 = true; });
  return zero;
}

VectorSide probe_side(const Fields& base, bool memory, bool vsib) {
  VectorSide side;
  for (unsigned wl = 0; wl < 8; ++wl) {
    for (unsigned reg = 0; reg < 8; ++reg) {
      for (const bool bit_b : {false, true}) {
        Fields f = base;
        f.w = wl >> 2;
        f.l = wl & 3;
        f.bit_b = bit_b;
        f.modrm = (base.modrm & 0xC7) | (reg << 3);
        if (!valid(f)) continue;
        (bit_b ? side.wl_b : side.wl) |= static_cast<uint8_t>(1u << wl);
        side.regs |= static_cast<uint8_t>(1u << reg);
      }
    }
  }
  side.zero = probe_zero(base, memory, vsib);
  if (valid_with(base, [](Fields& f) { f.aaa = 0; })) side.mask |= kMaskNone;
  if (valid_with(base, [](Fields& f) { f.aaa = 2; })) side.mask |= kMaskSome;
  if (valid_with(base, [](Fields& f) { f.aaa = 2, f.z = true; })) side.mask |= kMaskZeroing;
  return side;
}

std::optional<VectorForm> probe(unsigned space, unsigned opcode, unsigned pp) {
  Fields f;
  f.space = space;
  f.opcode = opcode;
  f.pp = pp;
  VectorForm form;
  auto memory = find_base(f, true, false);
  if (!memory) {
    memory = find_base(f, true, true);
    form.vsib = memory.has_value();
  }
  const auto reg = find_base(f, false, false);
  if (!memory && !reg) return std::nullopt;
  const bool evex = space >= kEvex1 && space <= kEvex6;
  const unsigned bare = evex ? 6 : 5;  // prefix, opcode, ModRM
  if (memory) {
    form.memory = probe_side(*memory, true, form.vsib);
    form.imm_size = static_cast<uint8_t>(length_of(*memory) - bare - (form.vsib ? 1 : 0));
  }
  if (reg) {
    form.reg = probe_side(*reg, false, false);
    form.imm_size = static_cast<uint8_t>(length_of(*reg) - bare);
  }
  if (space == kVex1 && opcode == 0x77) form.modrm = false, form.imm_size = 0;
  return form;
}

// AMX (tile registers must differ from each other, memory forms need a SIB byte) is left out.
bool is_left_out_of_table(unsigned space, unsigned opcode) {
  return space == kVex2 && (opcode == 0x49 || opcode == 0x4B || (opcode >= 0x5C && opcode <= 0x5E));
}

void print_side(const VectorSide& s) {
  std::printf("{0x%02X, 0x%02X, 0x%02X, 0x%02X, %u}", s.wl, s.wl_b, s.regs, s.zero, s.mask);
}

}  // namespace

int main() {
  ZydisDecoderInit(&g_decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
  std::vector<VectorForm> forms;
  std::vector<VectorRow> rows;
  for (unsigned space = 0; space < kVectorSpaceCount; ++space) {
    for (unsigned opcode = 0; opcode < 256; ++opcode) {
      for (unsigned pp = 0; pp < 4 && !is_left_out_of_table(space, opcode); ++pp) {
        const auto form = probe(space, opcode, pp);
        if (!form) continue;
        size_t id = 0;
        while (id < forms.size() && !(forms[id] == *form)) ++id;
        if (id == forms.size()) forms.push_back(*form);
        rows.push_back({static_cast<uint8_t>(space), static_cast<uint8_t>(opcode),
                        static_cast<uint8_t>(pp), static_cast<uint8_t>(id + 1)});
      }
    }
  }
  std::puts(
      "// The VEX, EVEX and XOP encodings that exist. Written by vector_table_generator.cc; do not "
      "edit.\n"
      "// Left out: AMX. See vector_form.h for the fields.\n"
      "#pragma once\n\n#include \"isa/vector_form.h\"\n\nnamespace auxtrail::isa::tables {\n\n"
      "// clang-format off\n"
      "// memory and register {wl, wl_b, regs, zero, mask}, modrm, vsib, imm_size; form 0 is "
      "undefined\n"
      "inline constexpr VectorForm kVectorForms[] = {\n    {},");
  for (const VectorForm& f : forms) {
    std::printf("    {");
    print_side(f.memory);
    std::printf(", ");
    print_side(f.reg);
    std::printf(", %s, %s, %u},\n", f.modrm ? "true" : "false", f.vsib ? "true" : "false",
                f.imm_size);
  }
  std::puts("};\n\n// {space, opcode, pp, form}\ninline constexpr VectorRow kVectorRows[] = {");
  for (size_t i = 0; i < rows.size(); ++i) {
    std::printf("%s{%u, 0x%02X, %u, %u},%s", i % 6 ? " " : "    ", rows[i].space, rows[i].opcode,
                rows[i].pp, rows[i].form, i % 6 == 5 || i + 1 == rows.size() ? "\n" : "");
  }
  std::puts("};\n// clang-format on\n\n}  // namespace auxtrail::isa::tables");
  std::fprintf(stderr, "%zu forms, %zu rows\n", forms.size(), rows.size());
  return forms.size() < 255 ? 0 : 1;
}
