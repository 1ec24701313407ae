#!/usr/bin/env bash
# Installs from the system's own packages whatever gradweave's build lacks. See `./setup.sh --help`.
set -euo pipefail

# What the README's commands need.
readonly BUILD_PACKAGES=(
  g++
  python3
  bazel-bootstrap bazel-platforms bazel-rules-java bazel-rules-proto  # Bazel 4.2.3 and the rules that it loads
  doctest-dev
  libbenchmark-dev
  libcli11-dev
  nlohmann-json3-dev
  libboost1.81-dev  # Asio
  libssl-dev  # HMAC-SHA256
  libopenmpi-dev openmpi-bin  # the MPI backend
  iproute2  # tests that make hosts of their own
)
# What .ci/run needs besides.
readonly CI_PACKAGES=(
  git
  clang libclang-rt-dev
  clang-format-19  # older ones take concepts apart
  g++-aarch64-linux-gnu qemu-user
)
# What //benchmarks:all_reduce and the test of laws compare with.
readonly PEER_PACKAGES=(
  libgloo-dev
  libmpich-dev mpich
  python3-torch
)

usage() {
  cat <<'TEXT'
Usage: ./setup.sh [--ci] [--peers] [--help]

Installs the system packages that gradweave's build and tests need and that this machine lacks.
It asks nothing. Where nothing is missing it changes nothing and needs no root.

  --ci    also install what .ci/run needs: clang, clang-format, a cross compiler and an emulator
          for aarch64
  --peers also install Gloo, MPICH and PyTorch, which benchmarks and a test can compare with
  --help  print this text

Known systems: Debian 12 or newer, Ubuntu 23.04 or newer. A `bazel` command that does not come from a
Debian package is used as it is. CUDA and NCCL are never installed: they are used where they are found.
TEXT
}

fail() {
  printf 'setup.sh: %s\n' "$*" >&2
  exit 1
}

# Tells a person on another system what to install by hand.
explain_unknown_system() {
  cat >&2 <<TEXT
setup.sh: this system ($1) is not one that this script knows. gradweave's build needs:
  - a C++20 compiler: g++ 12 or newer, or clang 14 or newer
  - Bazel 4.2 to 7 (it has to read WORKSPACE)
  - Python 3.9 or newer
  - doctest 2.4 (doctest/doctest.h), Google Benchmark 1.7, CLI11 2.1, nlohmann-json 3.11, Boost 1.81 (boost/asio.hpp) and OpenSSL 3, below /usr/include; Open MPI 4 or
    what MPI_HOME names, or the MPI backend is left out
and .ci/run needs besides: clang 14 with its sanitizers, clang-format 19, aarch64-linux-gnu-g++, qemu-aarch64.
Known systems: Debian 12 or newer, Ubuntu 23.04 or newer.
TEXT
  exit 1
}

# Succeeds if this is Debian 12, Ubuntu 23.04, or newer.
is_known_system() {
  local id="$1" version_id="$2"
  command -v dpkg-query >/dev/null && command -v apt-get >/dev/null || return 1
  case "$id" in
    debian) [[ -z "$version_id" || "${version_id%%.*}" -ge 12 ]] ;;  # testing and unstable carry no version
    ubuntu) [[ "${version_id%%.*}" -ge 23 ]] ;;
    *) return 1 ;;
  esac
}

is_installed() {
  [[ "$(dpkg-query --show --showformat='${db:Status-Status}' "$1" 2>/dev/null)" == installed ]]
}

# A Bazel that the user put on PATH brings its own rules; Debian's would only stand in its way.
has_own_bazel() {
  local path
  path="$(command -v bazel)" && ! dpkg-query --search "$(readlink -f "$path")" >/dev/null 2>&1
}

install_packages() {
  local -a as_root=()
  if [[ "$(id -u)" -ne 0 ]]; then
    command -v sudo >/dev/null || fail "these packages are missing, and installing them needs root or sudo: $*"
    as_root=(sudo)
  fi
  printf 'setup.sh: installing %s\n' "$*"
  local -a apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=600)
  "${apt[@]}" update </dev/null || fail "apt-get update failed"

  local package
  local -a unknown=()
  for package in "$@"; do
    apt-cache show "$package" >/dev/null 2>&1 || unknown+=("$package")
  done
  [[ ${#unknown[@]} -eq 0 ]] || fail "this system's packages lack: ${unknown[*]}"

  "${apt[@]}" install --no-install-recommends -o Dpkg::Options::=--force-confold "$@" </dev/null ||
    fail "apt-get install failed for: $*"
}

main() {
  local -a wanted=("${BUILD_PACKAGES[@]}")
  local argument
  for argument in "$@"; do
    case "$argument" in
      --ci) wanted+=("${CI_PACKAGES[@]}") ;;
      --peers) wanted+=("${PEER_PACKAGES[@]}") ;;
      --help | -h) usage; return 0 ;;
      *) usage >&2; fail "unknown argument '$argument'" ;;
    esac
  done

  local ID='' VERSION_ID='' PRETTY_NAME=''
  # shellcheck disable=SC1091
  [[ -r /etc/os-release ]] && . /etc/os-release
  is_known_system "$ID" "$VERSION_ID" || explain_unknown_system "${PRETTY_NAME:-$(uname -s)}"

  local own_bazel=no
  if has_own_bazel; then own_bazel=yes; fi

  local package
  local -a missing=()
  for package in "${wanted[@]}"; do
    [[ "$own_bazel" == yes && "$package" == bazel-* ]] && continue
    is_installed "$package" || missing+=("$package")
  done
  if [[ ${#missing[@]} -gt 0 ]]; then
    install_packages "${missing[@]}"
  fi
  hash -r
  command -v bazel >/dev/null || fail "bazel is installed, but no directory on PATH holds it"
}

main "$@"
