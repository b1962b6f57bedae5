#!/bin/bash
# smoke_test.sh BINARY: every stage has its line and its figures.
set -eu -o pipefail
"$1" --ranks=3 --units=3 --unit_elements=12288 --rounds=1 --json="$TEST_TMPDIR/figures.json"
for stage in 0 1 2 3; do grep -q "stage_${stage}_of_sum" "$TEST_TMPDIR/figures.json"; done
grep -q overlap_stage_2 "$TEST_TMPDIR/figures.json"
