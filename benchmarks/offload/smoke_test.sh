#!/bin/bash
# smoke_test.sh FILE_STORE UPDATE LINK SHARE: they have their figures, of little data, and leave nothing.
set -eu -o pipefail
figures=$TEST_TMPDIR/figures.json
mkdir "$TEST_TMPDIR/disk"
for direct in true false; do
  "$1" --folder="$TEST_TMPDIR/disk" --chunk_bytes=98304 --chunks=3 --block_bytes=16384 --rounds=2 --direct=$direct \
    --json="$figures" | tee "$TEST_TMPDIR/table"
  grep -q '"threads_of_plain"' "$figures"
  grep -q '^plain blocks' "$TEST_TMPDIR/table"
  [ -z "$(ls "$TEST_TMPDIR/disk")" ]
done
"$2" --folder="$TEST_TMPDIR/disk" --elements=65536 --chunk_elements=4096 --rounds=2 --json="$figures" |
  tee "$TEST_TMPDIR/table"
grep -q '"file_of_longest"' "$figures"
grep -q '^state in a file' "$TEST_TMPDIR/table"
[ -z "$(ls "$TEST_TMPDIR/disk")" ]
"$3" --elements=65536 --rounds=2 --json="$figures" | tee "$TEST_TMPDIR/table"
grep -q '"all_alike_late_of_longest"' "$figures"
grep -q '"host_waits": 0' "$figures"
"$4" --elements=65536 --passes=0.001 --rounds=1 --folder="$TEST_TMPDIR/disk" | tee "$TEST_TMPDIR/table"
[ "$(grep -c '^[01]\.[0-9]* ' "$TEST_TMPDIR/table")" = 9 ]
grep -q '^file ' "$TEST_TMPDIR/table"
