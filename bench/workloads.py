"""The programs whose cost is measured, each two to four seconds of CPU time, on inputs made from system files."""
import dataclasses
import pathlib
import subprocess
import sys

TESTS = pathlib.Path(__file__).resolve().parent.parent / "tests" / "transparency"
sys.path.insert(0, str(TESTS))
import inputs  # noqa: E402  (the same inputs as those of the transparency tests)


@dataclasses.dataclass(frozen=True)
class Workload:
    name: str
    command: tuple
    stdin: str = "/dev/null"


def _cc1plus():
    """The compiler proper, without the driver (QEMU does not follow children), with what the driver would tell it."""
    def ask(option):
        return subprocess.run(["g++", option], capture_output=True, text=True, check=False).stdout.strip()
    multiarch = ask("-print-multiarch")
    return (ask("-print-prog-name=cc1plus") or "cc1plus", "-quiet", *(["-imultiarch", multiarch] if multiarch else []),
            "-D_GNU_SOURCE")


def make(folder):
    """All workloads, with their inputs made in `folder`."""
    at = inputs.make(folder)
    scripts = TESTS / "scripts"
    large_text = f"{at}/large_text"
    return [
        Workload("xz", ("xz", "-6", "-T1", "-k", "-c", large_text)),
        Workload("zstd", ("zstd", "-q", "-T1", "-17", "-c", large_text)),
        Workload("gzip", ("gzip", "-9", "-n", "-c", *[large_text] * 6)),
        Workload("python", ("/usr/bin/python3", f"{scripts}/compute.py", f"{at}/text", "25")),
        Workload("perl", ("perl", f"{scripts}/work.pl", f"{at}/text", "14")),
        Workload("sqlite3", ("sqlite3", ":memory:"), f"{at}/huge.sql"),
        Workload("openssl", ("openssl", "kdf", "-keylen", "64", "-kdfopt", "digest:SHA512", "-kdfopt", "pass:secret",
                             "-kdfopt", "salt:salt", "-kdfopt", "iter:5000000", "PBKDF2")),
        Workload("g++", (*_cc1plus(), "-O2", "-std=c++17", f"{at}/large.cc", "-o", "/dev/null")),
    ]
