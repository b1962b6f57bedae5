#!/bin/bash
# smoke_test.sh SAVE_LOAD CRC32C PLANNING: each has its figures, of little data.
set -eu -o pipefail
figures=$TEST_TMPDIR/figures.json
for ranks in 1 3; do
  "$1" --folder="$TEST_TMPDIR" --ranks=$ranks --units=3 --unit_elements=12288 --rounds=1 --json="$figures"
  for figure in in_place_of_plain pieces_of_plain sums_of_write stall_seconds load_cold_of_plain \
    load_pieces_warm_of_plain read_warm_summed_of_plain load_cold_of_summed; do
    grep -q "\"$figure\"" "$figures"
  done
  # It leaves nothing.
  [ "$(find "$TEST_TMPDIR" -name 'brigade-checkpoints-*')" = "" ]
done
"$2" --bytes=1000000 --rounds=1 --json="$figures"
for figure in one_stream three_streams memory_gbs; do grep -q "\"$figure\"" "$figures"; done
"$3" --parameters=250 --ranks=5 --rounds=1 --json="$figures" | tee "$TEST_TMPDIR/table"
grep -q '250 parameters, 750 tensors, 5 ranks' "$TEST_TMPDIR/table"
grep -q seconds "$figures"
