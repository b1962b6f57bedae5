#!/bin/bash
# train_killed_test.sh TRAIN ROUNDS: a training that saves every 5 steps is killed at any moment, in
# so many rounds, and resumed from the newest checkpoint: nothing is lost but the steps after it.
# Every other round has its optimizer state in files, which go with it.
. tests/examples/gpt/train_testing.sh
rounds=$2
every=5
root=$files/checkpoints
echo '{"train_batch_size": 4, "fp16": {"enabled": true}, "zero_optimization": {"stage": 2},
       "optimizer": {"type": "Adam", "params": {"lr": 0.003}}}' >"$files/config.json"
job=("${tiny[@]}" --ranks=2 --evaluate_every=0 --config="$files/config.json")
saved=(--steps=1000000 --save="$root" --save_every=$every --keep=3 --resume
  --metrics="$files/metrics")
RANDOM=1  # the same moments each time, as far as machines are alike

newest() {
  local name
  name=$(find "$root" -maxdepth 1 -name 'step-*' 2>/dev/null | sort | tail -1)
  [ -z "$name" ] && echo 0 || echo $((10#${name##*step-}))
}

mkdir "$files/disk"
cut=0
for ((round = 1; round <= rounds; round++)); do
  # What is there now is the least that the training may go on from.
  before=$(newest)
  rm -f "$files/out"
  offload=()
  ((round % 2 != 0)) || offload=(--offload=optimizer --offload_to=file --offload_dir="$files/disk")
  "$train" "${job[@]}" "${saved[@]}" "${offload[@]}" >"$files/out" 2>"$files/error" &
  process=$!
  # From its first step on, or before it has begun.
  if ((round % 5 != 0)); then wait_for_line "$files/out" '^step ' $process; fi
  sleep "0.$(printf '%03d' $((RANDOM % 300)))"
  disown $process
  kill -KILL $process
  while kill -0 $process 2>/dev/null; do sleep 0.002; done
  [ -s "$files/error" ] && fail "round $round: $(cat "$files/error")"
  resumed=$(sed -n 's/^Resumed after step \([0-9]*\) from .*/\1/p' "$files/out")
  # It may have been killed before it said so.
  if [ -n "$resumed" ]; then
    [ "$resumed" -eq "$before" ] || fail "round $round: resumed after $resumed of $before"
  elif ((round % 5 != 0)); then
    [ "$before" -eq 0 ] || fail "round $round: not resumed, where $before was there"
  fi
  find "$root" -maxdepth 1 -name '.*part*' 2>/dev/null | grep -q . && cut=$((cut + 1))
done
rmdir "$files/disk" || fail 'a file of the optimizer state is left'
step=$(newest)
[ "$step" -gt 0 ] || fail 'no checkpoint in any round'
# As one that nobody has killed, up to there.
"$train" "${job[@]}" --steps="$step" --metrics="$files/whole" >"$files/out" 2>&1 ||
  fail "$(cat "$files/out")"
cmp <(jq -c 'select(.loss) | [.step, .loss, .grad_norm]' "$files/whole") \
  <(jq -c 'select(.loss) | [.step, .loss, .grad_norm]' "$files/metrics" | head -n "$step") ||
  fail 'other losses than without interruption'
echo "$rounds rounds to step $step; in $cut a save was cut short"
