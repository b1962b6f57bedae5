#!/bin/bash
# train_test.sh TRAIN: what the trainer prints and writes.
. tests/examples/gpt/train_testing.sh

# rows_agree REPORT TITLE LAST: the ranks' rows of the table are like the row LAST, the formula's.
rows_agree() {
  awk -v title="$2" -v last="$3" '
    index($0, title) == 1 { inside = 1; next }
    inside && $1 ~ /^[0-9]+$/ { rank = $1; $1 = ""; row[rank] = $0; ++ranks }
    inside && $1 == last { $1 = ""; found = 1; for (r in row) wrong += row[r] != $0; exit }
    END { exit !(found && ranks == 4 && wrong == 0) }' "$1" ||
    fail "rows of \"$2\" are not those of the formula: $(cat "$1")"
}

the_readmes_command_ends_with_a_report() {
  local report=$files/report number='[0-9.]+'
  "$train" --steps=5 >"$report" || fail "exit code $?"
  expect_line "$report" 'GPT of 4 layers, width 128, 4 heads, context 128: 842496 parameters'
  expect_line "$report" '4 threads on cpu, ZeRO stage 2, fp16 with dynamic loss scale, AdamW; 5 steps of 16 texts \(1 micro-batch of 4 on each rank\)'
  expect_line "$report" 'Text: [0-9]+ licences \([0-9]+ bytes\); held out: Apache-2.0, MPL-2.0 \([0-9]+ bytes\)'
  expect_line "$report" "step 5/5 loss $number $number bytes/s scale $number norm [0-9.inf]+ lr [0-9.e+-]+ 0s left( skipped: overflow)?"
  expect_line "$report" "Report: 5 of 5 steps in $number s \([0-9]+ skipped for overflow\), $number bytes/s, $number Gflop/s"
  expect_line "$report" "Training loss: 5.[45][0-9]{3} at the first step, [345].[0-9]{4} at the last; loss scale [0-9]+"
  expect_line "$report" "Held out: [345].[0-9]{4} nats per byte after 5 steps; a bigram model 2.[0-9]{4}, a trigram model 1.[0-9]{4}"
  expect_line "$report" ' *0 +5 steps   \* training  o held out'
  expect_line "$report" ' +share( +[0-9.]+ %){5} +100.0 % \| +[0-9.]+ %'
  rows_agree "$report" 'Memory at its peak' model
  rows_agree "$report" 'Sent in each step' formula
  # And the head's part of the tokens' gradient, of 256 x 128, by itself.
  expect_line "$report" ' +formula( +[0-9.]+){3} +1.529109'
  expect_line "$report" '2 \(N-1\)/N Y is 1.500000 Y; tied weights and several micro-batches add to it\.'
  ! grep -q $'\r' "$report" || fail 'control characters although this is no terminal'
}

stage_3_sends_half_as_much_again() {
  local report=$files/report
  "$train" "${small[@]}" --steps=4 --stage=3 --precision=bf16 >"$report" || fail "exit code $?"
  expect_line "$report" '4 threads on cpu, ZeRO stage 3, bf16, AdamW; 4 steps .*'
  rows_agree "$report" 'Memory at its peak' model
  rows_agree "$report" 'Sent in each step' formula
  expect_line "$report" '3 \(N-1\)/N Y is 2.250000 Y; tied weights and several micro-batches add to it\.'
}

groups_have_a_state_each() {
  local report=$files/report
  "$train" "${small[@]}" --steps=4 --stage=3 --shard_ranks=2 --precision=bf16 >"$report" ||
    fail "exit code $?"
  expect_line "$report" '4 threads on cpu, ZeRO stage 3 in 2 groups, bf16, AdamW; 4 steps .*'
  rows_agree "$report" 'Memory at its peak' model
  rows_agree "$report" 'Sent in each step' formula
  expect_line "$report" '3 \(N-1\)/N Y is 1.500000 Y; tied weights and several micro-batches add to it\.'
  expect_line "$report" '2 groups of N = 2 ranks have a whole state each; between them gradients go once a step\.'
}

a_stash_copies_what_the_plan_says() {
  local report=$files/report number='[0-9]+\.[0-9]{3}'
  "$train" "${small[@]}" --layers=4 --steps=4 --recompute=block --stash=host >"$report" ||
    fail "exit code $?"
  expect_line "$report" "Stashed on the host, in $number MB: ($number) MB written and \\1 MB read back in each step; by the plan \\1 MB"
  rows_agree "$report" 'Memory at its peak' model
  "$train" "${small[@]}" --layers=4 --steps=4 --recompute=block --stash=file --offload_dir="$files" \
    >"$report" || fail "exit code $?"
  expect_line "$report" "Stashed in a file, by way of the host's $number MB: ($number) MB written and \\1 MB read back in each step; by the plan \\1 MB"
  rows_agree "$report" 'Memory at its peak' model
}

