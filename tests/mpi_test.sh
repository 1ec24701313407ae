#!/usr/bin/env bash
# Runs ranks over MPI as a user does, by Open MPI's mpirun on this machine alone.
# Usage: mpi_test.sh PROGRAM DIGITS LEAKS
set -uo pipefail

program="$PWD/$1"
digits="$PWD/$2"
leaks="$PWD/$3"
mpirun="$(command -v mpirun.openmpi || command -v mpirun)" || { echo 'FAILED: there is no mpirun'; exit 1; }

# Open MPI puts Unix sockets there, whose paths must be short.
scratch="$(mktemp -d --tmpdir=/tmp)"
trap 'rm -rf "$scratch"' EXIT
out="$scratch/out"
failed=0

export HOME="$scratch" TMPDIR="$scratch"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# No other hosts, and so no ssh; no network but shared memory, copied by the ranks themselves: a sandbox may forbid the rest.
export OMPI_MCA_plm=isolated OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,vader OMPI_MCA_btl_vader_single_copy_mechanism=none
export OMPI_MCA_btl_vader_backing_directory="$scratch" OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
export OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_btl_base_warn_component_unused=0
export LSAN_OPTIONS="suppressions=$leaks:print_suppressions=0${LSAN_OPTIONS:+:$LSAN_OPTIONS}"

# expect STATUS PATTERN RANKS COMMAND...: mpirun ends with that status (`bad`: any but 0), and a line of the output matches.
expect() {
  local status="$1" pattern="$2" ranks="$3" actual=0
  shift 3
  timeout --kill-after=10 "${LIMIT:-120}" "$mpirun" -n "$ranks" "$@" >"$out" 2>&1 </dev/null || actual=$?
  # 124 and 137 are the time limit's; a rank that was killed makes mpirun end with 137 too, and says so.
  if { [[ "$status" == bad ]] && ((actual == 0 || actual == 124)); } || { [[ "$status" != bad ]] && ((actual != status)); } ||
    ! grep -qE -- "$pattern" "$out"; then
    echo "FAILED: $ranks ranks of $*: status $actual instead of $status, or no line like: $pattern"
    cat "$out"
    failed=1
  fi
}

sizes=(1 2 3 4)
[[ -z "${GRADWEAVE_TEST_BRIEF:-}" ]] || sizes=(3)
for ranks in "${sizes[@]}"; do
  expect 0 'Status: SUCCESS!' "$ranks" "$program" -nc
done

# The tests above have looked for leaks before MPI ended.
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"
owned() { expect "$1" "$2" "$3" "$program" -nc --no-skip --test-case="owned: $4*"; }
owned 0 'Status: SUCCESS!' 3 'MPI begins'
# All ranks are told, and nobody waits in MPI_Finalize for one that is gone.
owned bad 'told: one story' 3 'a rank fails'
owned bad 'signal 9' 3 'a rank is killed'

expect 0 '^test accuracy +[0-9.]+ % of 359 held-out images$' 4 "$digits" --backend mpi --epochs 1
expect 0 '^ranks +3, processes of an MPI job;' 3 "$digits" --backend mpi --epochs 1 --compression bf16
expect 0 '^ranks +2, processes;' 2 "$digits" --backend tcp --epochs 1
expect 2 'digits: --ranks: mpirun says how many' 1 "$digits" --backend mpi --ranks 2

# mpirun may end a little before what it told to end.
for ((i = 0; i < 50; ++i)); do
  pgrep --full "^$program" >/dev/null || break
  sleep 0.2
done
if ((i == 50)); then
  echo 'FAILED: a rank is left behind'
  failed=1
fi
if [[ -n "$(find "$scratch" -mindepth 1 -name '*vader*')" ]]; then
  echo 'FAILED: a segment of shared memory is left behind'
  failed=1
fi
exit "$failed"
