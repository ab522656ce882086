#!/usr/bin/env python3
"""Runs one transparency case: natively, then under `auxtrail record`, and compares.

What must be the same: the bytes of stdout and of stderr, the exit status or signal, and every file that the case
left in its folder. Then `auxtrail verify` must find no error in the recording. Without --auxtrail the case is run
natively twice, which checks the case itself.

Exit status: 0 passed, 1 failed, 77 skipped (a program of the case is not installed).
"""
import argparse
import json
import os
import pathlib
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import time

import cases
import inputs

HERE = pathlib.Path(__file__).resolve().parent
SKIP = 77
RECORD_OPTIONS = ["-F", "999", "--aux-sample=4096"]


class Outcome:
    """What a run left: status as subprocess gives it (negative for a signal), streams and files."""

    def __init__(self, status, folder):
        self.status = status
        self.files = {str(p.relative_to(folder)): p.read_bytes()
                      for p in sorted(folder.rglob("*")) if p.is_file() and not p.is_symlink()
                      and p.name != "core"}  # of a core file only the wait status tells


def first_difference(left, right):
    """Where two byte strings part, with a few words around it."""
    at = next((i for i, (a, b) in enumerate(zip(left, right)) if a != b), min(len(left), len(right)))
    return (f"{len(left)} and {len(right)} bytes, first difference at byte {at}:\n"
            f"    native: {left[max(0, at - 40):at + 160]!r}\n    traced: {right[max(0, at - 40):at + 160]!r}")


def same_status(native, traced):
    """A recorder whose program died by a signal dies by it, too, or exits with 128 + signal as shells do."""
    return native == traced or (native < 0 and traced == 128 - native)


def differences(native, traced):
    if not same_status(native.status, traced.status):
        yield f"exit status: native {native.status}, traced {traced.status}"
    for name in sorted(native.files.keys() | traced.files.keys()):
        left, right = native.files.get(name), traced.files.get(name)
        if left is None or right is None:
            yield f"{name}: only left by the {'native' if right is None else 'traced'} run"
        elif left != right:
            yield f"{name}: {first_difference(left, right)}"


