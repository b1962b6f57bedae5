#!/bin/bash
# smoke_test.sh ATTENTION PRODUCTS: they have their figures, of small cases.
set -eu -o pipefail
"$1" --cases=fp32:20:2:8,bf16:20:1:16 --rounds=1 | tee "$TEST_TMPDIR/table"
[ "$(grep -c -E '(fp32:20:2:8|bf16:20:1:16) +(forward|backward)' "$TEST_TMPDIR/table")" = 4 ]
printf '%s\n' 'forward bf16:20:2:8' 'plain_backward bf16:20:2:8' 'peak_forward fp32:20:2:8' |
  "$1" --turns --rounds=1 > "$TEST_TMPDIR/seconds"
[ "$(grep -c -E '^0\.[0-9]+$' "$TEST_TMPDIR/seconds")" = 3 ]
if "$1" --cases=fp8:1:1:1 2> "$TEST_TMPDIR/error"; then exit 1; fi
grep -q 'fp8:1:1:1 is not a case' "$TEST_TMPDIR/error"
"$2" --widths=16 --rows=32 --rounds=1 --json="$TEST_TMPDIR/figures" | tee "$TEST_TMPDIR/table"
[ "$(grep -c -E '^16 (qkv|out|up|down) (forward|dx|dweight) ' "$TEST_TMPDIR/table")" = 12 ]
grep -q '"bf16_16"' "$TEST_TMPDIR/figures"
if "$2" --widths=wide 2> "$TEST_TMPDIR/error"; then exit 1; fi
grep -q -e '--widths has "wide"' "$TEST_TMPDIR/error"
