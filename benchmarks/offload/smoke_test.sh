#!/bin/bash
# smoke_test.sh FILE_STORE: it has its figures, of little data, and leaves nothing.
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
