#!/usr/bin/env bash
# Runs the program examples/digits as a user does: what it prints, and how it ends. Usage: digits_program_test.sh PROGRAM
set -uo pipefail

program="$1"
out="$(mktemp)"
trap 'rm -f "$out"' EXIT
failed=0

# expect STATUS PATTERN ARGUMENT...: the program ends with that status, and a line of its output matches.
expect() {
  local status="$1" pattern="$2" actual=0
  shift 2
  "$program" "$@" >"$out" 2>&1 || actual=$?
  if [[ "$actual" -ne "$status" ]] || ! grep -qE -- "$pattern" "$out"; then
    echo "FAILED: digits $*: status $actual instead of $status, or no line like: $pattern"
    cat "$out"
    failed=1
  fi
}

expect 0 '^test accuracy +[0-9.]+ % of 359 held-out images$' --epochs 1
expect 0 '^time a step +[0-9.]+ ms$' --epochs 1 --ranks 3 --overlap blocking
expect 0 '^communication +[0-9.]+ ms a step; [0-9.]+ ms of a step are spent waiting for it' --epochs 1 --bucket-mib 0.001
# A little above a half and one: rank 0 owns the larger part of each bucket, and the step record travels too.
expect 0 '^bytes a step .* raw, .* on the wire \(0\.52 times as many\)' --epochs 1 --compression fp16
expect 0 '^communication +none' --epochs 1 --ranks 1 --bucketing per_tensor
expect 0 '^ranks +2, processes;' --epochs 1
expect 0 '^ranks +4, threads of this process;' --epochs 1 --ranks 4 --backend loopback
expect 0 '^bytes a step .* \(1\.01 times as many\)' --epochs 1 --backend loopback
expect 0 '^epoch 2 of 2: loss [0-9.]+$' --epochs 2 --seed 5
expect 0 'Usage: digits' --help
expect 2 "^digits: --compression: 'zip' is not allowed; give none, fp16 or bf16" --compression zip
expect 2 '^digits: --backend: this program was built without MPI; run digits_mpi' --backend mpi
expect 1 '^digits: .*no_such\.csv: there is no such file$' --data no_such.csv

# Under a launcher it is one rank.
RANK=0 WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 expect 0 '^ranks +1, processes;' --epochs 1
OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 expect 0 '^ranks +1, processes;' --epochs 1
RANK=0 expect 1 '^digits, rank 0: .*RANK is set and WORLD_SIZE is not' --epochs 1
RANK=0 WORLD_SIZE=1 expect 2 '^digits: --backend: a launcher started this process' --backend loopback
RANK=0 WORLD_SIZE=1 expect 2 '^digits: --ranks: a launcher started this process' --ranks 3

exit "$failed"
