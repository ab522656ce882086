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
    found = subprocess.run(["g++", "-print-prog-name=cc1plus"], capture_output=True, text=True, check=False)
    return found.stdout.strip() or "cc1plus"


def make(folder):
    """All workloads, with their inputs made in `folder`."""
    at = inputs.make(folder)
    scripts = TESTS / "scripts"
    return [
        Workload("xz", ("xz", "-6", "-T1", "-k", "-c", f"{at}/text")),
        Workload("zstd", ("zstd", "-q", "-T1", "-17", "-c", f"{at}/text")),
        Workload("gzip", ("gzip", "-9", "-n", "-c", f"{at}/large_text", f"{at}/large_text")),
        Workload("python", ("/usr/bin/python3", f"{scripts}/compute.py", f"{at}/text", "3")),
        Workload("perl", ("perl", f"{scripts}/work.pl", f"{at}/text", "3")),
        Workload("sqlite3", ("sqlite3", ":memory:"), f"{at}/large.sql"),
        Workload("openssl", ("openssl", "kdf", "-keylen", "64", "-kdfopt", "digest:SHA512", "-kdfopt", "pass:secret",
                             "-kdfopt", "salt:salt", "-kdfopt", "iter:2000000", "PBKDF2")),
        # The compiler proper, without the driver: QEMU does not follow children.
        Workload("g++", (_cc1plus(), "-quiet", "-D_GNU_SOURCE", "-O2", "-std=c++17", f"{at}/large.cc", "-o", "/dev/null")),
    ]
