// Which errata a CPU has. The table follows the CPUs' specification updates and agrees with
// libipt's (pt_cpu_errata), which is the oracle of its test.
#include "pt/trace_config.h"

#include <algorithm>
#include <array>
#include <span>

namespace auxtrail::pt {
namespace {

// CPUs whose trace units share their errata.
constexpr std::array<uint8_t, 4> kBroadwell = {0x3d, 0x47, 0x4f, 0x56};
constexpr std::array<uint8_t, 6> kSkylake = {0x4e, 0x5e, 0x8e, 0x9e, 0xa5, 0xa6};
constexpr std::array<uint8_t, 7> kServers = {0x55, 0x6a, 0x6c, 0x8f, 0xad, 0xae, 0xcf};
constexpr std::array<uint8_t, 7> kIceLake = {0x66, 0x7d, 0x7e, 0x8c, 0x8d, 0xa7, 0xa8};
constexpr std::array<uint8_t, 13> kHybrids = {0x97, 0x9a, 0xaa, 0xac, 0xb5, 0xb7, 0xba,
                                              0xbd, 0xbf, 0xc5, 0xc6, 0xcc, 0xd5};
constexpr std::array<uint8_t, 2> kGoldmont = {0x5c, 0x5f};
constexpr std::array<uint8_t, 7> kAtoms = {0x7a, 0x86, 0x96, 0x9c, 0xaf, 0xb6, 0xdd};
// Families other than 6, as (family, model). Those of family 18 are hybrids.
constexpr uint16_t kServerFamily = 0x13;
constexpr std::array<uint8_t, 1> kServers19 = {0x01};
constexpr uint16_t kHybridFamily = 0x12;
constexpr std::array<uint8_t, 2> kHybrids18 = {0x01, 0x03};

bool holds(std::span<const uint8_t> models, uint8_t model) {
  return std::find(models.begin(), models.end(), model) != models.end();
}

constexpr Errata kCore = {.bdm70 = true, .skd022 = true, .skl014 = true};

Errata with_skz84(Errata errata) {
  errata.skz84 = true;
  return errata;
}
Errata with_apl11(Errata errata) {
  errata.apl11 = true;
  return errata;
}

CpuKnowledge known(Errata& errata, const Errata& errata_of_group) {
  errata = errata_of_group;
  return CpuKnowledge::kKnown;
}

CpuKnowledge family_6(uint8_t model, Errata& errata) {
  if (holds(kBroadwell, model)) return known(errata, {.bdm64 = true, .bdm70 = true});
  if (holds(kSkylake, model)) {
    Errata skylake = kCore;
    skylake.skd007 = skylake.skd010 = skylake.skl168 = true;
    return known(errata, skylake);
  }
  if (holds(kServers, model)) return known(errata, with_skz84(kCore));
  if (holds(kIceLake, model)) return known(errata, kCore);
  if (holds(kHybrids, model)) return known(errata, with_apl11(kCore));
  if (holds(kGoldmont, model)) return known(errata, {.apl11 = true, .apl12 = true});
  if (holds(kAtoms, model)) return known(errata, {.apl11 = true});
  return CpuKnowledge::kUnknown;
}

// What may be worked around on a CPU that does not have the fault, because a trace without the
// fault gives the workaround no occasion, or the same result:
//   bdm70   a FUP in a PSB+ right before a TIP.PGE contradicts itself anyway: one of the two is
//   wrong skl014  asks the filter only where a TIP.PGD has no IP, which correct CPUs do not write
//   there skz84   only takes packets that are errors otherwise apl11   only takes a TIP.PGD that is
//   an error otherwise
// Left out, because they change the meaning of correct packets:
//   bdm64   searches the abort's address in the code, and may jump there too early
//   skd007  a CYC of one certain length followed by a CYC is legal elsewhere
//   skd010  takes a correct overflow out of traced code for one with a FUP lost
//   skd022  takes the FUP of a genuine asynchronous event at a VMLAUNCH or VMRESUME for a wrong one
//   skl168  drops calibration periods: times of correct traces would differ
//   apl12   takes correct packets after an overflow for the fault
constexpr Errata kHarmless = {.bdm70 = true, .skl014 = true, .skz84 = true, .apl11 = true};

}  // namespace

CpuKnowledge errata_of(const Cpu& cpu, Errata& errata) {
  errata = {};
  if (!cpu.intel) return CpuKnowledge::kNotIntel;
  CpuKnowledge knowledge = CpuKnowledge::kUnknown;
  if (cpu.family == 6) {
    knowledge = family_6(cpu.model, errata);
  } else if (cpu.family == kServerFamily && holds(kServers19, cpu.model)) {
    knowledge = known(errata, with_skz84(kCore));
  } else if (cpu.family == kHybridFamily && holds(kHybrids18, cpu.model)) {
    knowledge = known(errata, with_apl11(kCore));
  }
  if (knowledge == CpuKnowledge::kUnknown) errata = kHarmless;
  return knowledge;
}

}  // namespace auxtrail::pt
