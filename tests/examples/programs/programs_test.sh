#!/bin/bash
# Runs the programs of examples/ and looks at what they print.
set -u
fail() {
  printf '%s\n' "$*" >&2
  exit 1
}

# run PROGRAM: its output, in $output.
run() {
  output=$("$1" 2>&1) || fail "$1 failed: $output"
  [[ $output != *race* ]] || fail "$1 has races, or work that declares nothing: $output"
}

# expect_lines PATTERN COUNT: so many lines of $output match.
expect_lines() {
  [ "$(grep -Ec "$1" <<<"$output")" = "$2" ] || fail "not $2 lines with '$1' in: $output"
}

# --help is what the tests of help look at.
for program in all_reduce_processes all_reduce_threads mixed_precision one_kernel zero2_mlp; do
  output=$(examples/$program --steps=1 2>&1 >"$TEST_TMPDIR/out")
  [ $? -eq 2 ] && [[ $output == "usage: $program"* ]] && [ ! -s "$TEST_TMPDIR/out" ] ||
    fail "examples/$program takes an argument that it does not know: $output"
done

run examples/one_kernel
expect_lines '^after 200 steps of AdamW parameter 0 is (2\.9[5-9]|3\.0[0-4])[0-9], and 3 is the minimum$' 1

run examples/all_reduce_threads
expect_lines '^rank [0-3] of 4: the sum is 10$' 4

run examples/mixed_precision
expect_lines '^slope (2\.99|3\.0[01]), offset -1\.(49|50|51); [0-9]+ of 300 steps skipped' 1

run examples/zero2_mlp
expect_lines '^epoch [ 1][0-9]: mean squared error [0-9]\.[0-9]{4}$' 10
first=$(sed -n 's/^epoch  1: mean squared error //p' <<<"$output")
last=$(sed -n 's/^epoch 10: mean squared error //p' <<<"$output")
awk -v first="$first" -v last="$last" 'BEGIN { exit !(last < first / 5) }' ||
  fail "the model did not learn: $output"

# Two processes; another port where somebody has this one.
for attempt in 1 2 3 4 5; do
  export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + (RANDOM % 10000)))
  RANK=1 LOCAL_RANK=1 examples/all_reduce_processes >"$TEST_TMPDIR/rank1" 2>&1 &
  RANK=0 LOCAL_RANK=0 examples/all_reduce_processes >"$TEST_TMPDIR/rank0" 2>&1
  code=$?
  wait $! && [ $code -eq 0 ] && break
  output=$(cat "$TEST_TMPDIR"/rank?)
  [[ $output == *"in use"* ]] || fail "all_reduce_processes failed: $output"
  [ $attempt -lt 5 ] || fail "no port is free: $output"
done
output=$(cat "$TEST_TMPDIR"/rank?)
expect_lines '^rank [01] of 2: the sum is 3$' 2

# Four, as the program says above its code that launchers start them, from a folder with Bazel's links
# and on two cores, as the commands of the pages. torchrun is where tools/setup --launchers puts it.
unset RANK LOCAL_RANK WORLD_SIZE MASTER_ADDR MASTER_PORT
home=${HOME:-$(getent passwd "$(id -u)" | cut -d: -f6)}
PATH+=:${BRIGADE_PEERS_VENV:-${XDG_CACHE_HOME:-$home/.cache}/brigade/peers/pytorch}/bin
source=$PWD/examples/all_reduce_processes.cc
mkdir "$TEST_TMPDIR/workspace" && ln -s "$PWD" "$TEST_TMPDIR/workspace/bazel-bin" || exit 1
for launcher in mpirun torchrun; do
  read -ra command < <(sed -n "s,^//   \($launcher .*\),\1,p" "$source")
  [ "${command[*]: -1}" = bazel-bin/examples/all_reduce_processes ] ||
    fail "$source says no more how $launcher starts it: ${command[*]}"
  command -v $launcher >/dev/null || {
    printf '[  SKIPPED ] all_reduce_processes by %s (there is none; tools/setup --help says how to get it)\n' $launcher
    continue
  }
  output=$(cd "$TEST_TMPDIR/workspace" && python3 -c '
import os, sys
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
os.execvp(sys.argv[1], sys.argv[1:])
' "${command[@]}" 2>&1) || fail "${command[*]} failed: $output"
  expect_lines '^rank [0-3] of 4: the sum is 10$' 4
done
