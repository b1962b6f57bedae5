#!/bin/bash
# Every script that somebody may start prints help when it is asked to, and does nothing else; a flag
# that it does not have it refuses, saying how it is called. What is not executable is a part of others.
set -u
scripts=()
for file in .ci/run tools/* tools/gpu/* benchmarks/check_* benchmarks/peers/* benchmarks/slow_memory \
  examples/*/vendor; do
  [ ! -f "$file" ] || [ ! -x "$file" ] || scripts+=("$file")
done
printf '%s\n' "${scripts[@]}"
[ ${#scripts[@]} -gt 35 ] || exit 1

status=0
for script in "${scripts[@]}"; do
  case $script in
    # The program that reads their flags needs PyTorch, which they install.
    benchmarks/peers/pytorch_* | benchmarks/peers/deepspeed_update) continue ;;
  esac
  "$script" --nonsense >"$TEST_TMPDIR/out" 2>"$TEST_TMPDIR/err" </dev/null
  code=$?
  if [ $code -ne 2 ] || [ -s "$TEST_TMPDIR/out" ] || ! grep -q -E '^(.*: )?usage:|--help says more' "$TEST_TMPDIR/err"; then
    printf '%s --nonsense ended with %d, and printed:\n' "$script" $code
    cat "$TEST_TMPDIR/out" "$TEST_TMPDIR/err"
    status=1
  fi
done
bazel/help_test.sh "${scripts[@]}" || status=1
exit $status
