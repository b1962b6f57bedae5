#!/bin/bash
# train_checkpoint_test.sh TRAIN: trainings are saved, interrupted and resumed, and give what they
# would have given without it.
. tests/examples/gpt/train_testing.sh
job=("${tiny[@]}" --steps=24 --evaluate_every=8)

# The run that nobody interrupts: of 3 threads, in $files/whole.
"$train" "${job[@]}" --ranks=3 --stage=1 --metrics="$files/whole" >"$files/out" || fail "exit code $?"

root=$files/checkpoints
newest() { basename "$(find "$1" -maxdepth 1 -name 'step-*' | sort | tail -1)"; }

# run FLAGS...: with the job's; its output is in $files/out and $files/error.
run() { "$train" "${job[@]}" "$@" >"$files/out" 2>"$files/error"; }

expect_error() {
  run "${@:2}" && fail "no error with ${*:2}"
  grep -qE -- "$1" "$files/error" || fail "no \"$1\" in $(cat "$files/error")"
}

expect_whole() {
  [ "$(losses "$files/whole")" = "$(losses "$1")" ] ||
    fail "other losses: $(diff <(losses "$files/whole") <(losses "$1"))"
}

# With all digits, whatever the stage; what the metrics file had of later steps is gone.
resumes_with_the_same_losses() {
  local stage
  for stage in 0 1 2 3; do
    rm -rf "$root" "$files/metrics" "$files/trace.json"
    "$train" "${job[@]}" --ranks=3 --stage=$((3 - stage)) --save="$root" --save_every=6 --keep=0 \
      --metrics="$files/metrics" --trace="$files/trace.json" >"$files/out" || fail "exit code $?"
    expect_whole "$files/metrics"
    rm -r "$root/step-00000024" "$root/step-00000018"
    local events
    events=$(jq length "$files/trace.json")
    run --ranks=3 --stage=$stage --save="$root" --resume --metrics="$files/metrics" \
      --trace="$files/trace.json" || fail "exit code $?"
    expect_whole "$files/metrics"
    expect_line "$files/out" "Resumed after step 12 from $root/step-00000012"
    expect_line "$files/out" 'Report: 24 of 24 steps from step 13 on in .*'
    [ "$(jq length "$files/trace.json")" -gt "$events" ] || fail 'the trace does not go on'
  done
}

# Killed amid its steps, so that metrics and trace have more than the checkpoint.
a_killed_training_goes_on() {
  rm -rf "$root" "$files/metrics" "$files/trace.json"
  "$train" "${job[@]}" --ranks=3 --stage=1 --save="$root" --save_every=5 \
    --metrics="$files/metrics" --trace="$files/trace.json" >/dev/null 2>&1 &
  local process=$!
  until [ -e "$root/step-00000010" ]; do kill -0 $process 2>/dev/null || break; done
  disown $process
  kill -KILL $process 2>/dev/null
  while kill -0 $process 2>/dev/null; do sleep 0.01; done
  run --ranks=3 --stage=1 --save="$root" --resume --metrics="$files/metrics" \
    --trace="$files/trace.json" || fail "exit code $? $(cat "$files/error")"
  expect_whole "$files/metrics"
  jq -e . "$files/trace.json" >/dev/null || fail 'the trace is broken'
}

# Each signal lets the training save before it ends.
an_interrupted_training_is_saved() {
  local signal
  for signal in INT TERM; do
    rm -rf "$root" "$files/out" "$files/metrics"
    "$train" "${tiny[@]}" --steps=1000000 --evaluate_every=0 --ranks=2 --save="$root" \
      --metrics="$files/metrics" --grace_period=2m >"$files/out" 2>"$files/error" &
    local process=$!
    wait_for_line "$files/out" '^step ' $process
    kill -$signal $process
    wait $process
    [ $? -eq 130 ] || fail "exit code $?"
    local step
    step=$(sed -n 's/^Report: \([0-9]*\) of.*/\1/p' "$files/out")
    [ "$(newest "$root")" = "$(printf 'step-%08d' "$step")" ] || fail "no step $step: $(ls "$root")"
    expect_line "$files/out" "Saved 1 checkpoint to $root, .*"
    expect_line "$files/out" 'The steps were held up for .* the last save took .*'
    # Another number of steps is another schedule.
    "$train" "${tiny[@]}" --steps="$step" --evaluate_every=0 --ranks=2 --save="$root" --resume \
      >"$files/out" 2>"$files/error" && fail 'another schedule is taken'
    grep -q 'groups\[0\].schedule' "$files/error" || fail "$(cat "$files/error")"
    # Nothing is left to be done: it only tells.
    "$train" "${tiny[@]}" --steps="$step" --evaluate_every=0 --ranks=2 --save="$root" --resume \
      --may_differ='groups[0].schedule' >"$files/out" 2>"$files/error" || fail "$(cat "$files/error")"
    expect_line "$files/out" "Resumed after step $step from $root/step-.*"
    expect_line "$files/out" 'Report: no step was finished.*'
    expect_line "$files/out" "Saved 0 checkpoints to $root"
  done
}

