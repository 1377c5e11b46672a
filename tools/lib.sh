# Shared by the scripts of this folder: where things are, saying what is done, and the Debian packages.
# shellcheck shell=bash
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# say TEXT: a progress line, redrawn on a terminal, plain otherwise.
say() {
  if [ -t 2 ]; then printf '\r\033[K== %s' "$*" >&2; else printf '== %s\n' "$*" >&2; fi
}
done_saying() {
  if [ -t 2 ]; then printf '\r\033[K' >&2; fi
}

build_packages=(g++ cmake ninja-build ccache libeigen3-dev libopenblas-dev libomp-dev libxsimd-dev nlohmann-json3-dev zlib1g-dev libssl-dev libcli11-dev
  libfmt-dev)
test_packages=(libgtest-dev libgmock-dev libmpfr-dev libgmp-dev python3 python3-venv python3-numpy python3-pytest
  pkg-config dpkg-dev groff-base zsh libopenmpi-dev openmpi-bin)
bench_packages=(libbenchmark-dev)
fuzz_packages=(clang-14 libclang-rt-14-dev)
lint_packages=(clang-14 clang-format-14 clang-tidy-14 libclang-rt-14-dev)

# need PACKAGE...: installs the Debian packages that are missing (root, or sudo).
need() {
  local missing=() package
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  say "installing ${missing[*]}"
  local as_root=()
  [ "$(id -u)" -eq 0 ] || as_root=(sudo)
  local log
  log=$(mktemp)
  if ! { "${as_root[@]}" apt-get update && DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
    done_saying
    cat "$log" >&2
    echo "cannot install ${missing[*]}" >&2
    exit 2
  fi
  rm -f "$log"
}

# build PRESET TARGET...: configures once, builds what changed.
build() {
  local preset=$1 log
  shift
  cd "$root"
  log=$(mktemp)
  if [ ! -f "build/$preset/build.ninja" ]; then
    say "configuring ($preset)"
    if ! cmake --preset "$preset" >"$log" 2>&1; then
      done_saying
      cat "$log" >&2
      exit 2
    fi
  fi
  say "building ($preset)"
  if ! cmake --build --preset "$preset" --parallel "$(nproc)" --target "$@" >"$log" 2>&1; then
    done_saying
    tail -n 60 "$log" >&2
    exit 2
  fi
  rm -f "$log"
  done_saying
}
