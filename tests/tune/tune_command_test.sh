#!/bin/bash
# tune_command_test.sh TUNE TRAIN ESTIMATE_MEMORY: from a config to a better one that the trainer
# takes; what it says where nothing fits, where flags are wrong, and when it is interrupted.
. tests/examples/gpt/train_testing.sh "$2"
tune=$PWD/$1
estimate=$PWD/$3
cd "$files" || exit 1
model=(--model=2x32x2x32 --ranks=2)

cat >ds.json <<'JSON'
{
  "optimizer": {"type": "AdamW", "params": {"lr": 0.002, "weight_decay": 0.1}},
  "gradient_clipping": 1.0,
  "train_batch_size": 8,
  "train_micro_batch_size_per_gpu": "auto",
  "gradient_accumulation_steps": "auto",
  "bf16": {"enabled": true},
  "zero_optimization": {"stage": "auto", "overlap_comm": true, "reduce_bucket_size": "auto"},
  "autotuning": {"enabled": true, "metric": "latency", "start_profile_step": 2, "end_profile_step": 3,
                 "tuner_num_trials": 3},
  "flops_profiler": {"enabled": true, "profile_step": 1, "output_file": "profile.txt"}
}
JSON

# Measured: three, the best of them is written, and the trainer takes it.
"$tune" --config=ds.json "${model[@]}" --fixed=grid,offload,recompute,live_units --rounds=1 >out ||
  fail "it fails: $(cat out)"
[ "$(grep -c '^trial ' out)" = 3 ] || fail "not 3 trials in $(cat out)"
[ ! -e profile.txt ] || fail 'a trial is no training: it has no profile'
expect_line out 'Tuned: stage, micro_batch, bucket, algorithm'
expect_line out ' +[0-9.]+ +[0-9.]+ +[0-9]+ +[0-9]+  stage .* \([0-9.]+ ms\)'
expect_line out 'Predicted order beside the measured one, of [123]: rank correlation .*'
expect_line out 'Written to ds.tuned.json'
expect_line out 'stage +ours +the paper.s +DeepSpeed.s estimator +its autotuner +Accelerate'
# All other keys are the user's.
jq -e '.zero_optimization | (.stage | type) == "number" and .overlap_comm and
       (.reduce_bucket_size | type) == "number"' ds.tuned.json >/dev/null || fail "$(cat ds.tuned.json)"
jq -e '.train_batch_size == 8 and
       .train_micro_batch_size_per_gpu * .gradient_accumulation_steps * 2 == 8' ds.tuned.json \
  >/dev/null || fail "$(cat ds.tuned.json)"
diff <(jq -S '.optimizer, .gradient_clipping, .bf16, .autotuning' ds.json) \
  <(jq -S '.optimizer, .gradient_clipping, .bf16, .autotuning' ds.tuned.json) || fail 'other keys differ'
"$train" --config=ds.tuned.json "${small[@]}" --ranks=2 --steps=2 --evaluate_every=0 >report ||
  fail "the trainer does not take it"
grep -q 'Without effect: autotuning.enabled is true: //tune tries' report || fail "$(cat report)"

# Nothing measured: the best predicted one of a grid, all dimensions.
"$tune" --config=ds.json "${model[@]}" --trials=0 --output=other.json >out || fail "$(cat out)"
expect_line out 'The best by prediction: tensor .*'
"$train" --config=other.json "${small[@]}" --ranks=2 --steps=1 --evaluate_every=0 >report ||
  fail "the trainer does not take $(cat other.json)"

# Within a limit to the byte: the memory of what it has found is enough for the trainer.
"$tune" --config=ds.json "${model[@]}" --fixed=grid --trials=0 --device_limit=400KiB >out ||
  fail "$(cat out)"
"$train" --config=ds.tuned.json "${small[@]}" --ranks=2 --steps=1 --evaluate_every=0 \
  --device_limit=400KiB >report || fail "what was to fit does not: $(cat ds.tuned.json)"

# A result that could not be written is none to look for.
"$tune" --config=ds.json "${model[@]}" --output=nowhere/o.json >out 2>error && fail 'it writes to nowhere'
grep -q '^tune: .*nowhere/o.json.*No such file or directory' error || fail "$(cat error)"
[ ! -s out ] || fail "it has searched: $(cat out)"

# Nothing fits.
rm -f none.json
"$tune" --config=ds.json "${model[@]}" --fixed=grid,offload --device_limit=50KiB --output=none.json \
  >out 2>error && fail 'it fits 50 KiB'
grep -qE '^tune: ds.json: no configuration fits; the smallest is [0-9]+ bytes short$' error ||
  fail "$(cat error)"
expect_line out 'No configuration fits\.'
expect_line out 'The one that needs least, .*, is [0-9]+ bytes short: rank [01] needs [0-9]+ bytes of its device, and may have 51200\.'
expect_line out 'What would help, each by itself:'
expect_line out '  --tune=offload .* bytes: .*'
[ ! -e none.json ] || fail 'a config is written'

# Interrupted: what it has.
"$tune" --config=ds.json --model=2x32x2x32 --ranks=2 --fixed=grid --trials=1000 --rounds=1000 \
  --grace_period=2m >out 2>error &
wait_for_line out '^trial 1:' $!
kill -INT $!
wait $!
[ $? -eq 130 ] || fail "exit code $?"
expect_line error 'Interrupted'
expect_line out 'The best so far: .*'

# refuses TEXT FLAG...
refuses() {
  local wanted=$1
  shift
  "$tune" "$@" >out 2>error && fail "$* is accepted"
  grep -qF -- "$wanted" error || fail "$* says \"$(cat error)\" instead of \"$wanted\""
}
refuses '--config is not given' --ranks=2
refuses '--ranks is 65; a group of threads has 1 to 64' --config=ds.json --ranks=65
refuses '"stages" is none of stage, micro_batch' --config=ds.json --tune=stages
refuses '"gpt9" is neither gpt2' --config=ds.json --model=gpt9
refuses '--rounds is 0; it must be at least 1' --config=ds.json --rounds=0
refuses '--trials is -1; it must be at least 0' --config=ds.json --trials=-1
refuses '--tune: a flag of the trainer says what tensor is' --config=ds.json --tune=tensor --tensor=2
refuses 'missing.json' --config=missing.json
echo '{"optimizer": {"type": "AdamW"}}' >no_batch.json
refuses 'no_batch.json: train_batch_size is not given' --config=no_batch.json
echo '{"train_batch_size": 8, "optimizer": {"type": "AdamW"}, "autotuning": {"fats": true}}' >typo.json
refuses 'autotuning.fats' --config=typo.json
echo '{"train_batch_size": 8, "optimizer": {"type": "AdamW"}, "gradient_cliping": 1}' >typo.json
refuses 'none of the configurations can be' --config=typo.json "${model[@]}" --fixed=grid
grep -q 'gradient_clipping' out || fail "it does not name the key: $(cat out)"

# The estimators beside the paper: 17.1 GB for 16.6.
"$estimate" >out || fail 'the estimates fail'
expect_line out '2 +16\.6 +17\.1 +17\.1 +60\.0'
expect_line out '0 +120\.0 +- +150\.0 +60\.0'
"$estimate" --params=125M >out || fail "a small model: $(cat out)"
"$estimate" --params=9000T --gpus=1048576 --nodes=1048576 >out || fail 'a large one'
grep -q -- ' -[0-9]' out && fail "a negative number in $(cat out)"
"$estimate" --gpus=0 >out 2>error && fail '--gpus=0 is accepted'
grep -qF -- '--gpus is 0; it must be 1 to 1048576' error || fail "$(cat error)"
