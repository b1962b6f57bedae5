#!/bin/bash
# Every script that somebody may start prints help when it is asked to, and does nothing else.
set -u
scripts=()
for file in .ci/run tools/* tools/gpu/* benchmarks/check_* benchmarks/peers/* benchmarks/slow_memory; do
  case $file in
    # Parts of the others.
    tools/figure.sh | *.py) ;;
    *) [ ! -f "$file" ] || [ ! -x "$file" ] || scripts+=("$file") ;;
  esac
done
printf '%s\n' "${scripts[@]}"
[ ${#scripts[@]} -gt 30 ] || exit 1
exec bazel/help_test.sh "${scripts[@]}"
