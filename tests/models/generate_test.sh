#!/bin/bash
# generate_test.sh GENERATE: the program of docs/models.md.
set -u -o pipefail
generate=$1
weights=$TEST_TMPDIR/gpt2
# Links, as Bazel has them, are not read.
cp -rL tests/models/known_answers/gpt2 "$weights" || exit 1

fail() {
  printf 'FAILED: %s\n' "$*" >&2
  exit 1
}

run() { "$generate" --weights="$weights" --threads=1 "$@"; }

# The command of the page, with these weights.
command=$(grep -A1 'bazel run //models:generate' docs/models.md | tr -d '\\\n')
read -ra words <<<"${command#*-- }"
flags=()
for word in "${words[@]}"; do [[ $word == --weights=* ]] || flags+=("$word"); done
((${#flags[@]} >= 4)) || fail 'docs/models.md has no command'
first=$(run "${flags[@]}") || fail 'the command of docs/models.md'
[[ $(wc -l <<<"$first") == 10 ]] || fail "not 10 tokens: $first"
[[ $(run "${flags[@]}") == "$first" ]] || fail 'a seed has two texts'
[[ $(run "${flags[@]}" --seed=2) != "$first" ]] || fail 'two seeds have one text'

greedy=$(run --ids=3,1,4 --new_tokens=6 --temperature=0 --dtype=bf16) || fail 'bf16'
[[ $(wc -l <<<"$greedy") == 6 ]] || fail "not 6 tokens: $greedy"
stop=$(head -1 <<<"$greedy")
[[ $(run --ids=3,1,4 --new_tokens=6 --temperature=0 --dtype=bf16 --stop="$stop") == "$stop" ]] ||
  fail 'does not stop'

refuses() {
  local says=$1 output
  shift
  output=$("$generate" "$@" 2>&1) && fail "takes $*"
  [[ $output == *"$says"* ]] || fail "$* says $output"
}
refuses '--weights is missing' --ids=1
refuses 'give one of --prompt and --ids' --weights=$weights
refuses 'give one of --prompt and --ids' --weights="$weights" --ids=1 --prompt=a
refuses '--prompt is for models of bytes' --weights="$weights" --prompt=a
refuses '"1x" is no token' --weights="$weights" --ids=1x
refuses '"" is no token' --weights="$weights" --ids=1,
refuses 'must be fp32, fp16 or bf16' --weights="$weights" --ids=1 --dtype=int8
refuses 'must be cpu or cuda' --weights="$weights" --ids=1 --device=tpu
refuses 'token 37 of the prompt is none of the 37' --weights="$weights" --ids=37 --new_tokens=1
refuses 'the model has 24 positions' --weights="$weights" --ids=1,2 --new_tokens=24
refuses 'top_p is 0' --weights="$weights" --ids=1 --new_tokens=1 --top_p=0
refuses 'new_tokens is -1' --weights="$weights" --ids=1 --new_tokens=-1
refuses 'nowhere/config.json' --weights=nowhere --ids=1
refuses 'word' --weights="$weights" --ids=1 word
