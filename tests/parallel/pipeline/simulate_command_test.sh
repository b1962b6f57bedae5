#!/bin/bash
# simulate_command_test.sh BINARY: lists, times and buffers as printed; errors that name the flag; and
# that the figures in docs/images are what is drawn today.
set -eu -o pipefail
out=$TEST_TMPDIR/out

"$1" --stages=2 --micro_batches=4 | tee "$out"
grep -qx 'stage 0: F0 >a0 F1 >a1 <g0 B0 F2 >a2 <g1 B1 F3 >a3 <g2 B2 <g3 B3' "$out"
# Work, waits, and six sorts of buffers.
grep -Eqx ' +1 +12 +3 +1 +2 +0 +0 +1 +0' "$out"
grep -q '^1f1b: time 15, bubble 3, 25.0 % of the work;' "$out"
"$1" --schedule=gpipe --forward=1,2,1,1 --backward=1,2,1,1 --weights=1,2,1,1 | tee "$out"
grep -q '^gpipe: time 57, bubble 9, ' "$out"
# What interleaving loses on fewer channels.
for expected in stage:45.1 direction:38 edge:32.7; do
  "$1" --schedule=interleaved:2 --transfer=0.3 --channels="${expected%:*}" >"$out"
  grep -q "^interleaved:2: time ${expected#*:}, " "$out"
done

for flag in --schedule=zb-h2 --stages=0 --micro_batches=-1 --forward=1,2 --backward=x --weights=1,,1 --transfer=-1 --channels=two; do
  if "$1" "$flag" 2>"$TEST_TMPDIR/error" >/dev/null; then
    echo "$flag is accepted"
    exit 1
  fi
done
fails() {
  local expected=$1 said
  shift
  said=$("$@" 2>&1 >/dev/null) && echo "$* succeeds" && exit 1
  [[ $said == *"$expected"* ]] || { echo "expected '$expected', got '$said'"; exit 1; }
}
fails '--forward has 2 numbers for 4 stages' "$1" --forward=1,2
fails '--channels is "two"; it must be stage, direction or edge' "$1" --channels=two
fails '--weights is "x"; it must be one number' "$1" --weights=x
fails 'interleaved:2 takes micro-batches in groups of 4' "$1" --schedule=interleaved:2 --micro_batches=6
fails '/nowhere/figure.svg: cannot be written' "$1" --svg=/nowhere/figure.svg

# The commands in docs/pipeline.md.
for schedule in gpipe 1f1b interleaved:2 zb-h1 zb-v; do
  name=${schedule%:*}
  figure=docs/images/pipeline_${name//-/_}.svg
  "$1" --schedule="$schedule" --stages=4 --micro_batches=8 --svg="$TEST_TMPDIR/drawn.svg" >/dev/null
  cmp "$TEST_TMPDIR/drawn.svg" "$figure" || {
    echo "bazel run //parallel/pipeline:simulate -- --schedule=$schedule --svg=$figure"
    exit 1
  }
done
