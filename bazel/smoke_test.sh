#!/bin/bash
# Runs a benchmark binary with its arguments; fails when it fails, reports an error or ran nothing, or
# leaves the library's warning that it is a DEBUG build without a word of what that changes.
set -u
output=$("$@" 2>&1)
status=$?
printf '%s\n' "$output"
if [ $status -ne 0 ]; then
  echo "smoke_test: $1 exited with $status" >&2
  exit 1
fi
# Google Benchmark exits with 0 in both cases.
if grep -q 'ERROR OCCURRED' <<<"$output"; then
  echo "smoke_test: a benchmark reported an error" >&2
  exit 1
fi
if grep -q 'Failed to match any benchmarks' <<<"$output"; then
  echo "smoke_test: the filter matches no benchmark" >&2
  exit 1
fi
if grep -q 'Library was built as DEBUG' <<<"$output" && ! grep -q '^library: .*DEBUG' <<<"$output"; then
  echo "smoke_test: $1 does not say what a DEBUG build of the library changes" >&2
  exit 1
fi
