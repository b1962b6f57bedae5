#!/bin/bash
# train_interrupt_test.sh TRAIN: Ctrl-C ends the training within a second, with a report of what was done.
. tests/examples/gpt/train_testing.sh

# A second, and what a busy machine adds.
limit_ms=3000

# interrupt PROCESS SIGNAL: sends it once the first step is in the output; the exit code is in $status.
interrupt() {
  wait_for_line "$files/out" '^step '
  local begin took
  begin=$(now_ms)
  kill "-$2" "$1"
  wait "$1"
  status=$?
  took=$(($(now_ms) - begin))
  ((took < limit_ms)) || fail "it took $took ms"
}

# The whole report; on a machine so busy that a small step takes longer than the patience, that of progress.
expect_report() {
  expect_line "$files/out" 'Report: [0-9]+ of 1000000 steps .*'
  grep -q 'a step did not end in time' "$files/error" || expect_line "$files/out" ' +formula .*'
}

threads_stop_after_the_same_step() {
  "$train" "${tiny[@]}" --steps=1000000 --metrics="$files/metrics" >"$files/out" 2>"$files/error" &
  interrupt $! "$1"
  [ $status -eq 130 ] || fail "exit code $status"
  expect_report
  expect_line "$files/error" 'Interrupted.*'
  local steps
  steps=$(sed -n 's/^Report: \([0-9]*\) of.*/\1/p' "$files/out")
  expect_json "$files/metrics" "[.[] | select(.loss) | .step][:$steps] == [range(1; $((steps + 1)))]"
}

# One of them is enough: ranks hear of it from each other.
processes_stop_after_the_same_step() {
  local of_rank_1
  MASTER_PORT=$(free_port)
  export MASTER_PORT WORLD_SIZE=2
  RANK=1 "$train" "${tiny[@]}" --steps=1000000 >/dev/null 2>&1 &
  of_rank_1=$!
  RANK=0 "$train" "${tiny[@]}" --steps=1000000 >"$files/out" 2>"$files/error" &
  local of_rank_0=$!
  interrupt $of_rank_1 INT
  [ $status -eq 130 ] || fail "exit code $status of rank 1"
  wait $of_rank_0
  status=$?
  [ $status -eq 130 ] || fail "exit code $status of rank 0"
  expect_report
  unset MASTER_PORT WORLD_SIZE
}

# Open MPI tells its processes a second after it was told.
mpirun_stops_with_a_report() {
  MASTER_PORT=$(free_port) mpirun --allow-run-as-root --oversubscribe -n 3 \
    "$train" "${tiny[@]}" --steps=1000000 >"$files/out" 2>"$files/error" &
  limit_ms=4000 interrupt $! INT
  [ $status -ne 0 ] || fail 'exit code 0'
  expect_report
}

# A batch of so many texts that the steps in flight take some seconds.
a_long_step_is_not_waited_for() {
  echo '{"train_batch_size": 4096, "optimizer": {"type": "SGD", "params": {"lr": 0.1}}}' \
    >"$files/config.json"
  "$train" --layers=2 --width=64 --context=64 --config="$files/config.json" --evaluate_every=0 \
    >"$files/out" 2>"$files/error" &
  interrupt $! INT
  [ $status -eq 130 ] || fail "exit code $status"
  expect_line "$files/error" 'Interrupted; a step did not end in time'
  expect_line "$files/out" 'Report: [0-9]+ of 800 steps .*'
}

# Each begins without the lines of the one before, which are not what `interrupt` waits for.
for test in 'threads_stop_after_the_same_step INT' 'threads_stop_after_the_same_step TERM' \
  processes_stop_after_the_same_step mpirun_stops_with_a_report a_long_step_is_not_waited_for; do
  rm -f "$files/out"
  $test
done
