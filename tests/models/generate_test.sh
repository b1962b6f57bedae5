#!/bin/bash
# generate_test.sh GENERATE MAKE_MODEL TRAIN_TOKENIZER: the program of docs/models.md.
set -u -o pipefail
generate=$1 make_model=$2 train_tokenizer=$3
weights=$TEST_TMPDIR/gpt2
# Links, as Bazel has them, are not read.
cp -rL tests/models/known_answers/gpt2 "$weights" || exit 1

fail() {
  printf 'FAILED: %s\n' "$*" >&2
  exit 1
}

run() { "$generate" --model="$weights" --threads=1 "$@"; }

# The command of the page, with these weights.
command=$(grep -A1 'bazel run //models:generate' docs/models.md | tr -d '\\\n')
read -ra words <<<"${command#*-- }"
flags=()
for word in "${words[@]}"; do [[ $word == --model=* ]] || flags+=("$word"); done
((${#flags[@]} >= 4)) || fail 'docs/models.md has no command'
first=$(run "${flags[@]}") || fail 'the command of docs/models.md'
[[ $(wc -l <<<"$first") == 10 ]] || fail "not 10 tokens: $first"
[[ $(run "${flags[@]}") == "$first" ]] || fail 'a seed has two texts'
[[ $(run "${flags[@]}" --seed=2) != "$first" ]] || fail 'two seeds have one text'

greedy=$(run --ids=3,1,4 --max_new_tokens=6 --temperature=0 --dtype=bf16) || fail 'bf16'
[[ $(wc -l <<<"$greedy") == 6 ]] || fail "not 6 tokens: $greedy"
stop=$(head -1 <<<"$greedy")
[[ $(run --ids=3,1,4 --max_new_tokens=6 --temperature=0 --dtype=bf16 --stop="$stop") == "$stop" ]] ||
  fail 'does not stop'

refuses() {
  local says=$1 output
  shift
  output=$("$generate" "$@" 2>&1) && fail "takes $*"
  [[ $output == *"$says"* ]] || fail "$* says $output"
}
refuses '--model is missing' --ids=1
refuses 'give one of --prompt and --ids' --model="$weights"
refuses 'give one of --prompt and --ids' --model="$weights" --ids=1 --prompt=a
refuses 'the model has 37 tokens and no tokenizer.json' --model="$weights" --prompt=a
refuses 'has 256 tokens, the model 37' --model="$weights" --prompt=a --tokenizer=byte
refuses 'it must be model or int8' --model="$weights" --ids=1 --base=int4
refuses 'for models with an --adapter' --model="$weights" --ids=1 --base=int8
refuses '--chat_template is for a --prompt' --model="$weights" --ids=1 --chat_template=chatml
refuses 'nowhere/adapter_config.json' --model="$weights" --ids=1 --adapter=nowhere
refuses '"1x" is no token' --model="$weights" --ids=1x
refuses '"" is no token' --model="$weights" --ids=1,
refuses 'must be fp32, fp16 or bf16' --model="$weights" --ids=1 --dtype=int8
refuses 'must be cpu or cuda' --model="$weights" --ids=1 --device=tpu
refuses 'token 37 of the prompt is none of the 37' --model="$weights" --ids=37 --max_new_tokens=1
refuses 'the model has 24 positions' --model="$weights" --ids=1,2 --max_new_tokens=24
refuses 'top_p is 0' --model="$weights" --ids=1 --max_new_tokens=1 --top_p=0
refuses 'new_tokens is -1' --model="$weights" --ids=1 --max_new_tokens=-1
refuses 'nowhere/config.json' --model=nowhere --ids=1
refuses 'word' --model="$weights" --ids=1 word
refuses 'the model has 24 positions' --model="$weights" --ids=1 --max_new_tokens=9223372036854775807

# What ends a text: by the model's files, unless it is told otherwise.
sed "s/{/{\"eos_token_id\": [36, $stop],/" "$weights/config.json" >"$TEST_TMPDIR/config" || exit 1
grep -v '"eos_token_id": null' "$TEST_TMPDIR/config" >"$weights/config.json"
ends=$(run --ids=3,1,4 --max_new_tokens=6 --temperature=0 --dtype=bf16) || fail 'eos_token_id'
[[ $ends == "$stop" ]] || fail "goes on behind eos_token_id: $ends"
[[ $(run --ids=3,1,4 --max_new_tokens=6 --temperature=0 --dtype=bf16 --ignore_eos) == "$greedy" ]] ||
  fail 'ignore_eos'
echo '{"eos_token_id": "x"}' >"$weights/generation_config.json"
refuses 'generation_config.json: "eos_token_id"' --model="$weights" --ids=1 --max_new_tokens=1

# Adapters, on a base as it is and as int8; what PEFT has written changes the text.
peft=$TEST_TMPDIR/peft
cp -rL tests/models/peft_answers/gpt2 "$peft" || exit 1
adapted() {
  "$generate" --model="$peft/base" --threads=1 --ids=3,1,4 --max_new_tokens=12 --temperature=0 "$@"
}
plain=$(adapted) || fail 'the base'
with=$(adapted --adapter="$peft/adapter") || fail 'the adapter'
[[ $(wc -l <<<"$with") == 12 && $with != "$plain" ]] || fail "the adapter changes nothing: $with"
[[ $(adapted --adapter="$peft/adapter" --base=int8 | wc -l) == 12 ]] || fail 'a base of int8'

# Text: 256 tokens are bytes; a tokenizer.json is used if it is there.
bytes=$TEST_TMPDIR/bytes
"$make_model" --out="$bytes" --vocabulary=256 || fail 'no model of bytes'
text() { "$generate" --model="$1" --threads=1 --max_new_tokens=20 --seed=3 "${@:2}"; }
[[ $(text "$bytes" --prompt='Hi' | wc -c) == 21 ]] || fail 'not 20 bytes'
cmp <(text "$bytes" --prompt='Hi') <(text "$bytes" --prompt='Hi') || fail 'a seed has two texts'
pieces=$TEST_TMPDIR/pieces
"$make_model" --out="$pieces" --vocabulary=258 || fail 'no model with a tokenizer'
printf 'the cat and the dog and the cat sat\n%.0s' {1..50} >"$TEST_TMPDIR/text"
# The end of a text, 256 bytes and a pair.
"$train_tokenizer" --data="$TEST_TMPDIR/text" --vocabulary=258 --out="$pieces/tokenizer.json" \
  >/dev/null || fail 'no tokenizer'
text "$pieces" --prompt='the cat' >"$TEST_TMPDIR/a" || fail 'a tokenizer.json'
cmp "$TEST_TMPDIR/a" <(text "$pieces" --prompt='the cat' --tokenizer="$pieces/tokenizer.json") ||
  fail 'the tokenizer of the folder is another'
(($(wc -c <"$TEST_TMPDIR/a") >= 21)) || fail 'no text of 20 tokens'
refuses 'has 258 tokens, the model 256' --model="$bytes" --prompt=a --tokenizer="$pieces/tokenizer.json"
refuses 'a chat template is' --model="$bytes" --prompt=a --chat_template=nowhere
chat=$(text "$bytes" --prompt='Hi' --chat_template=alpaca | base64) || fail 'a chat template'
[[ $chat != $(text "$bytes" --prompt='Hi' | base64) ]] || fail 'the template changes nothing'
