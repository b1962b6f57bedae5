#!/bin/bash
# memory_model_command_test.sh BINARY: the ZeRO paper's figures, bytes by purpose, and errors that
# name the flag.
set -eu -o pipefail
"$1" --params=7.5B --ranks=64 | tee "$TEST_TMPDIR/out"
grep -Eq '^ +64 +120.00 +31.41 +16.64 +1.88$' "$TEST_TMPDIR/out"
# Stage 1 with 4 GB of fp32 weights on 4 ranks: 4 + 4 bytes whole, a quarter of 4 for the momentum.
"$1" --params=1e9 --ranks=4 --dtype=fp32 --optimizer=sgd | tee "$TEST_TMPDIR/out"
grep -Eq '^ +4 +1 +4.000 +4.000 +1.000 ' "$TEST_TMPDIR/out"
# 12 GB of state and 2 of weights in two slots; 12 and, in two passes, 4 read, 12 and 2 written.
"$1" --params=1e9 --ranks=1 --offload=all --offload_to=file | tee "$TEST_TMPDIR/out"
grep -Eq '^ +1 +3 +[0-9.]+ +[0-9.]+ +28.00[0-9] +2.000 +4.000 +16.000 +14.000$' "$TEST_TMPDIR/out"
# In stages 1 to 3.
"$1" --params=1e9 --ranks=4 --offload=optimizer | tee "$TEST_TMPDIR/out"
[ "$(grep -cE '^ +4 +[1-3] .* 0.000 +0.500 +0.500 +0.000 +0.000$' "$TEST_TMPDIR/out")" = 3 ]
# Groups of 8 ranks have what 8 ranks have, whatever their number; more than there are, all.
"$1" --params=1e9 --ranks=8,64 --shard_ranks=8 | tee "$TEST_TMPDIR/out"
[ "$(grep -cE '^ +(8|64) +3 .* 2.[01][0-9]+$' "$TEST_TMPDIR/out")" = 2 ]
"$1" --params=1e9 --ranks=4 --shard_ranks=8 | grep -Eq '^ +4 +3 .* 4.[01][0-9]+$'
# 1-bit Adam in stage 2 with 1e9 parameters on 4 ranks: a quarter of 12 GB of state, 4 of first
# moments, 4 of own errors and 1 of those of sums, and two slices of 1 to save them in.
"$1" --params=1e9 --ranks=4 --optimizer=one_bit_adam | tee "$TEST_TMPDIR/out"
grep -Eq '^ +4 +2 +[0-9.]+ +[0-9.]+ +14.000 ' "$TEST_TMPDIR/out"
# Of one group stage 3 has no memory for what is exchanged.
[ "$(grep -cE '^ +4 +3 .* ' "$TEST_TMPDIR/out")" = 0 ]
# Two groups of two: half of 12 GB, no more first moments, errors of a half and of a quarter, and
# two slices of a half. In stage 3, too.
"$1" --params=1e9 --ranks=4 --shard_ranks=2 --optimizer=one_bit_adam | tee "$TEST_TMPDIR/out"
[ "$(grep -cE '^ +4 +[1-3] +[0-9.]+ +[0-9.]+ +13.000 ' "$TEST_TMPDIR/out")" = 3 ]
"$1" --params=1e9 --ranks=4 --gradient_compression=top_k | tee "$TEST_TMPDIR/out"
grep -Eq '^ +4 +1 +[0-9.]+ +[0-9.]+ +9.000 ' "$TEST_TMPDIR/out"
expect_refused=$("$1" --params=1e9 --ranks=8 --shard_ranks=3 2>&1 || true)
[[ $expect_refused == *'--shard_ranks is 3, which does not divide 8 ranks'* ]]
diff <("$1" --params=1.3B --dtype=bf16) <("$1" --params=1.3e9 --dtype=bfloat16)
for flag in --offload=some --offload_to=tape --params=0 --params=7GB --ranks=0 --ranks=x --units=0 --dtype=int8 --optimizer=tiger --gradient_compression=zip --micro_batches=0 --live_units=0; do
  if "$1" "$flag" 2>"$TEST_TMPDIR/error" >/dev/null; then
    echo "$flag is accepted"
    exit 1
  fi
  name=${flag#--}
  grep -q "${name%=*}" "$TEST_TMPDIR/error"
done
# Choices are listed, and a word that is no flag is named.
expect() {
  local expected=$1
  shift
  "$program" "$@" 2>"$TEST_TMPDIR/error" >/dev/null && exit 1
  grep -Fq -- "$expected" "$TEST_TMPDIR/error"
}
program=$1
expect '--dtype is "int8"; it must be fp32, fp16 or bf16. --dtype:' --dtype=int8
expect 'it must be adafactor, adam, adam8, lamb, lion, muon, sgd, one_bit_adam, one_bit_lamb or zero_one_adam' --optimizer=tiger
expect 'it must be none, one_bit, power_sgd or top_k' --gradient_compression=zip
expect 'it must be none, optimizer or all' --offload=some
expect 'it must be host or file' --offload_to=tape
expect '"stray" is no flag; see --help' stray
