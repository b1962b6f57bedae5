#!/bin/bash
# train_interrupt_test.sh TRAIN: Ctrl-C ends the training with a report of what was done. Trainings
# would go on for hours, and those that may end by themselves have a grace period that no busy
# machine exceeds: what ends them is the signal, and what they print says which way they ended.
. tests/examples/gpt/train_testing.sh
endless=("${tiny[@]}" --steps=1000000 --grace_period=2m)

# interrupt PROCESS SIGNAL: sends it once the first step is in the output; the exit code is in
# $status.
interrupt() {
  wait_for_line "$files/out" '^step ' "$1"
  kill "-$2" "$1"
  wait "$1"
  status=$?
}

# The whole report, with the tables that ranks make when they have ended together.
expect_report() {
  expect_line "$files/out" 'Report: [0-9]+ of 1000000 steps .*'
  expect_line "$files/out" ' +formula .*'
}

threads_stop_after_the_same_step() {
  "$train" "${endless[@]}" --metrics="$files/metrics" >"$files/out" 2>"$files/error" &
  interrupt $! "$1"
  [ $status -eq 130 ] || fail "exit code $status"
  expect_report
  expect_line "$files/error" 'Interrupted'
  local steps
  steps=$(sed -n 's/^Report: \([0-9]*\) of.*/\1/p' "$files/out")
  expect_json "$files/metrics" "[.[] | select(.loss) | .step] == [range(1; $((steps + 1)))]"
}

# Also where something is missing, which is said all the same.
an_interrupt_is_the_code_on_a_full_disk_too() {
  mkfifo "$files/fifo"
  # Not under the limit.
  cat "$files/fifo" >"$files/out" &
  local reader=$!
  (
    trap '' XFSZ
    ulimit -f 8
    exec "$train" "${endless[@]}" --digest="$files/digests" --digest_every=1 >"$files/fifo" \
      2>"$files/error"
  ) &
  wait_for_line "$files/error" 'File too large; the training goes on$' $!
  interrupt $! INT
  [ $status -eq 130 ] || fail "exit code $status"
  wait $reader
  expect_report
  expect_line "$files/error" 'Interrupted'
  expect_line "$files/error" 'train: the digests of [0-9]+ steps are missing: .*: File too large'
  [ "$(wc -l <"$files/error")" = 3 ] || fail "it says \"$(cat "$files/error")\""
  rm "$files/fifo" "$files/digests"
}

# One of them is enough: ranks hear of it from each other.
processes_stop_after_the_same_step() {
  local of_rank_1
  MASTER_PORT=$(free_port)
  export MASTER_PORT WORLD_SIZE=2
  RANK=1 "$train" "${endless[@]}" >/dev/null 2>&1 &
  of_rank_1=$!
  RANK=0 "$train" "${endless[@]}" >"$files/out" 2>"$files/error" &
  local of_rank_0=$!
  interrupt $of_rank_1 INT
  [ $status -eq 130 ] || fail "exit code $status of rank 1"
  wait $of_rank_0
  status=$?
  [ $status -eq 130 ] || fail "exit code $status of rank 0"
  expect_report
  unset MASTER_PORT WORLD_SIZE
}

# Open MPI waits before it tells its processes, and as long again before it kills them: by default
# a second, in which a busy machine may not end a step. Ranks that give up first report progress.
mpirun_stops_with_a_report() {
  OMPI_MCA_odls_base_sigkill_timeout=5 MASTER_PORT=$(free_port) \
    mpirun --allow-run-as-root --oversubscribe -n 3 \
    "$train" "${tiny[@]}" --steps=1000000 >"$files/out" 2>"$files/error" &
  interrupt $! INT
  [ $status -ne 0 ] || fail 'exit code 0'
  expect_line "$files/out" 'Report: [0-9]+ of 1000000 steps .*'
  grep -q 'a step did not end in time' "$files/error" || expect_report
}

# A batch of so many texts that a step takes much longer than the grace period.
a_long_step_is_not_waited_for() {
  echo '{"train_batch_size": 1024, "optimizer": {"type": "SGD", "params": {"lr": 0.1}}}' \
    >"$files/config.json"
  "$train" --layers=2 --width=64 --context=64 --config="$files/config.json" --evaluate_every=0 \
    --grace_period=100ms >"$files/out" 2>"$files/error" &
  interrupt $! INT
  [ $status -eq 130 ] || fail "exit code $status"
  expect_line "$files/error" 'Interrupted; a step did not end in time'
  expect_line "$files/out" 'Report: [0-9]+ of 800 steps .*'
}

# Each begins without the lines of the one before, which are not what `interrupt` waits for.
for test in 'threads_stop_after_the_same_step INT' 'threads_stop_after_the_same_step TERM' \
  an_interrupt_is_the_code_on_a_full_disk_too processes_stop_after_the_same_step mpirun_stops_with_a_report a_long_step_is_not_waited_for; do
  rm -f "$files/out"
  $test
done
