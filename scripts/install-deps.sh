#!/usr/bin/env bash
# Installs what building and testing need on Debian 12. Does nothing when all of it is there; asks sudo when not root.
#
# Usage: scripts/install-deps.sh [--list]      --list only prints the packages
set -euo pipefail

build=(
  cmake g++ git make ninja-build pkg-config python3
  clang-14 libclang-rt-14-dev  # second compiler, sanitizers, fuzzers
  libcli11-dev libdw-dev libelf-dev libexpected-dev libfmt-dev libipt-dev
  nlohmann-json3-dev libxxhash-dev libzstd-dev zlib1g-dev
  libbenchmark-dev libgmock-dev libgtest-dev
  libzydis-dev llvm-14-dev  # oracles for our instruction decoder
  pandoc                    # man pages
)
# Programs that the tests run or compare with. A test whose program is missing is skipped.
tested=(
  bash bc binutils bzip2 clang dash diffutils file findutils gawk gdb grep gzip jq linux-perf lz4 m4 mawk
  nodejs openssl perl qemu-user sed sqlite3 strace tar tcl unzip valgrind xz-utils zip zstd
)

if [[ ${1:-} == --list ]]; then
  printf '%s\n' "${build[@]}" "${tested[@]}" | sort -u
  exit 0
fi

present=$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' "${build[@]}" "${tested[@]}" 2>/dev/null |
  sed -n 's/^installed //p' || true)
mapfile -t missing < <(comm -13 <(sort -u <<<"$present") <(printf '%s\n' "${build[@]}" "${tested[@]}" | sort -u))
((${#missing[@]})) || exit 0

if ! command -v apt-get >/dev/null; then
  echo "install-deps: this is not Debian; please install the counterparts of: ${missing[*]}" >&2
  exit 1
fi
as_root=()
if ((EUID != 0)); then
  if ! command -v sudo >/dev/null; then
    echo "install-deps: run as root, or install sudo: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
export DEBIAN_FRONTEND=noninteractive
echo "install-deps: installing ${missing[*]}"
"${as_root[@]}" apt-get -q update
"${as_root[@]}" apt-get -q install -y --no-install-recommends "${missing[@]}"
