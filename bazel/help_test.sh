#!/bin/bash
# help_test.sh PROGRAM...: --help prints how a program is called in its first lines on the standard
# output, and does nothing else: the programs end with 0, complain about nothing, and make no file.
# "usage: " says how; in the help of a script so does a line that begins with its name, and Google Benchmark's
# main() says "benchmark [--".
# A flag that a program does not have it refuses with words; what scripts do with one, tests/tools sees.
set -u
root=$PWD
empty=$TEST_TMPDIR/empty
mkdir "$empty" && cd "$empty" || exit 1
status=0
for program in "$@"; do
  HOME=$empty "$root/$program" --help >../out 2>../err </dev/null
  code=$?
  call='^(.* )?usage: |^benchmark \[--'
  [ "$(head -c 2 "$root/$program")" != '#!' ] || call+="|^ *([^ ]*/)?$(basename "$program" .sh)(\.sh)?([ :]|\$)"
  if [ $code -ne 0 ] || [ -s ../err ] || ! head -n 6 ../out | grep -Eq "$call" || [ -n "$(ls -A)" ]; then
    printf '%s --help ended with %d, made the files "%s", and printed:\n' "$program" $code "$(ls -A)"
    cat ../out ../err
    status=1
    rm -rf -- "$empty"/* || exit 1
  fi
  [ "$(head -c 2 "$root/$program")" != '#!' ] || continue
  HOME=$empty "$root/$program" --no_such_flag >../out 2>../err </dev/null
  code=$?
  if [ $code -eq 0 ] || [ $code -gt 2 ] || [ ! -s ../err ] || [ -n "$(ls -A)" ]; then
    printf '%s --no_such_flag ended with %d, made the files "%s", and printed:\n' "$program" $code "$(ls -A)"
    cat ../out ../err
    status=1
    rm -rf -- "$empty"/* || exit 1
  fi
done
exit $status
