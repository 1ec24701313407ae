#!/usr/bin/env bash
# What does including gradweave cost a compiler? Prints a table: processor time (user and system) of the compiler, the median
# of several runs, and how many lines the preprocessor hands on (blank ones and line markers not counted).
# Usage: benchmarks/compile_time.sh [RUNS]; default 5. Compilers that are not installed are left out.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly RUNS="${1:-5}"
readonly FLAGS=(-std=c++20 -Iinclude)
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

# The compiler's processor time in seconds, median of RUNS.
median_seconds() {
  local TIMEFORMAT='%U %S' run
  for ((run = 0; run < RUNS; ++run)); do
    { time "$@" 2>"$work/said"; } 2>&1 || { cat "$work/said" >&2; exit 1; }
  done | awk '{ print $1 + $2 }' | sort -n | awk '{ all[NR] = $1 } END { printf "%.2f", all[int((NR + 1) / 2)] }'
}

preprocessed_lines() {
  "$1" "${FLAGS[@]}" -E "$2" | grep -cvE '^(#.*)?[[:space:]]*$'
}

# row COMPILER WORDS SOURCE FLAG...
row() {
  local compiler="$1" words="$2" source="$3" seconds
  shift 3
  seconds="$(median_seconds "$compiler" "${FLAGS[@]}" "$@" "$source" -o /dev/null)"
  printf '| %-7s | %-50s | %7s s | %7s |\n' "$compiler" "$words" "$seconds" "$(preprocessed_lines "$compiler" "$source")"
}

echo '#include <gradweave/gradweave.hpp>' >"$work/umbrella.cpp"
# The standard headers that the umbrella leads to, by themselves: what is left of its cost is the library's own.
g++ "${FLAGS[@]}" -M "$work/umbrella.cpp" | tr ' ' '\n' | grep '^include/gradweave/.*\.hpp' |
  xargs grep -hoE '^#include <[a-z_]+>' | sort -u >"$work/standard.cpp"

printf '| %-7s | %-50s | %9s | %7s |\n' compiler what time lines
printf '|---|---|---:|---:|\n'
for compiler in g++ clang++; do
  command -v "$compiler" >/dev/null || continue
  row "$compiler" 'standard headers alone, -fsyntax-only' "$work/standard.cpp" -fsyntax-only
  row "$compiler" 'gradweave/gradweave.hpp, -fsyntax-only' "$work/umbrella.cpp" -fsyntax-only
  row "$compiler" 'examples/minimal.cpp, -fsyntax-only' examples/minimal.cpp -fsyntax-only
  row "$compiler" 'examples/minimal.cpp, -O2 -c' examples/minimal.cpp -O2 -c
done
