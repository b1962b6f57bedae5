#!/bin/bash
# generate_test.sh TRAIN GENERATE EXPORT: a checkpoint of any stage and grid writes the same text.
. tests/examples/gpt/train_testing.sh
generate=$PWD/$2 export=$PWD/$3
job=("${small[@]}" --steps=6 --evaluate_every=6 --precision=fp32 --batch=8)

text() { "$generate" --threads=1 --prompt='The ' --max_new_tokens=25 --seed=4 --checkpoint="$@"; }

for stage in 0 1 2 3; do
  "$train" "${job[@]}" --ranks=2 --stage=$stage --save="$files/stage$stage" >"$files/out" 2>&1 ||
    fail "stage $stage: $(cat "$files/out")"
done
# A pipeline of two stages over the layers, and twice as many ranks.
"$train" "${job[@]}" --ranks=4 --pipeline=2 --stage=1 --save="$files/grid" >"$files/out" 2>&1 ||
  fail "a grid: $(cat "$files/out")"

first=$(text "$files/stage0" | base64) || fail 'no text'
[ "$(base64 -d <<<"$first" | wc -c)" = 26 ] || fail "not 25 bytes: $first"
for of in stage1 stage2 stage3; do
  [ "$(text "$files/$of" | base64)" = "$first" ] || fail "$of has another text than stage 0"
done
# Sums over ranks are in another order: the same numbers, but for roundings.
[ "$(text "$files/grid" --temperature=0 | base64)" = "$(text "$files/stage0" --temperature=0 | base64)" ] ||
  fail 'a grid has another text'
[ "$(text "$files/stage3/step-00000006" | base64)" = "$first" ] || fail 'one checkpoint'
[ "$(text "$files/stage3" | base64)" = "$first" ] || fail 'a seed has two texts'
[ "$(text "$files/stage3" --seed=5 | base64)" != "$first" ] || fail 'two seeds have one text'
"$export" "$files/stage3/step-00000006" "$files/weights.safetensors" >/dev/null || fail 'no export'
[ "$(text "$files/weights.safetensors" --heads=2 | base64)" = "$first" ] || fail 'exported weights'
text "$files/stage3" --dtype=bf16 >/dev/null || fail 'bf16'

refuses() {
  local says=$1 output
  shift
  output=$("$generate" "$@" 2>&1) && fail "takes $*"
  [[ $output == *"$says"* ]] || fail "$* says $output"
}
refuses '--checkpoint is missing' --prompt=a
refuses '--prompt is missing' --checkpoint="$files/stage0"
refuses 'has no checkpoint' --checkpoint="$files" --prompt=a
refuses "the model's context is 32" --checkpoint="$files/stage0" --prompt=a --max_new_tokens=33
refuses 'has 2 heads, not 4' --checkpoint="$files/stage0" --prompt=a --heads=4
refuses 'do not say how many heads' --checkpoint="$files/weights.safetensors" --prompt=a
refuses 'must be cpu or cuda' --checkpoint="$files/stage0" --prompt=a --device=tpu
# A checkpoint that is damaged is named.
truncate -s -4 "$files/stage0/step-00000006"/master-* || fail 'no master file'
refuses "$files/stage0" --checkpoint="$files/stage0" --prompt=a --max_new_tokens=3
