"""What a workload is run under: nothing, auxtrail, and the tools that auxtrail is compared with."""
import dataclasses
import os
import pathlib
import shutil
import subprocess


@dataclasses.dataclass(frozen=True)
class Tool:
    name: str
    prefix: tuple = ()  # words before the command
    slow: bool = False  # many times slower than native: fewer rounds
    max_rounds: int = 99  # enough for a ratio that is far from 1
    output: str = ""  # the recording that it leaves
    skipped: str = ""  # why it cannot run here

    def command(self, workload):
        program = shutil.which(workload.command[0])  # QEMU does not search PATH
        return [*self.prefix, program, *workload.command[1:]]


def auxtrail(name, binary, work, *options, **more):
    output = f"{work}/{name.replace(' ', '-')}.data"
    return Tool(name, (binary, "record", *options, "-o", output, "--"), output=output, **more)


def auxtrail_samples(name, binary, work, unit, hz, size, **more):
    return auxtrail(name, binary, work, f"--unit={unit}", "-F", str(hz), f"--aux-sample={size}", **more)


def perf(work):
    output = f"{work}/perf-999.data"
    name = "perf record 999 Hz"
    if shutil.which("perf") is None:
        return Tool(name, skipped="perf is not installed")
    prefix = ("perf", "record", "-q", "-e", "cpu-clock:u", "-F", "999", "-o", output, "--")
    probe = subprocess.run([*prefix, "true"], capture_output=True, text=True, check=False)
    return Tool(name, prefix, output=output, skipped="" if probe.returncode == 0 else f"perf: {probe.stderr.strip()}")


def valgrind():
    name = "valgrind --tool=none"
    if shutil.which("valgrind") is None:
        return Tool(name, skipped="valgrind is not installed")
    return Tool(name, ("valgrind", "--tool=none", "-q", "--trace-children=yes"), slow=True)


def qemu_oracle(work, repository):
    """The exact branch counter: a QEMU plugin whose source lies beside the repository or where the environment says."""
    name = "QEMU branch oracle"
    source = pathlib.Path(os.environ.get("AUXTRAIL_ORACLE_SOURCE", repository.parent / "shared/tools/branch_oracle.c"))
    if shutil.which("qemu-x86_64") is None:
        return Tool(name, skipped="qemu-user is not installed")
    if not source.exists():
        return Tool(name, skipped=f"no {source.name} (set AUXTRAIL_ORACLE_SOURCE)")
    plugin = pathlib.Path(work) / "branch_oracle.so"
    build = subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", plugin, source], capture_output=True, text=True,
                           check=False)
    if build.returncode != 0:
        return Tool(name, skipped=f"the plugin does not build: {build.stderr.splitlines()[0]}")
    return Tool(name, ("qemu-x86_64", "-plugin", f"{plugin},agg={work}/oracle.agg"), slow=True)


def all_tools(binary, work, repository):
    return [auxtrail_samples("auxtrail 999 Hz", binary, work, "window", 999, 4096),
            auxtrail_samples("auxtrail 99 Hz", binary, work, "window", 99, 4096),
            auxtrail_samples("auxtrail continuous 99 Hz", binary, work, "continuous", 99, 4096, max_rounds=3),
            perf(work), valgrind(), qemu_oracle(work, repository)]
