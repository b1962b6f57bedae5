#!/bin/bash
# smoke_test.sh TENSOR_BLOCK OVERLAP RING CROSS_ENTROPY PIPELINE: each has its figures, of tiny cases.
set -eu -o pipefail
figures="$TEST_TMPDIR/figures.json"
has() { grep -q "\"$1\"" "$figures" || { cat "$figures" && exit 1; }; }

"$1" --ranks=1,2 --types=fp32,bf16 --batch=1 --context=16 --width=16 --heads=2 --rounds=1 --json="$figures"
for case in fp32_t1 fp32_t2 fp32_t2_rows bf16_t2_rows; do has "${case}_of_parts"; done
"$1" --ranks=2 --batch=1 --context=16 --width=16 --heads=2 --pieces=2 --overlap --rounds=1 --json="$figures"
has fp32_t2_rows_of_parts
if "$1" --ranks=3 --batch=1 --context=16 --width=16 --heads=2 2> "$TEST_TMPDIR/error"; then exit 1; fi
grep -q 'must divide' "$TEST_TMPDIR/error"

for products in 0 2; do
  "$2" --rows=16 --width=16 --pieces=2 --product_ms=$products --rounds=1 --json="$figures"
  for pass in row_forward_all_rows column_forward_own_rows row_backward_own_rows column_backward_own_rows; do
    has "${pass}_hidden"
  done
done

"$3" --ranks=4 --context=64 --heads=4 --head_width=8 --rounds=1 --json="$figures"
has c4_processor_of_parts
"$3" --ranks=2 --context=64 --heads=2 --head_width=8 --link=0.7 --type=bf16 --rounds=1 --json="$figures"
has c2_of_shortest

"$4" --rows=8 --vocabulary=24 --rounds=1 --json="$figures" --ranks=1,2,3
for sent in '"t1_floats_per_row": 0' '"t2_floats_per_row": 3' '"t3_floats_per_row": 6'; do
  grep -q "$sent" "$figures"
done

"$5" --stages=2 --micro_batches=4 --pass_ms=1 --rounds=1 --json="$figures"
for schedule in gpipe 1f1b interleaved:2 zb-h1 zb-v; do has "${schedule}_of_simulated"; done