metrics_and_trace_are_json() {
  local metrics=$files/metrics.jsonl trace=$files/trace.json
  "$train" "${small[@]}" --steps=24 --evaluate_every=10 --metrics="$metrics" --trace="$trace" \
    >/dev/null || fail "exit code $?"
  expect_json "$metrics" '[.[] | select(.loss) | .step] == [range(1; 25)]'
  expect_json "$metrics" '[.[] | select(.held_out_loss) | .step] == [0, 10, 20, 24]'
  expect_json "$metrics" '[.[] | select(.loss)] | .[-1].loss < .[0].loss - 1'
  expect_json "$metrics" '[.[] | .held_out_loss // empty] | .[-1] < .[0] - 1'
  expect_json "$metrics" 'all(.[] | select(.loss); (.grad_norm == null) == .skipped
      and .loss_scale >= 1 and .tokens_per_second > 0 and .learning_rate >= 0)'
  expect_json "$metrics" '[.[] | select(.loss) | .seconds] | . == sort'

  # One array: a process for each rank, a track for each of its two streams, nothing left out.
  expect_json "$trace" '[.[0][] | select(.name == "process_name") | .args.name] | sort
      == ["rank 0", "rank 1", "rank 2", "rank 3"]'
  expect_json "$trace" '[.[0][] | select(.name == "thread_name")] | length == 8 and
      (group_by(.pid) | all([.[].args.name] | sort == ["communication", "compute"]))'
  expect_json "$trace" '[.[0][] | select(.ph == "X")] | length > 1000 and all(.dur >= 0)'
  expect_json "$trace" 'all(.[0][]; .ph != "i")'
}

the_same_seed_gives_the_same_losses() {
  local name
  for name in "first --seed=5" "again --seed=5" "other --seed=6"; do
    "$train" "${small[@]}" --steps=8 --metrics="$files/${name% *}" "${name#* }" >/dev/null ||
      fail "exit code $?"
  done
  [ "$(losses "$files/first")" = "$(losses "$files/again")" ] || fail 'other losses, same seed'
  [ "$(losses "$files/first")" != "$(losses "$files/other")" ] || fail 'same losses, other seed'
}

the_config_with_sgd_trains() {
  local report=$files/report metrics=$files/sgd.jsonl
  "$train" "${small[@]}" --ranks=4 --config=examples/gpt/configs/sgd_fp16_zero2.json --steps=40 \
    --metrics="$metrics" >"$report" || fail "exit code $?"
  expect_line "$report" '4 threads on cpu, ZeRO stage 2, fp16 with dynamic loss scale, SGD; 40 steps of 4 texts \(1 micro-batch of 1 on each rank\)'
  expect_json "$metrics" '[.[] | .held_out_loss // empty] | .[-1] < .[0]'
  rows_agree "$report" 'Memory at its peak' model
}

a_config_of_another_program_trains_with_flags() {
  local report=$files/report config=$files/other.json
  cat >"$config" <<'END'
{"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "steps_per_print": 3,
 "gradient_accumulation_steps": "auto", "bf16": {"enabled": "auto"}, "wandb": {"enabled": false},
 "zero_optimization": {"stage": 3, "stage3_max_live_parameters": 1, "reduce_bucket_size": "auto"}}
END
  "$train" "${tiny[@]}" --config="$config" --batch=8 --lr=0.001 --precision=bf16 --steps=7 \
    >"$report" || fail "exit code $?"
  expect_line "$report" '4 threads on cpu, ZeRO stage 3, bf16, AdamW; 7 steps of 8 texts \(1 micro-batch of 2 on each rank\)'
  expect_line "$report" 'Without effect: zero_optimization.stage3_max_live_parameters is 1: brigade.live_units says how many units are gathered at a time'
  [ "$(grep -c '^Without effect' "$report")" = 1 ] || fail "$(cat "$report")"
  [ "$(grep -o '^step [0-9]*/7' "$report" | tr '\n' ' ')" = 'step 3/7 step 6/7 step 7/7 ' ] ||
    fail "other steps than 3, 6 and 7: $(cat "$report")"
  expect_line "$report" 'step 7/7 .* lr 1.0e-03 .*'
}

paths_are_of_the_users_folder() {
  mkdir "$files/folder"
  BUILD_WORKING_DIRECTORY=$files/folder "$train" "${tiny[@]}" --steps=1 --metrics=m.jsonl \
    >/dev/null || fail "exit code $?"
  expect_json "$files/folder/m.jsonl" 'length == 3'
}

a_terminal_gets_one_line_that_is_written_over() {
  script -qec "'$train' ${tiny[*]} --steps=30" /dev/null >"$files/terminal" || fail "exit code $?"
  grep -q $'\rstep 30/30 .*\033\\[K' "$files/terminal" || fail "$(cat "$files/terminal")"
}

the_readmes_command_ends_with_a_report
stage_3_sends_half_as_much_again
groups_have_a_state_each
a_stash_copies_what_the_plan_says
metrics_and_trace_are_json
the_same_seed_gives_the_same_losses
the_config_with_sgd_trains
a_config_of_another_program_trains_with_flags
paths_are_of_the_users_folder
a_terminal_gets_one_line_that_is_written_over
