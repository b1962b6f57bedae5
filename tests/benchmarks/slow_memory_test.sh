#!/bin/bash
# The command runs beside a neighbour that is gone afterwards, on the core that it is given, and its exit status is
# the script's.
set -u
status=0
fail() {
  printf '%s; the script printed:\n%s\n' "$1" "$(cat "$TEST_TMPDIR/out" "$TEST_TMPDIR/err")"
  status=1
}
run() { benchmarks/slow_memory "$@" >"$TEST_TMPDIR/out" 2>"$TEST_TMPDIR/err"; }
cores=$(taskset -cp $$ | sed 's/.*: *//')
core=${cores%%[,-]*} last=${cores##*[,-]}
[ "$core" != "$last" ] || { echo "Skipped: this takes two cores." && exit 0; }

# shellcheck disable=SC2016
run --core="$core" bash -c 'taskset -cp $$; pgrep -P $PPID -x memory_neighbou; exit 7'
[ $? -eq 7 ] || fail "the exit status is not the command's"
grep -q "affinity list: $core$" "$TEST_TMPDIR/out" || fail "the command has not the core $core only"
pid=$(tail -n 1 "$TEST_TMPDIR/out")
[[ $pid =~ ^[0-9]+$ ]] || fail "no neighbour ran meanwhile"
[ ! -e "/proc/$pid" ] || fail "the neighbour has stayed"
grep -Eq 'copied at [0-9]+\.[0-9] GB/s' "$TEST_TMPDIR/err" || fail "the neighbour has not told its speed"

run --core="$core" --neighbour_core="$core" true
[ $? -eq 2 ] && grep -q "core $core is the neighbour's" "$TEST_TMPDIR/err" || fail "a shared core is not refused"
run --core="$core"
[ $? -eq 2 ] && grep -q 'no command' "$TEST_TMPDIR/err" || fail "no command is not refused"
run --threads=0 true
[ $? -eq 1 ] && grep -q -- '--threads is 0' "$TEST_TMPDIR/err" || fail "no thread is not refused"
run --speed=9 true
[ $? -eq 2 ] && grep -q 'unknown flag --speed=9' "$TEST_TMPDIR/err" || fail "an unknown flag is not refused"
exit $status