class Runner:
    def __init__(self, arguments, case):
        self.case = case
        self.arguments = arguments
        self.work = pathlib.Path(arguments.work).resolve() / case.name
        self.recording = self.work / "perf.data"
        self.words = {"inputs": str(inputs.make(pathlib.Path(arguments.inputs or arguments.work).resolve() / "inputs")),
                      "scripts": str(HERE / "scripts"), "programs": str(pathlib.Path(arguments.programs).resolve())}

    def command(self):
        if isinstance(self.case.command, str):
            return ["bash", "-c", self.case.command.format(**self.words)]
        return [word.format(**self.words) for word in self.case.command]

    def missing_programs(self):
        command = self.case.command
        needs = self.case.needs + (() if isinstance(command, str) else (command[0].format(**self.words),))
        return [name for name in needs if shutil.which(name) is None]

    def environment(self):
        kept = {name: value for name, value in os.environ.items() if name.startswith("AUXTRAIL_")}
        return {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "LC_ALL": "C", "TZ": "UTC",
                "HOME": str(self.work), "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1", "GIT_AUTHOR_NAME": "a",
                "GIT_AUTHOR_EMAIL": "a@example.org", "GIT_COMMITTER_NAME": "a", "GIT_CONFIG_NOSYSTEM": "1",
                "GIT_COMMITTER_EMAIL": "a@example.org", "GIT_AUTHOR_DATE": "1000000000 +0000",
                "GIT_COMMITTER_DATE": "1000000000 +0000", **kept}

    def fresh_folder(self):
        """Both runs see the same path, and find in it what the case prepared."""
        folder = self.work / "run"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        if self.case.before:
            subprocess.run(["bash", "-ec", self.case.before.format(**self.words)], cwd=folder, check=True,
                           env=self.environment())
        return folder

    def run(self, prefix, name):
        folder = self.fresh_folder()
        stdin = self.case.stdin.format(**self.words) or os.devnull
        started, cpu_before = time.monotonic(), _children_cpu_s()
        # The streams' files lie in the folder, so that they are compared with the rest.
        with open(stdin, "rb") as source, open(folder / "stdout", "wb") as out, open(folder / "stderr", "wb") as err:
            process = subprocess.Popen(prefix + self.command(), cwd=folder, env=self.environment(), stdin=source,
                                       stdout=out, stderr=err, preexec_fn=_clean_state, start_new_session=True)
            try:
                status = process.wait(self.case.timeout_s)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                raise SystemExit(f"{name} run: no end after {self.case.timeout_s} s")
        cpu_s, wall_s = _children_cpu_s() - cpu_before, time.monotonic() - started
        print(f"{name} run: {cpu_s:.2f} s of CPU time, {wall_s:.2f} s in all")
        return Outcome(status, folder)

    def record_prefix(self):
        self.recording.unlink(missing_ok=True)
        options = [word.format(**self.words) for word in self.case.record_options]
        return [self.arguments.auxtrail, "record", "-q", *RECORD_OPTIONS, *options,
                *shlex.split(self.arguments.record_options),
                "-o", str(self.recording), "--"]

    def verify(self):
        """Problems that `auxtrail verify` reports."""
        if not self.recording.exists():
            return ["no recording was written"]
        result = subprocess.run([self.arguments.auxtrail, "verify", "--json", "-i", str(self.recording)],
                                capture_output=True, text=True, check=False)
        if self.arguments.verbose:
            print(result.stdout + result.stderr)
        try:
            found = json.loads(result.stdout)
        except json.JSONDecodeError:
            return [f"verify ended with {result.returncode}: {result.stderr[-2000:]}"] if self.case.decoded else []
        print(f"verify: {found['samples']} samples, {found['branches'] + found['branches_not_taken']} branches, "
              f"{found['samples_with_errors']} with errors, {found['samples_ending_elsewhere']} that end elsewhere")
        if self.case.decoded and result.returncode != 0:
            return [f"verify ended with {result.returncode}:\n{result.stdout[-4000:]}{result.stderr[-1000:]}"]
        if self.case.samples and (found["samples"] < 10 or found["branches"] == 0):
            return ["hardly anything was sampled: the comparison says nothing"]
        branches = found["branches"] + found["branches_not_taken"]
        if branches < self.case.least_branches * found["samples"]:
            return [f"{branches} branches in {found['samples']} samples: less than {self.case.least_branches} each"]
        return []

    def check(self):
        native = self.run([], "native")
        if native.status != self.case.status:
            return [f"the native run ended with {native.status}, expected {self.case.status}:\n"
                    f"{native.files['stdout'][-500:]!r}\n{native.files['stderr'][-1000:]!r}"]
        if not self.arguments.auxtrail:
            return list(differences(native, self.run([], "second native")))
        traced = self.run(self.record_prefix(), "traced")
        if self.case.refused:
            said = traced.files["stderr"].decode(errors="replace")
            good = traced.status == 1 and self.case.refused in said and not traced.files["stdout"]
            return [] if good else [f"not refused as it should be: status {traced.status}: {said[:1000]}"]
        return list(differences(native, traced)) + ([] if self.arguments.no_verify else self.verify())


def _children_cpu_s():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _clean_state():
    """The state that a shell gives its children; a core limit that keeps cores small but real."""
    for number in (signal.SIGPIPE, signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("case", nargs="?", help="name of the case")
    parser.add_argument("--list", action="store_true", help="print the names of all cases")
    parser.add_argument("--programs", help="folder of the built tests/programs")
    parser.add_argument("--work", default="transparency", help="folder for inputs, runs and recordings")
    parser.add_argument("--auxtrail", default="", help="the auxtrail binary; without it two native runs are compared")
    parser.add_argument("--inputs", default="", help="a run's --work folder whose inputs are used; default: its own")
    parser.add_argument("--record-options", default="", help="more options for auxtrail record")
    parser.add_argument("--no-verify", action="store_true", help="do not run auxtrail verify")
    parser.add_argument("--keep", action="store_true", help="keep the recording and the run's files")
    parser.add_argument("--verbose", action="store_true", help="print what verify says")
    return parser.parse_args()


def main():
    arguments = parse()
    if arguments.list:
        print("\n".join(cases.CASES))
        return 0
    if arguments.case == "inputs":
        inputs.make(pathlib.Path(arguments.work) / "inputs")
        return 0
    runner = Runner(arguments, cases.CASES[arguments.case])
    missing = runner.missing_programs()
    if missing:
        print(f"skipped: not installed: {', '.join(missing)}")
        return SKIP
    problems = runner.check()
    for problem in problems:
        print(problem)
    if not problems and not arguments.keep:
        shutil.rmtree(runner.work, ignore_errors=True)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
