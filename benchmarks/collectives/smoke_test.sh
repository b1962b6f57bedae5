#!/bin/bash
# smoke_test.sh BINARY...: each table of small sizes has rows for every contestant, and nothing in
# it is wrong. MPI may be left out, if it is said why.
set -eu -o pipefail
for binary in "$@"; do
  "$binary" --ranks=4 --max_bytes=4096 --factor=64 --rounds=1 \
    --contestants=threads/halving_doubling,gloo/hierarchical,threads/hierarchical \
    >"$TEST_TMPDIR/table"
  grep -q 'threads  *halving_doubling' "$TEST_TMPDIR/table"
  [ "$(basename "$binary")" != all_reduce ] || grep -q 'gloo  *hierarchical' "$TEST_TMPDIR/table"
  "$binary" --ranks=3 --max_bytes=4096 --factor=16 --rounds=1 --json="$TEST_TMPDIR/rows.json" |
    tee "$TEST_TMPDIR/table"
  for contestant in threads/direct threads/ring gloo/ring; do
    grep -q "\"contestant\": \"$contestant\"" "$TEST_TMPDIR/rows.json"
  done
  "$binary" --ranks=4 --max_bytes=4096 --factor=64 --rounds=1 --dtype=bf16 >"$TEST_TMPDIR/table"
  grep -q 'threads  *direct' "$TEST_TMPDIR/table"
  ! grep -q 'gloo::allreduce\|fp16_wire' "$TEST_TMPDIR/table"
  [ "$(basename "$binary")" = all_reduce ] || continue
  for contestant in threads/fp16_wire gloo/fp16_wire; do
    grep -q "\"contestant\": \"$contestant\"" "$TEST_TMPDIR/rows.json"
  done
  grep MPI_Allreduce "$TEST_TMPDIR/table"
done