without_a_checkpoint_it_begins_anew() {
  rm -rf "$root"
  run --ranks=3 --stage=1 --save="$root" --resume --metrics="$files/metrics" || fail "exit code $?"
  expect_line "$files/out" "No checkpoint in $root: a new training begins"
  expect_whole "$files/metrics"
  [ "$(ls "$root")" = step-00000024 ] || fail "$(ls "$root")"
}

# What is damaged is named, and one goes back if asked to.
a_damaged_checkpoint_is_named() {
  rm -rf "$root"
  run --ranks=3 --stage=1 --save="$root" --save_every=12 || fail "exit code $?"
  rm "$files/metrics"
  local file=$root/step-00000024/moment1-00001-of-00001.safetensors size
  size=$(stat -c %s "$file")
  printf 'x' | dd of="$file" bs=1 seek=$((size - 1000)) conv=notrunc 2>/dev/null
  expect_error "moment1-00001-of-00001.safetensors is damaged: tensor \".*\" has the checksum" \
    --ranks=3 --stage=1 --save="$root" --resume
  run --ranks=2 --stage=1 --save="$root" --resume --fall_back && fail 'another batch is taken'
  grep -q 'train_batch_size is 18 in the checkpoint, 16 here' "$files/error" ||
    fail "$(cat "$files/error")"
  run --ranks=3 --stage=2 --save="$root" --resume --fall_back --metrics="$files/metrics" ||
    fail "$(cat "$files/error")"
  expect_line "$files/out" "Resumed after step 12 from $root/step-00000012"
  expect_line "$files/out" 'Damaged: .*moment1-00001-of-00001.safetensors is damaged: .*'
  [ "$(ls "$root")" = "$(printf '%s\n' damaged-step-00000024 step-00000012 step-00000024)" ] ||
    fail "$(ls "$root")"
  # Ranks that find different faults go back together: 0 looks at the first file, 1 at the next one.
  rm "$root"/step-00000024/master-*
  mkdir "$root/step-00000024/master-00001-of-00001.safetensors"
  printf 'x' | dd of="$file" bs=1 seek=20 conv=notrunc 2>/dev/null
  expect_error 'header of other tensors, or a damaged one; --fall_back' --ranks=3 --save="$root" \
    --resume
  run --ranks=3 --save="$root" --resume --fall_back || fail "$(cat "$files/error")"
  expect_line "$files/out" "Resumed after step 12 from $root/step-00000012"
}

# A second one is an error while the first one runs, and none straight after that is killed.
two_trainings_do_not_share_a_folder() {
  rm -rf "$root"
  "$train" "${tiny[@]}" --steps=1000000 --evaluate_every=0 --ranks=2 --save="$root" \
    >"$files/first" 2>&1 &
  local process=$!
  wait_for_line "$files/first" '^step ' $process
  expect_error "another training saves to $root" --ranks=2 --save="$root"
  disown $process
  kill -KILL $process
  run --ranks=2 --save="$root" --resume || fail "$(cat "$files/error")"
}

