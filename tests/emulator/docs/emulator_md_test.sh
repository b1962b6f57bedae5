#!/bin/bash
# emulator_md_test.sh NVCC RUNTIME: the program and the commands of docs/emulator.md do what it says.
set -u -o pipefail
export LC_ALL=C
nvcc=$1 runtime=$(cd "$(dirname "$2")" && pwd)
page=$PWD/docs/emulator.md
PATH=$(dirname "$nvcc"):$PATH
cd "$TEST_TMPDIR" || exit 1

fail() {
  printf 'FAILED: %s\n' "$*" >&2
  exit 1
}

# block LANGUAGE TEXT: the page's block of code that holds the text.
block() {
  awk -v begin="\`\`\`$1" -v text="$2" '
    $0 == begin { inside = 1; code = ""; next }
    /^```/ { if (inside && index(code, text)) printf "%s", code; inside = 0 }
    inside { code = code $0 "\n" }' "$page"
}

block cuda Saxpy >saxpy.cu
block sh nvcc | sed "s|^runtime=.*|runtime=$runtime|" >commands.sh
grep -q '^nvcc' commands.sh || fail "no command in $page"
bash -e -u commands.sh >out 2>&1 && fail "the mistake was not found: $(cat out)"
grep -q 'cudaErrorIllegalAddress' out || fail "no error of CUDA: $(cat out)"
grep -q 'out of bounds: read of 4 bytes at byte 4000 of 4000 .* block (3, 0, 0), thread (232, 0, 0)' out ||
  fail "no report, or of another place: $(cat out)"
grep -q 'saxpy.cu:5' out || fail "no line of the source: $(cat out)"
grep -q 'launches .* instructions' out || fail "no table: $(cat out)"

# Without the mistake it ends well.
sed -i 's/i <= n/i < n/' saxpy.cu
bash -e -u commands.sh >out 2>&1 || fail "ended with $?: $(cat out)"
grep -q '^cudaSuccess$' out || fail "no success: $(cat out)"
