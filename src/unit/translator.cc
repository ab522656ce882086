// See translator.h. Signal safe; compiled without vector registers.
#include "unit/translator.h"

#include "pt/packet_writer.h"
#include "unit/rseq.h"

namespace auxtrail::unit {

using channel::Reason;
using isa::Insn;
using isa::InsnClass;

namespace {

bool is_branch(InsnClass cls) {
  switch (cls) {
    case InsnClass::kCondJump:
    case InsnClass::kLoop:
    case InsnClass::kJump:
    case InsnClass::kCall:
    case InsnClass::kJumpIndirect:
    case InsnClass::kCallIndirect:
    case InsnClass::kReturn:
      return true;
    default:
      return false;
  }
}

}  // namespace

Translator::Translator(CodeCache& cache, const Segment& segment, CodeCache::Arena& arena,
                       InsnMark* marks, ExitRoom room)
    : cache_(cache),
      segment_(segment),
      arena_(arena),
      marks_(marks),
      tls_(tls_offsets()),
      emit_(arena.used, arena.end),
      room_(room) {}

bool Translator::translate(uint64_t pc, Block* block, const Options& options) {
  options_ = options;
  const AddressRange& same = options.same_filter;
  bounds_ = {segment_.start > same.start ? segment_.start : same.start,
             segment_.end < same.end ? segment_.end : same.end};
  emit_.align(16);
  start_ = emit_.here();
  if (options_.continuous) emit_.code(0x0f, 0x1f, 0x44, 0x00, 0x00);  // kEntryBytes of nop
  pc_ = first_pc_ = pc;
  for (;;) {
    if (insns_ == options.reach.insns || outcome_count_ == options.reach.outcomes ||
        path_count(path_) == kMaxPathBits || constant_count_ == kMaxConstants) {
      leave(pc_, Exit::kLogged, Reason::kFull);
      break;
    }
    if (!is_within(pc_)) {  // ran off the segment's or the filter's end
      if (insns_ == 0) return refuse(Reason::kForeignCode), false;
      leave(pc_, Exit::kLogged, Reason::kFull);
      break;
    }
    if (rseq_abort_of(pc_) != 0) {
      (void)refuse(Reason::kRseq);
      break;
    }
    const Insn insn =
        isa::decode(reinterpret_cast<const uint8_t*>(pc_), static_cast<size_t>(segment_.end - pc_));
    if (step(insn) == Step::kEnded) break;
  }
  if (exit_count_ == 0 && insns_ == 0) return false;
  if (emit_.overflowed()) return false;
  const auto body_bytes = static_cast<uint32_t>(emit_.here() - start_);
  finish();
  if (emit_.overflowed()) {
    refusal_ = Reason::kCacheFull;
    return false;
  }
  *block = {.pc = pc,
            .code = start_,
            .segment_start = segment_.start,
            .source_hash = hash_,
            .body_bytes = body_bytes,
            .code_bytes = static_cast<uint32_t>(emit_.here() - arena_.used),
            .first_mark = 0,
            .first_exit = 0,
            .first_via = 0,
            .mark_count = static_cast<uint16_t>(insns_),
            .exit_count = 0,
            .generation = 0,
            .dead = false,
            .thunk = nullptr};
  return true;
}

Translator::Step Translator::step(const Insn& insn) {
  switch (insn.cls) {
    case InsnClass::kOther:
      if (rseq_touches(insn, reinterpret_cast<const uint8_t*>(pc_))) {
        return refuse(Reason::kRseq);
      }
      if (!copy(insn)) return refuse(Reason::kUntranslatable);
      return Step::kContinue;
    case InsnClass::kCondJump:
      conditional(insn);
      return Step::kContinue;
    case InsnClass::kLoop:
      loop(insn);
      return Step::kContinue;
    case InsnClass::kJump:
      mark(insn, false);
      return follow(insn.target(pc_));
    case InsnClass::kCall:
      return call(insn);
    case InsnClass::kJumpIndirect:
    case InsnClass::kCallIndirect:
      return indirect(insn);
    case InsnClass::kReturn:
      // Behind a call that ends what the superblock may hold comes nothing that could be followed.
      return return_count_ != 0 && is_within(returns_[return_count_ - 1]) ? paired_return(insn)
                                                                          : indirect(insn);
    case InsnClass::kSyscall:
      return refuse(Reason::kSyscall);
    case InsnClass::kFar:
    case InsnClass::kTrap:
    case InsnClass::kSpecial:
    case InsnClass::kInvalid:
      break;
  }
  return refuse(Reason::kUntranslatable);
}

// The window must end before the instruction at pc_. If it is the superblock's first there is no
// superblock.
Translator::Step Translator::refuse(Reason reason) {
  refusal_ = reason;
  const bool stops = reason == Reason::kSyscall && options_.continuous;
  if (insns_ != 0 || stops) leave(pc_, Exit::kEnd, reason);
  return Step::kEnded;
}

void Translator::mark(const Insn& insn, bool spilled) {
  hash_before_mark_ = hash_;
  marks_[insns_++] = {.pc_offset = static_cast<uint32_t>(pc_ - segment_.start),
                      .code_offset = static_cast<uint16_t>(emit_.here() - start_),
                      .length = static_cast<uint8_t>(insn.length & 0x7f),
                      .spilled = spilled,
                      .path = path_ & 0x1ffff,
                      .via_count = via_count_ & 7,
                      .branches = branches_ & 0x1ff,
                      .is_call = 0,
                      .is_paired_return = 0};
  if (is_branch(insn.cls)) ++branches_;
  hash_ = hash_insn(hash_, reinterpret_cast<const uint8_t*>(pc_), insn.length);
}

void Translator::unmark() {
  --insns_;
  branches_ = marks_[insns_].branches;
  hash_ = hash_before_mark_;
}

// RIP-relative operands keep their absolute address: the displacement is recomputed for the copy's
// place.
bool Translator::fix_displacement(const Insn& insn, uint8_t* copied, size_t disp_offset,
                                  size_t length) {
  int32_t old_displacement;
  __builtin_memcpy(&old_displacement, reinterpret_cast<const uint8_t*>(pc_) + insn.disp_offset, 4);
  const uint64_t absolute = pc_ + insn.length + static_cast<uint64_t>(int64_t{old_displacement});
  const auto moved = static_cast<int64_t>(absolute - (reinterpret_cast<uint64_t>(copied) + length));
  if (moved != static_cast<int32_t>(moved)) return false;
  if (emit_.overflowed()) return false;
  const auto narrow = static_cast<int32_t>(moved);
  __builtin_memcpy(copied + disp_offset, &narrow, 4);
  return true;
}

bool Translator::copy(const Insn& insn) {
  if (insn.rip_relative && (insn.address_size_32 || insn.disp_size != 4)) return false;
  uint8_t* copied = emit_.here();
  const Emitter before = emit_;
  mark(insn, false);
  if (segment_.end - pc_ >= 16) {
    emit_.copy_within_16(reinterpret_cast<const uint8_t*>(pc_), insn.length);
  } else {
    emit_.copy(reinterpret_cast<const uint8_t*>(pc_), insn.length);
  }
  if (insn.rip_relative && !fix_displacement(insn, copied, insn.disp_offset, insn.length)) {
    emit_ = before;
    unmark();
    return false;
  }
  pc_ += insn.length;
  return true;
}

// The branch at pc_, which is the superblock's instruction of that number, from 1.
BranchBias::Place Translator::place(uint32_t insns) const {
  return {.first_pc = first_pc_, .insns = insns, .pc = pc_};
}

// The superblock goes on where the branch most likely leads: where it went so far; if that is not
// known, backward if it can, for loops repeat and their outcomes then share log entries; else
// straight on.
void Translator::conditional(const Insn& insn) {
  const uint64_t taken = insn.target(pc_);
  const uint64_t following = pc_ + insn.length;
  const BranchBias::Way bias =
      options_.continuous ? cache_.bias_.get(place(insns_ + 1)) : BranchBias::Way::kUnknown;
  const bool likely_taken =
      bias == BranchBias::Way::kUnknown ? taken <= pc_ : bias == BranchBias::Way::kTaken;
  const bool follow_taken = likely_taken && is_within(taken);
  mark(insn, false);
  emit_.pad_for_field(2);
  emit_.code(0x0f, 0x80 | ((insn.opcode & 0x0f) ^ static_cast<uint32_t>(follow_taken)));
  side_exit(follow_taken ? following : taken, !follow_taken, emit_.rel32_later());
  room_.passages[exit_count_ - 1].is_side_exit = true;
  pc_ = follow_taken ? taken : following;
}

// loop/jrcxz only reach eight bits: they jump over a short jump to a long one.
void Translator::loop(const Insn& insn) {
  mark(insn, false);
  emit_.pad_for_field(insn.address_size_32 ? 6 : 5);
  if (insn.address_size_32) emit_.code(0x67);
  emit_.code(insn.opcode, 0x02, 0xeb, 0x05, 0xe9);
  side_exit(insn.target(pc_), true, emit_.rel32_later());
  pc_ += insn.length;
}

// The number of a new way out, at the end of `path`.
uint32_t Translator::new_passage(Path path, Passage::Kind kind, PassageDetails::By by) {
  Passage& passage = room_.passages[exit_count_];
  const size_t direct_units = options_.filtered ? kFilteredUnits : 1;
  const size_t indirect_units = options_.continuous ? kPackedUnits : kIndirectUnits;
  const size_t units =
      (kind == Passage::kDirect ? direct_units : indirect_units) + kViaUnits * via_count_;
  passage = {.outcomes = static_cast<uint16_t>(path_outcomes(path)),
             .outcome_count = static_cast<uint8_t>(path_count(path)),
             .kind = kind,
             .units = static_cast<uint8_t>(units),
             .calls = 0,
             .via_count = static_cast<uint8_t>(via_count_),
             .is_side_exit = false,
             .first_via = room_.first_via,
             .hits = 0};
  if (options_.continuous) {  // in a window this memory would cost more than it is worth
    passage.calls = static_cast<uint8_t>(return_count_);
    PassageDetails& details = room_.details[exit_count_];
    details.seen = 0;
    details.insns = insns_;
    details.branches = static_cast<uint16_t>(branches_);
    details.by = by;
    for (uint32_t i = 0; i < return_count_; ++i) details.returns_to[i] = returns_[i];
  }
  return room_.first + exit_count_++;
}

// The jump just emitted leaves for `target` if the program's conditional was `taken` or not;
// finish() makes the way there.
void Translator::side_exit(uint64_t target, bool taken, uint8_t* field) {
  path_ = path_ << 1 | static_cast<uint32_t>(!taken);
  ++outcome_count_;
  const uint32_t number =
      new_passage(path_ ^ 1, Passage::kDirect,
                  taken ? PassageDetails::kConditional : PassageDetails::kSequence);
  room_.exits[number - room_.first] = {.target = target & kTargetMask,
                                       .reason = 0,
                                       .field = reinterpret_cast<uint64_t>(field) & kTargetMask,
                                       .state = Exit::kUnlogged};
}

// Goes on with the code at `target` in the same superblock where that is possible.
Translator::Step Translator::follow(uint64_t target) {
  if (!is_within(target) || target == first_pc_) {
    leave(target, Exit::kLogged, Reason::kFull, PassageDetails::kBranch);
    return Step::kEnded;
  }
  pc_ = target;
  return Step::kContinue;
}

void Translator::push_return_address(uint64_t address) {
  emit_.code(0xff, 0x35);  // push qword [rip+...]: no register, no flags, one store of eight bytes
  constants_[constant_count_++] = {emit_.rel32_later(), address};
}

// The call just marked will return there.
void Translator::expect_return(uint64_t address) {
  marks_[insns_ - 1].is_call = 1;
  returns_[return_count_++] = address;
}

// Ends the superblock before a call that is one too many.
bool Translator::too_many_calls() {
  if (return_count_ != kMaxPendingCalls) return false;
  leave(pc_, Exit::kLogged, Reason::kFull);
  return true;
}

Translator::Step Translator::call(const Insn& insn) {
  const uint64_t following = pc_ + insn.length;
  const uint64_t target = insn.target(pc_);
  // No decoder takes a call of the next instruction for one: it reads the program counter.
  const bool counts = options_.compress_returns && target != following;
  if (counts && too_many_calls()) return Step::kEnded;
  mark(insn, false);
  push_return_address(following);
  if (counts) expect_return(following);
  return follow(target);
}

// mov rax, <the branch's operand>: the same ModRM, SIB and displacement with opcode 8b and register
// rax.
bool Translator::load_target(const Insn& insn) {
  const auto* source = reinterpret_cast<const uint8_t*>(pc_);
  if (insn.rip_relative && (insn.address_size_32 || insn.disp_size != 4)) return false;
  uint8_t* copied = emit_.here();
  if (insn.segment != 0) emit_.code(insn.segment);
  if (insn.address_size_32) emit_.code(0x67);
  emit_.code(0x48 | (insn.rex & 0x03));
  emit_.code(0x8b);
  const uint8_t modrm = source[insn.modrm_offset];
  emit_.code(static_cast<uint8_t>(modrm & 0xc7));
  const size_t rest = insn.length - insn.modrm_offset - 1u;
  emit_.copy(source + insn.modrm_offset + 1, rest);
  const auto length = static_cast<size_t>(emit_.here() - copied);
  if (!insn.rip_relative) return true;
  return fix_displacement(insn, copied, length - 4, length);
}

Translator::Step Translator::indirect(const Insn& insn) {
  if (insn.cls == InsnClass::kCallIndirect && too_many_calls()) return Step::kEnded;
  const Emitter before = emit_;
  mark(insn, true);
  emit_.fs_store(tls_.rax, Reg::kRax);
  const bool is_return = insn.cls == InsnClass::kReturn;
  if (is_return) {
    emit_.code(0x58);  // pop rax
    if (insn.return_pop != 0) move_stack(insn.return_pop);
  } else if (!load_target(insn)) {
    emit_ = before;
    unmark();
    return refuse(Reason::kUntranslatable);
  }
  if (insn.cls == InsnClass::kCallIndirect) {
    push_return_address(pc_ + insn.length);
    if (options_.compress_returns) expect_return(pc_ + insn.length);
  }
  const bool compressed = is_return && options_.compress_returns && options_.continuous;
  const uint32_t number = new_passage(path_, compressed ? Passage::kReturn : Passage::kIndirect);
  // A return from a call of this superblock is here only if it can't be followed.
  const bool may_follow = options_.continuous && !(is_return && return_count_ != 0);
  const uint64_t target = may_follow ? cache_.bias_.target(place(insns_)) : 0;
  if (is_likely(target)) return follow_indirect(insn, target, number);
  log_indirect(number, Saved::kRax);
  return Step::kEnded;
}

// Whether a superblock may go on at the target of an indirect branch.
bool Translator::is_likely(uint64_t target) const {
  return target > BranchBias::kNone && via_count_ != kMaxVias && target != first_pc_ &&
         is_within(target);
}

// The branch of that exit, with its target in rax, led there so far.
Translator::Step Translator::follow_indirect(const Insn& insn, uint64_t target, uint32_t number) {
  emit_.fs_store(tls_.rcx, Reg::kRcx);
  check_target(target);
  misses_[miss_count_++] = {emit_.rel32_later(), number, 0};
  emit_.fs_load(Reg::kRax, tls_.rax);
  emit_.fs_load(Reg::kRcx, tls_.rcx);
  Via& via = room_.vias[via_count_];
  via = {.target = target,
         .packets = 0,
         .outcomes = static_cast<uint16_t>(path_outcomes(path_)),
         .outcome_count = static_cast<uint8_t>(path_count(path_)),
         .is_return = insn.cls == InsnClass::kReturn && options_.compress_returns,
         .packet_bytes = 0};
  if (via_count_++ != 0) make_packets(room_.vias[via_count_ - 2], &via);
  path_ = kEmptyPath;
  return follow(target);
}

// The packets of a via behind another one, if these are always the same.
void Translator::make_packets(const Via& before, Via* via) {
  if (before.is_return || via->is_return) return;
  uint8_t buffer[2 * pt::PacketWriter::kMaxTipBytes + kMaxPathBits / 6 + 1 +
                 pt::PacketWriter::kSlackBytes];
  pt::PacketWriter writer(buffer);
  writer.tip(before.target);
  const uint8_t* const start = writer.position();
  writer.tnt(via->outcomes, via->outcome_count);
  writer.flush_tnt();
  writer.tip(via->target);
  const auto bytes = static_cast<size_t>(writer.position() - start);
  if (bytes > sizeof via->packets) return;
  __builtin_memcpy(&via->packets, start, bytes);
  via->packet_bytes = static_cast<uint8_t>(bytes);
}

// jrcxz hit; jmp miss; hit: the rel32 of the miss comes next. The target is in rax.
void Translator::check_target(uint64_t expected) {
  emit_.code(0x48, 0xb9);  // mov rcx, -expected
  emit_.u64(uint64_t{0} - expected);
  emit_.code(0x48, 0x8d, 0x0c, 0x01);  // lea rcx, [rcx+rax]
  emit_.code(0xe3, 0x05, 0xe9);
}

// The return from a call of this superblock most likely goes back there, and then needs no more
// than an outcome: it does if the return address on the stack is the one expected.
Translator::Step Translator::paired_return(const Insn& insn) {
  const uint64_t expected = returns_[return_count_ - 1];
  const auto popped = static_cast<uint32_t>(sizeof expected) + insn.return_pop;
  mark(insn, true);
  marks_[insns_ - 1].is_paired_return = 1;
  emit_.fs_store(tls_.rax, Reg::kRax);
  emit_.code(0x48, 0x8b, 0x04, 0x24);  // mov rax, [rsp]
  emit_.fs_store(tls_.rcx, Reg::kRcx);
  check_target(expected);
  uint8_t* const field = emit_.rel32_later();
  misses_[miss_count_++] = {field, new_passage(path_, Passage::kMiss), popped};
  emit_.fs_load(Reg::kRax, tls_.rax);
  emit_.fs_load(Reg::kRcx, tls_.rcx);
  move_stack(popped);
  --return_count_;
  path_ = path_ << 1 | 1;
  ++outcome_count_;
  return follow(expected);
}

void Translator::move_stack(uint32_t bytes) {
  emit_.code(0x48, 0x8d, 0xa4, 0x24);  // lea rsp, [rsp+imm32]
  emit_.u32(bytes);
}

// The target is in rax.
void Translator::log_indirect(uint32_t number, Saved saved) {
  if (saved == Saved::kRax) emit_.fs_store(tls_.rcx, Reg::kRcx);
  emit_.fs_load(Reg::kRcx, tls_.log);
  const LogWord word(number, room_.passages[number - room_.first]);
  emit_log_word(emit_, word);
  emit_.code(0x48, 0x89, 0x41, 0x08);                             // mov [rcx+8], rax
  emit_.code(0x48, 0x8d, 0x49, word.units() * sizeof(LogEntry));  // lea rcx, [rcx+...]
  emit_.fs_store(tls_.log, Reg::kRcx);
  emit_.code(0x0f, 0xb6, 0xcd);  // movzx ecx, ch
  emit_.code(0xe3, 3 + 7);       // jrcxz full
  emit_.code(0x0f, 0xb7, 0xc8);  // movzx ecx, ax
  emit_.code(0xff, 0x24, 0xcd);  // jmp [table+rcx*8]
  emit_.u32(static_cast<uint32_t>(reinterpret_cast<uint64_t>(cache_.table_)));
  emit_.jump(arena_.indirect_stub);  // full:
}

// The way to another superblock (or, as kEnd, out of the window).
void Translator::leave(uint64_t target, Exit::State state, Reason reason, PassageDetails::By by) {
  const uint32_t number = new_passage(path_, Passage::kDirect, by);
  const LogWord word(number, room_.passages[number - room_.first]);
  const uint8_t* field = emit_logged_exit(emit_, tls_, word, arena_.logged_stub, nullptr);
  room_.exits[number - room_.first] = {.target = target & kTargetMask,
                                       .reason = static_cast<uint8_t>(reason),
                                       .field = reinterpret_cast<uint64_t>(field) & kTargetMask,
                                       .state = state};
}

// The ways out of the conditionals that leave and of the returns that go elsewhere, then the return
// addresses that calls push.
void Translator::finish() {
  for (uint32_t i = 0; i < exit_count_; ++i) {
    if (room_.passages[i].kind != Passage::kDirect || room_.exits[i].state != Exit::kUnlogged) {
      continue;
    }
    if (emit_.overflowed()) return;
    Emitter::set_rel32(reinterpret_cast<uint8_t*>(room_.exits[i].field), emit_.here());
    emit_unlogged_exit(emit_, tls_, room_.first + i, arena_.unlogged_stub);
  }
  for (uint32_t i = 0; i < miss_count_; ++i) {
    if (emit_.overflowed()) return;
    Emitter::set_rel32(misses_[i].field, emit_.here());
    if (misses_[i].popped != 0) move_stack(misses_[i].popped);
    log_indirect(misses_[i].number, Saved::kRaxAndRcx);
  }
  emit_.align(8);
  for (uint32_t i = 0; i < constant_count_; ++i) {
    if (emit_.overflowed()) return;
    Emitter::set_rel32(constants_[i].field, emit_.here());
    emit_.u64(constants_[i].value);
  }
}

}  // namespace auxtrail::unit
