#!/bin/bash
# refuse_fast_math_test.sh: cmake/refuse_fast_math.cmake names each flag that changes bits, and takes
# those that do not. A build's own flags go the same way in cmake_test.
set -u
cmake --version >/dev/null 2>&1 || { echo "cmake is not installed: run tools/setup" >&2 && exit 1; }

status=0
# configured LANGUAGE FLAGS
configured() { cmake "-DCMAKE_$1_FLAGS=$2" -P cmake/refuse_fast_math.cmake >"$TEST_TMPDIR/log" 2>&1; }

for flag in -ffast-math -Ofast -funsafe-math-optimizations -ffinite-math-only -fassociative-math \
  -freciprocal-math -fno-signed-zeros -ffp-contract=fast -ffp-model=fast -ffp-model=aggressive; do
  if configured CXX "-g $flag -O2" || ! grep -q -e "compile without $flag" "$TEST_TMPDIR/log"; then
    echo "$flag is not refused: $(cat "$TEST_TMPDIR/log")"
    status=1
  fi
done
for flag in --use_fast_math -use_fast_math -ftz=true --ftz=true -Xcompiler=-ffast-math; do
  if configured CUDA "-lineinfo $flag" || ! grep -q "compile without" "$TEST_TMPDIR/log"; then
    echo "$flag is not refused: $(cat "$TEST_TMPDIR/log")"
    status=1
  fi
done
for flag in -O3 -ffp-contract=off -ffp-model=strict -ffp-model=precise -fno-fast-math -ftz=false; do
  if ! configured CXX "-g $flag"; then
    echo "$flag is refused: $(cat "$TEST_TMPDIR/log")"
    status=1
  fi
done
exit $status
