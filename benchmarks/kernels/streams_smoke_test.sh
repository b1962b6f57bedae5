#!/bin/bash
# streams_smoke_test.sh STREAMS: it has its figures, of a small array; and, as every benchmark, refuses numbers that
# it cannot take, and tells of figures that it cannot write.
set -eu -o pipefail
"$1" --mib=4 --rounds=1 --json="$TEST_TMPDIR/figures" | tee "$TEST_TMPDIR/table"
[ "$(grep -c -E '^ +(1|2|4|8|16|32|64) ' "$TEST_TMPDIR/table")" = 7 ]
grep -q '"read_64_4_KiB"' "$TEST_TMPDIR/figures"
if "$1" --mib=0 2> "$TEST_TMPDIR/error"; then exit 1; fi
grep -q -- '--mib is 0, but it must be at least 1' "$TEST_TMPDIR/error"
if "$1" --rounds=-1 2> "$TEST_TMPDIR/error"; then exit 1; fi
grep -q -- '--rounds is -1, but it must be at least 1' "$TEST_TMPDIR/error"
if "$1" --mib=4 --rounds=1 --json="$TEST_TMPDIR/none/figures" 2> "$TEST_TMPDIR/error"; then exit 1; fi
grep -q 'cannot write .*none/figures' "$TEST_TMPDIR/error"
