#!/bin/bash
# smoke_test.sh BINARY...: each table of small sizes has rows for every contestant, and nothing in it is wrong.
set -eu -o pipefail
for binary in "$@"; do
  "$binary" --ranks=3 --max_bytes=4096 --factor=16 --rounds=1 --json="$TEST_TMPDIR/rows.json"
  for contestant in threads/direct threads/ring gloo/ring; do
    grep -q "\"contestant\": \"$contestant\"" "$TEST_TMPDIR/rows.json"
  done
done
