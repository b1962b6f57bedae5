#!/bin/bash
# check_running_test.sh TRAIN: what it makes of trainings whose times are made up; and that the trainer does as it is told.
set -u
train=$PWD/$1
made_up=$TEST_TMPDIR/made_up
# Takes a second a step, 1.03 s with the flag SLOW_BY_CLOCK, half a second more of the step that is profiled with PROFILE_SLOWS, and of the processors twice as much without any of the flags
# as with them, or four times as much with the flag SLOW_BY_PROCESSOR.
cat >"$made_up" <<'END'
#!/bin/bash
seconds=1 turns=100000 profiled=0
[ -z "${BRIGADE_VERIFY_MESSAGES:-}" ] || [ "${RANK:-}" != '' ] || exit 4
for word; do
  case $word in
    --metrics=*) metrics=${word#*=} ;;
    --steps=*) steps=${word#*=} ;;
    --profile_step=*) profiled=${PROFILE_SLOWS:+${word#*=}} ;;
    --profile=* | --digest=* | --verify_replicas=*) turns=50000 ;;
  esac
done
case " $* " in
  *" ${SLOW_BY_CLOCK:-none} "*) seconds=1.03 ;;
  *" ${SLOW_BY_PROCESSOR:-none} "*) turns=400000 ;;
  *" ${FAILS:-none} "*) echo 'made up to fail' >&2 && exit 3 ;;
esac
for ((i = 0; i < turns; ++i)); do :; done
[ -z "${metrics:-}" ] || awk -v n="$steps" -v each=$seconds -v slow="${profiled:-0}" \
  'BEGIN { for (i = 1; i <= n; ++i) printf "{\"step\": %d, \"seconds\": %.6f, \"loss\": 1}\n", i, i * each + (slow && i >= slow ? 0.5 : 0) }' >"$metrics"
END
chmod +x "$made_up"
status=0
# expect CODE TEXT ARGUMENTS...: what check_running ends with and prints.
expect() {
  local out code
  out=$(benchmarks/check_running --rounds=1 --pairs=2 "${@:3}" 2>&1)
  code=$?
  [ $code -eq "$1" ] && [[ $out == *$2* ]] && return
  printf '%s: expected %s and %s, got %d:\n%s\n' "${*:3}" "$1" "$2" $code "$out"
  status=1
}

expect 0 $'\n0 of 7 bars missed' --train="$made_up" --rounds=3
SLOW_BY_CLOCK=--digest_every=10 expect 1 $'\n1 of 4 bars missed' --train="$made_up" --only=digests
SLOW_BY_CLOCK=--digest_every=10 expect 1 '1.030 <= 1.020 FAIL' --train="$made_up" --only=digests
SLOW_BY_CLOCK=--verify_replicas=10 expect 1 $'\n1 of 4 bars missed' --train="$made_up" --only=digests
PROFILE_SLOWS=1 expect 1 $'a step that is profiled, of without, by the clock                   1.500 <= 1.010 FAIL' \
  --train="$made_up" --only=profile
# What is compared with does not verify, whatever the shell says.
BRIGADE_VERIFY_MESSAGES=1 expect 0 $'\n0 of 3 bars missed' --train="$made_up" --only=profile
SLOW_BY_PROCESSOR=--profile_step=8 expect 1 $'\n1 of 3 bars missed' --train="$made_up" --only=profile
# Only what has a bar.
SLOW_BY_CLOCK=--digest_every=1 expect 0 $'\n0 of 4 bars missed' --train="$made_up" --only=digests
FAILS=--digest_every=10 expect 1 'made up to fail' --train="$made_up" --only=digests
expect 2 'must be at least 12' --steps=11
expect 2 'there is no trainer /nowhere' --train=/nowhere
# Bars may be missed by steps as short as these, and are not looked at.
small='--layers=1 --width=16 --heads=1 --context=16'
out=$(benchmarks/check_running --train="$train" --rounds=1 --pairs=1 --steps=12 --shape="$small" 2>&1)
[[ $out == *' of 7 bars missed' ]] && [[ $out == *'messages verified '*' of without: '* ]] ||
  { printf 'of the trainer:\n%s\n' "$out" && status=1; }
exit $status
