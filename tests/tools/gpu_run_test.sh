#!/bin/bash
# tools/gpu/run on an archive whose programs the test makes up: what it runs, repeats, leaves and
# writes.
set -u
tree=$TEST_TMPDIR/brigade_gpu
mkdir -p "$tree"/{bin,tests/device,benchmarks/kernels,examples/gpt,data} && cp -L tools/gpu/run "$tree/run" || exit 1
echo '{"commit": "c0ffee"}' >"$tree/package.json"

# program NAME LINE...: a script of the archive, which notes in calls that it ran.
program() {
  local file=$tree/$1
  shift
  printf '%s\n' '#!/bin/bash' "echo ${file##*/} \"\$@\" >>$TEST_TMPDIR/calls" "$@" >"$file"
  chmod +x "$file"
}

status=0
# expect CODE CALLS COMMAND...: what `run` exits with, and what ran, in order.
expect() {
  local code calls
  rm -f "$TEST_TMPDIR/calls"
  touch "$TEST_TMPDIR/calls"
  "$tree/run" "${@:3}" >"$TEST_TMPDIR/output" 2>&1
  code=$?
  calls=$(grep -v gpu_info "$TEST_TMPDIR/calls" | paste -sd' ')
  if [ $code -ne "$1" ] || [ "$calls" != "$2" ]; then
    printf 'run %s: expected %s and "%s", got %d and "%s":\n' "${*:3}" "$1" "$2" $code "$calls"
    cat "$TEST_TMPDIR/output"
    status=1
  fi
}
# shows TEXT: that the last command printed.
shows() {
  grep -qF -- "$1" "$TEST_TMPDIR/output" && return
  printf 'expected "%s" in:\n' "$1"
  cat "$TEST_TMPDIR/output"
  status=1
}
# writes FILE FILTER WANTED: what jq finds in a file of the results.
writes() {
  local found
  found=$(jq -c "$2" "$tree/$1") && [ "$found" = "$3" ] && return
  printf '%s, %s: expected %s, got %s\n' "$1" "$2" "$3" "$found"
  status=1
}

program bin/gpu_info 'echo "no GPU: none at all" >&2' 'exit 77'
program tests/device/first_test 'exit 0'
expect 77 "" tests
shows "no GPU: none at all"
[ ! -e "$tree/results" ] || { echo "results without a GPU" && status=1; }

program bin/gpu_info 'echo "{\"device\": \"made up\"}"'
program tests/device/second_test 'echo "[  SKIPPED ] Second.Test (0 ms)"'
program tests/device/third_test 'echo "the third is unhappy"' 'exit 3'
expect 1 "first_test second_test third_test" tests
shows "the third is unhappy"
shows "2 passed, 1 failed, 0 not run"
writes results/tests.json .gpu.device '"made up"'
writes results/tests.json .package.commit '"c0ffee"'
writes results/tests.json '[.items[] | [.name, .status, .skipped]]' \
  '[["tests/device/first_test","passed",0],["tests/device/second_test","passed",1],["tests/device/third_test","failed",0]]'

# Only what has not passed runs again.
program tests/device/third_test 'exit 0'
expect 0 "third_test" tests
shows "3 passed, 0 failed, 0 not run"
expect 0 "" tests
expect 0 "second_test" tests second --out "$TEST_TMPDIR/elsewhere"
shows "1 passed, 0 failed, 0 not run"
expect 2 "" tests no_such_test
shows "no name contains 'no_such_test'"

# What has no time left is named and runs the next time; with all of its time a slow test has
# failed.
program tests/device/fourth_test 'sleep 20'
program tests/device/last_test 'exit 0'
export BRIGADE_COMMAND_SECONDS=6
expect 75 "fourth_test" tests
shows "tests/device/fourth_test                         not run"
shows "tests/device/last_test                           not run"
shows "3 passed, 0 failed, 2 not run"
writes results/tests.json '.items[1]' '{"name":"tests/device/fourth_test","status":"not run"}'
unset BRIGADE_COMMAND_SECONDS
export BRIGADE_ITEM_SECONDS=1
expect 1 "fourth_test last_test" tests
writes results/tests.json '.items[1].status' '"timed out"'
unset BRIGADE_ITEM_SECONDS

# Benchmarks' own JSON is part of ours.
program benchmarks/kernels/adam 'for flag; do case $flag in --benchmark_out=*) echo "{\"GB/s\": 1}" >"${flag#*=}" ;; esac; done'
expect 2 "" benchmarks
shows "benchmarks needs --out DIR"
export PATH=$TEST_TMPDIR/without_pytorch:$PATH
mkdir -p "$TEST_TMPDIR/without_pytorch" && ln -s /bin/false "$TEST_TMPDIR/without_pytorch/python3"
expect 0 "adam --device=cuda --benchmark_out=$tree/figures/benchmarks/benchmarks.kernels.adam.figures --benchmark_out_format=json" \
  benchmarks kernels --out "$tree/figures"
writes figures/benchmarks.json '."benchmarks/kernels/adam"."GB/s"' 1
shows "PyTorch with CUDA is not there"
program benchmarks/kernels/sgd 'for flag; do case $flag in --benchmark_out=*) echo "{\"error_occurred\": true}" >"${flag#*=}" ;; esac; done'
expect 1 "sgd --device=cuda --benchmark_out=$tree/figures/benchmarks/benchmarks.kernels.sgd.figures --benchmark_out_format=json" \
  benchmarks kernels/sgd --out "$tree/figures"
shows "0 passed, 1 failed, 0 not run"
writes figures/benchmarks.json '[.items[].name]' '["benchmarks/kernels/sgd","benchmarks/kernels/adam"]'
writes figures/benchmarks.json '."benchmarks/kernels/adam"."GB/s"' 1
# One that was cut short leaves half an object, which is nobody's figures.
program benchmarks/kernels/cast 'for flag; do case $flag in --benchmark_out=*) echo "{\"half\": " >"${flag#*=}" ;; esac; done; exit 1'
expect 1 "cast --device=cuda --benchmark_out=$tree/figures/benchmarks/benchmarks.kernels.cast.figures --benchmark_out_format=json" \
  benchmarks kernels/cast --out "$tree/figures"
writes figures/benchmarks.json '.items[0].status' '"failed"'

# PyTorch's rows, an item a workload.
program bin/python3 'for flag; do case $flag in -c) exit 0 ;; --json=*) echo "[2]" >"${flag#*=}" ;; esac; done'
PATH=$tree/bin:$PATH "$tree/run" benchmarks pytorch_step --out "$tree/figures" >"$TEST_TMPDIR/output" 2>&1
shows "4 passed, 0 failed, 0 not run"
writes figures/benchmarks.json '."benchmarks/peers/pytorch_step/reuse"' '[2]'

program examples/gpt/train 'exit 5'
expect 1 "train --device=cuda --data=$tree/data/text --metrics=$tree/results/train/train.jsonl --steps=3" train -- --steps=3
writes results/train.json '.items[0].exit_code' 5
program examples/gpt/train 'exit 0'
expect 0 "train --device=cuda --data=$tree/data/text --metrics=$tree/results/train/train.jsonl" train

# Figures of two packages are not mixed.
echo '{"commit": "decaf"}' >"$tree/package.json"
expect 2 "" tests
shows "has results of another package"
expect 2 "" dance
shows "there is no command 'dance'"

exit $status