what_differs_is_named() {
  rm -rf "$root"
  run --ranks=3 --save="$root" || fail "exit code $?"
  expect_error 'seed is 1 in the checkpoint, 2 here' --ranks=3 --save="$root" --resume --seed=2
  run --ranks=3 --stage=1 --save="$root" --resume --seed=2 --may_differ=seed || fail "exit code $?"
  # However the folder is written: what is saved is not saved again.
  run --ranks=3 --stage=1 --save="$root//" --resume="$root/./" --seed=2 --may_differ=seed ||
    fail "exit code $?"
  expect_error 'dtype is float16 in the checkpoint, bfloat16 here' --ranks=3 --resume="$root" \
    --precision=bf16
  expect_error 'corpus.held_out.bytes is' --ranks=3 --resume="$root/step-00000024" \
    --data="$train"
  expect_error 'positions is \[16, 16\] float16, group 0 in the checkpoint, \[8, 16\]' --ranks=3 \
    --resume="$root" --context=8
  expect_error "no checkpoint in $files/nowhere" --ranks=3 --save="$root" --resume="$files/nowhere"
  expect_error "$root has a checkpoint of step 24, but this training begins after step 0" --ranks=3 \
    --save="$root"
  expect_error '--save_every is 5, but --save names no folder' --ranks=3 --save_every=5
  expect_error '--resume names no folder, and neither does --save' --ranks=3 --resume
  expect_error '--fall_back is for --resume' --ranks=3 --fall_back
  expect_error 'cannot make /proc/checkpoints' --ranks=3 --save=/proc/checkpoints --save_every=8
}

# A file for each rank; and a number of ranks of which each has the same batch.
files_of_ranks_are_resumed() {
  cat >"$files/config.json" <<'JSON'
{"train_batch_size": 12, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2},
 "optimizer": {"type": "AdamW", "params": {"lr": 0.003}},
 "checkpoint": {"use_node_local_storage": true, "load_universal": true, "tag_validation": "Fail"}}
JSON
  rm -rf "$root" "$files/metrics" "$files/pieces"
  run --config="$files/config.json" --ranks=4 --metrics="$files/pieces" || fail "exit code $?"
  run --config="$files/config.json" --ranks=4 --save="$root" --save_every=12 \
    --metrics="$files/metrics" || fail "exit code $?"
  [ -s "$root/step-00000012/pieces-00004-of-00004.bin" ] || fail "$(ls -R "$root")"
  rm -r "$root/step-00000024"
  run --config="$files/config.json" --ranks=4 --save="$root" --resume --metrics="$files/metrics" ||
    fail "$(cat "$files/error")"
  [ "$(losses "$files/pieces")" = "$(losses "$files/metrics")" ] || fail 'other losses'
  rm -r "$root/step-00000024"
  run --config="$files/config.json" --ranks=3 --save="$root" --resume || fail "exit code $?"
  expect_line "$files/out" "Resumed after step 12 from $root/step-00000012"
}

processes_resume_what_threads_saved() {
  rm -rf "$root" "$files/metrics"
  run --ranks=3 --stage=1 --save="$root" --save_every=12 --keep=0 --metrics="$files/metrics" ||
    fail "exit code $?"
  rm -r "$root/step-00000024"
  with_mpirun 3 "$train" "${job[@]}" --stage=3 --save="$root" --resume \
    --metrics="$files/metrics" >"$files/out" 2>"$files/error" || fail "$(cat "$files/error")"
  expect_whole "$files/metrics"
  expect_line "$files/out" "Resumed after step 12 from $root/step-00000012"
}

# A new training from the weights of another one: its first loss is that of the step where it ended.
weights_of_a_file_begin_a_training() {
  rm -rf "$root"
  run --ranks=2 --precision=fp32 --save="$root" || fail "exit code $?"
  cp "$files/out" "$files/trained"
  cp "$root/step-00000024/master-00001-of-00001.safetensors" "$files/weights.safetensors"
  local weights first
  for weights in "$files/weights.safetensors" "$root/step-00000024" \
    "$root/step-00000024/model.safetensors.index.json"; do
    run --ranks=2 --precision=fp32 --weights="$weights" --metrics="$files/begun" ||
      fail "$(cat "$files/error")"
    first=$(jq -s '.[0].held_out_loss' "$files/begun")
    grep -q "held out after 24 steps: $(printf '%.4f' "$first") " "$files/trained" ||
      fail "it begins with $first, after $(cat "$files/trained")"
  done
  expect_error 'positions.*\[16, 16\].*\[8, 16\]' --ranks=2 --context=8 \
    --weights="$files/weights.safetensors"
  expect_error 'weights are of a new training' --ranks=2 --weights=x --resume="$root"
}

resumes_with_the_same_losses
a_killed_training_goes_on
an_interrupted_training_is_saved
without_a_checkpoint_it_begins_anew
a_damaged_checkpoint_is_named
two_trainings_do_not_share_a_folder
what_differs_is_named
files_of_ranks_are_resumed
weights_of_a_file_begin_a_training
processes_resume_what_threads_saved
