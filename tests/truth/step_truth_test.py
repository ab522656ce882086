#!/usr/bin/env python3
"""Checks the single-step ground truth itself: against counts made by hand, and against objdump's view of the code.

For tiny.S the number of branches of every kind is known. For a real program every branch that step_truth wrote
inside the program's file is looked up in objdump's disassembly: it must be a branch of that kind there, a direct
one must go to the target that objdump prints, a conditional that was not taken to the next line; and between two
branches the code must run straight on.
"""
import argparse
import bisect
import collections
import pathlib
import re
import subprocess
import sys

ROUNDS = 1000
# See tiny.S: kind -> count. F: the getpid; the exit does not return.
TINY = {"T": ROUNDS - 1 + ROUNDS // 2, "N": 1 + ROUNDS // 2, "J": ROUNDS, "C": ROUNDS, "I": 2 * ROUNDS, "R": 2 * ROUNDS,
        "F": 1, "S": 0}


def step(tool, output, options, command):
    result = subprocess.run([tool, "--counts", "--output", output, *options, "--", *command], check=True,
                            capture_output=True, text=True)
    words = result.stderr.split()
    counts = dict(zip(words[::2], map(int, words[1::2])))
    branches = [line.split() for line in pathlib.Path(output).read_text().splitlines()]
    return counts, [(int(a, 16), int(b, 16), kind) for a, b, kind in branches]


def disassemble(program):
    """address -> (mnemonic, operands) of every instruction."""
    text = subprocess.run(["objdump", "-d", "--no-show-raw-insn", program], check=True, capture_output=True,
                          text=True).stdout
    code = {}
    for address, rest in re.findall(r"^ +([0-9a-f]+):\t(.*)$", text, re.MULTILINE):
        words = re.sub(r"^((bnd|notrack|rep|repz|repnz|lock|cs|ds|addr32|data16|rex\S*) )*", "", rest).split(None, 1)
        if words:
            code[int(address, 16)] = (words[0].split(",")[0], words[1] if len(words) > 1 else "")
    return code


def kind_of(mnemonic, operands):
    if mnemonic in ("syscall", "int3", "lret", "iretq"):
        return "F"
    if mnemonic.startswith("ret"):
        return "R"
    if mnemonic.startswith("call"):
        return "I" if operands.startswith("*") else "C"
    if mnemonic.startswith("jmp"):
        return "I" if operands.startswith("*") else "J"
    if mnemonic.startswith(("j", "loop")):
        return "?"
    return ""


def check_against_objdump(program, branches):
    """Problems, and how many branches were looked up. The program must be static and at its linked address."""
    code = disassemble(program)
    addresses = sorted(code)
    problems, looked_up, last_to = [], 0, None
    for source, target, kind in branches:
        if source not in code:
            last_to = None
            continue
        looked_up += 1
        mnemonic, operands = code[source]
        expected = kind_of(mnemonic, operands)
        if not (expected == kind or (expected == "?" and kind in "TN") or kind in "SF"):
            problems.append(f"{source:x}: {mnemonic} {operands}: written as {kind}")
        direct = re.match(r"([0-9a-f]+)\b", operands)
        if kind in "TJC" and direct and int(direct[1], 16) != target:
            problems.append(f"{source:x}: {mnemonic} {operands}: went to {target:x}")
        following = bisect.bisect_right(addresses, source)
        if kind == "N" and addresses[following] != target:
            problems.append(f"{source:x}: {mnemonic} not taken, but went to {target:x}")
        if last_to is not None and kind != "S":
            between = addresses[bisect.bisect_left(addresses, last_to):bisect.bisect_left(addresses, source)]
            if last_to > source or any(kind_of(*code[a]) not in ("",) for a in between):
                problems.append(f"{last_to:x} to {source:x}: a branch in between is missing")
        last_to = target if target in code else None
    return problems, looked_up


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tool", required=True)
    parser.add_argument("--tiny", required=True)
    parser.add_argument("--static", required=True, help="a static program")
    parser.add_argument("--work", required=True)
    parser.add_argument("--steps", default="200000")
    arguments = parser.parse_args()
    pathlib.Path(arguments.work).mkdir(parents=True, exist_ok=True)
    output = str(pathlib.Path(arguments.work) / "branches")

    counts, branches = step(arguments.tool, output, [], [arguments.tiny])
    problems = [f"tiny: {kind}: {counts[kind]}, expected {count}" for kind, count in TINY.items() if counts[kind] != count]
    found, looked_up = check_against_objdump(arguments.tiny, branches)
    problems += found
    print(f"tiny: {counts}, {looked_up} branches looked up")

    options = ["--skip", "30000", "--steps", arguments.steps]
    counts, branches = step(arguments.tool, output, options, [arguments.static])
    kinds = collections.Counter(kind for _, _, kind in branches)
    found, looked_up = check_against_objdump(arguments.static, branches)
    problems += found
    if counts["steps"] != int(arguments.steps) or looked_up < 10000:
        problems.append(f"too little was stepped: {counts}, {looked_up} looked up")
    if any(kinds[kind] != counts[kind] for kind in "TNJCIRFS"):
        problems.append(f"the counts differ from the lines: {kinds}")
    print(f"static: {counts}, {looked_up} branches looked up")
    print("\n".join(problems[:20]))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
