#!/bin/bash
# predict_test.sh PREDICT MAKE_MODEL SCRIPT: the program of docs/models.md, and beside transformers,
# where it is installed, what it says.
set -u -o pipefail
export LC_ALL=C
predict=$1 make_model=$2 script=$3

fail() {
  printf 'FAILED: %s\n' "$*" >&2
  exit 1
}

model=$TEST_TMPDIR/model
"$make_model" --out="$model" --vocabulary=256 || fail 'no model'
data=$TEST_TMPDIR/lines.jsonl
for i in {1..11}; do
  printf '{"prompt": "How many are %d and %d?", "answer": "There are %d of them."}\n' "$i" $((7 * i)) \
    $((8 * i))
done >"$data"
sums=()
run() { "$predict" --model="$model" --threads=1 --data="$data" --context=48 "$@" 2>"$TEST_TMPDIR/error"; }
value() { grep -o "\"$1\": [-0-9.e+naif]*" <<<"$2" | cut -d' ' -f2; }

said=$(run) || fail "$(cat "$TEST_TMPDIR/error")"
# Of each line the answer: 10 + 12 + digits of it, as is written above.
[[ $(value samples "$said") == 11 ]] || fail "not 11 samples: $said"
tokens=$(for i in {1..11}; do printf 'There are %d of them.' $((8 * i)); done | wc -c)
[[ $(value tokens "$said") == "$tokens" ]] || fail "not $tokens tokens: $said"
for key in runtime samples_per_second; do
  awk -v x="$(value $key "$said")" 'BEGIN { exit !(x > 0) }' || fail "no $key: $said"
done
# However many samples there are in a pass.
near() {
  awk -v a="$1" -v b="$2" -v most="$3" 'BEGIN { d = a - b; exit !(d <= most * b && -d <= most * b) }'
}
for samples in 1 4 11 50; do
  again=$(run --samples=$samples) || fail "$samples samples"
  near "$(value loss "$again")" "$(value loss "$said")" 1e-5 || fail "another loss: $again, $said"
  [[ $(value tokens "$again") == "$tokens" ]] || fail "$samples samples in a pass: $again"
done
near "$(value perplexity "$said")" \
  "$(awk -v x="$(value loss "$said")" 'BEGIN { print exp(x) }')" 1e-5 || fail "perplexity: $said"
[[ $(value samples "$(run --max_samples=3)") == 3 ]] || fail 'max_samples'
[[ $(value samples "$(run --dtype=bf16)") == 11 ]] || fail 'bf16'

# Lines that share samples have the loss that they have alone, in fewer passes; so have files.
packed=$(run --pack --context=128) || fail "$(cat "$TEST_TMPDIR/error")"
[[ $(value samples "$packed") -lt 11 ]] || fail "nothing is packed: $packed"
[[ $(value tokens "$packed") == "$tokens" ]] || fail "not $tokens tokens: $packed"
near "$(value loss "$packed")" "$(value loss "$said")" 1e-5 || fail "another loss: $packed, $said"
mkdir "$TEST_TMPDIR/texts"
printf 'one and two' >"$TEST_TMPDIR/texts/a.txt"
printf 'three' >"$TEST_TMPDIR/texts/b.txt"
for file in a b; do
  each=$("$predict" --model="$model" --threads=1 --data="$TEST_TMPDIR/texts/$file.txt" --context=32) ||
    fail "$file.txt"
  sums+=("$(value loss "$each")" "$(value tokens "$each")")
done
apart=$("$predict" --model="$model" --threads=1 --data="$TEST_TMPDIR/texts" --context=32 \
  --separate_documents) || fail 'separate_documents'
near "$(value loss "$apart")" "$(awk "BEGIN { print (${sums[0]} * ${sums[1]} + ${sums[2]} * ${sums[3]}) / \
  (${sums[1]} + ${sums[3]}) }")" 1e-4 || fail "files apart have $apart, alone ${sums[*]}"

# The command of the page, where its files are.
page=$TEST_TMPDIR/page predict_binary=$PWD/$predict
command=$(sed -n 's/^bazel run \/\/models:predict -- //p' docs/models.md)
mkdir "$page" && cp "$data" "$page/held_out.jsonl" &&
  "$make_model" --out="$page/gpt2" --vocabulary=256 --positions=512 || fail 'no files for the page'
read -ra words <<<"$command"
((${#words[@]} >= 3)) || fail 'docs/models.md has no command'
again=$(cd "$page" && "$predict_binary" "${words[@]}") || fail "the command of docs/models.md: $again"
[[ $(value tokens "$again") == "$tokens" ]] || fail "not $tokens tokens: $again"

refuses() {
  local says=$1 output
  shift
  output=$("$predict" "$@" 2>&1) && fail "takes $*"
  [[ $output == *"$says"* ]] || fail "$* says $output"
}
refuses '--model is missing' --data="$data"
refuses '--data names no file' --model="$model"
refuses 'nowhere' --model="$model" --data=nowhere
refuses 'it must be 1 to 256' --model="$model" --data="$data" --context=300
refuses 'give one of them' --model="$model" --data="$data" --norestart_positions
refuses 'pack are of JSON lines' --model="$model" --data="$TEST_TMPDIR/texts" --pack
refuses '0 samples' --model="$model" --data="$data" --samples=0
printf '{"prompt": 3}\n' >"$TEST_TMPDIR/bad.jsonl"
refuses 'bad.jsonl' --model="$model" --data="$TEST_TMPDIR/bad.jsonl"

home=${HOME:-$(getent passwd "$(id -u)" | cut -d: -f6)}
python=${BRIGADE_TRANSFORMERS_VENV:-${XDG_CACHE_HOME:-$home/.cache}/brigade/peers/transformers}/bin/python
for module in torch transformers; do
  "$python" -c "import $module" 2>/dev/null && continue
  printf '[  SKIPPED ] the reference (no %s: it comes with tools/setup --transformers)\n' "$module"
  exit 0
done
export HF_HUB_OFFLINE=1 TRANSFORMERS_VERBOSITY=error OMP_NUM_THREADS=1
wanted=$("$python" "$script" "$model" "$data" 48 2>/dev/null) || fail 'the reference says nothing'
for key in loss perplexity; do
  near "$(value $key "$said")" "$(value $key "$wanted")" 2e-5 || fail "$key: $said, not $wanted"
done
near "$(value accuracy "$said")" "$(value accuracy "$wanted")" 1e-8 || fail "$said, not $wanted"
[[ $(value tokens "$wanted") == "$tokens" ]] || fail "tokens: $said, not $wanted"
