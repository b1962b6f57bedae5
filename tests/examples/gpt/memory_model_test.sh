#!/bin/bash
# memory_model_test.sh TRAIN MEMORY_MODEL: bytes of activations by hand, what the trainer reports
# for each policy, and errors that name the flag.
. tests/examples/gpt/train_testing.sh
model=$PWD/$2

"$model" "${tiny[@]}" --precision=fp32 >out || fail 'the model fails'
# 64 rows of 16 floats, 4096 bytes. The embedding has 1 of them; the block 16, 4 statistics of 256
# bytes, and 2 of its heads; the head 1, 2 statistics, 65536 bytes of logits, and the gradients of
# its norm and of the residual stream.
bytes=$((4096 + 16 * 4096 + 6 * 256 + 4096 + 2 * 256 + 65536 + 2 * 4096))
expect_line out "none +$bytes +0.150 +100.00 % +100.00 %"
# The curve begins there, and ends where there is least; the table of stages has both.
expect_line out "budget +[0-9]+ +[0-9.]+ +[0-9.]+ % +100.00 %"
expect_line out 'policy +stage 0 +stage 1 +stage 2 +stage 3'
expect_line out 'least budget( +[0-9.]+){4}'

# The bytes and the operations that the trainer counts.
for policy in block selective segments:2; do
  for precision in fp32 bf16; do
    "$model" "${small[@]}" --layers=4 --precision=$precision >out || fail 'the model fails'
    wanted=$(awk -v policy=$policy '$5 == "%" && $1 == "none" { all = $3 }
      $5 == "%" && $1 == policy { printf "%s MB of activations instead of %s MB", $3, all }' out)
    [ -n "$wanted" ] || fail "no row of $policy in $(cat out)"
    "$train" "${small[@]}" --layers=4 --steps=1 --evaluate_every=0 --precision=$precision \
      --recompute=$policy >report || fail "training fails with $policy"
    grep -qF "a pass has $wanted" report || fail "no \"$wanted\" in $(cat report)"
  done
done

# What a run has of parameters, gradients and optimizer state, in the first rank's line.
# same_as_the_run STAGE OPTIMIZER TYPE RANKS ARGUMENT...: of both, with this type in the config.
same_as_the_run() {
  local stage=$1 optimizer=$2 type=$3 ranks=$4
  shift 4
  "$model" "${small[@]}" --precision=bf16 --ranks="$ranks" --optimizer="$optimizer" "$@" >out ||
    fail 'the model fails'
  wanted=$(awk -v stage="$stage" '/by purpose/ { here = 1 }
    here && $1 == "stage" && $2 == stage { print $3, $4, $5 }' out)
  [ -n "$wanted" ] || fail "no row of stage $stage in $(cat out)"
  cat >config <<END
{"train_batch_size": $((2 * ranks)), "bf16": {"enabled": true},
 "zero_optimization": {"stage": $stage}, "optimizer": {"type": "$type"$params}}
END
  "$train" "${small[@]}" --config=config --steps=1 --evaluate_every=0 --ranks="$ranks" "$@" \
    >report || fail "training fails with $type $*"
  run=$(awk '/^Memory at its peak/ { getline; for (i = 1; i <= NF; ++i) name[i] = $i; here = 1; next }
    here && $1 == "0" { print $2, $3, $4; exit }' report)
  [ "$run" = "$wanted" ] || fail "$type, stage $stage, $*: a run has $run, the model says $wanted"
}
params=
same_as_the_run 1 lamb Lamb 2
same_as_the_run 3 lion Lion 2
same_as_the_run 2 one_bit_adam OneBitAdam 2
same_as_the_run 1 one_bit_lamb OneBitLamb 2
same_as_the_run 0 zero_one_adam ZeroOneAdam 2
same_as_the_run 3 one_bit_adam OneBitAdam 4 --shard_ranks=2
same_as_the_run 1 adam AdamW 4 --shard_ranks=2 --gradient_compression=power_sgd
same_as_the_run 2 adam AdamW 4 --replicas=2 --replica_fragments=2
same_as_the_run 1 adam AdamW 4 --replicas=2 --gradient_compression=one_bit
same_as_the_run 3 adam AdamW 4 --replicas=2 --shard_ranks=1
params=', "params": {"local_step_clipper": 1}'
same_as_the_run 1 zero_one_adam ZeroOneAdam 4 --replicas=2

# refuses TEXT ARGUMENT...
refuses() {
  local wanted="memory_model: $1"
  shift
  "$model" "$@" >out 2>error && fail "$* is accepted"
  [ "$(cat error)" = "$wanted" ] || fail "$* says \"$(cat error)\" instead of \"$wanted\""
}
"$model" --precision=fp8 >out 2>error && fail "--precision=fp8 is accepted"
grep -q -e '--precision is "fp8"; it must be fp32, fp16 or bf16' error || fail "it says $(cat error)"
refuses '--batch is 0; it must be 1 to 1048576' --batch=0
refuses '--ranks is 0; it must be at least 1' --ranks=0
refuses '--points is 1; it must be at least 2' --points=1
refuses "the model's number of layers is 0; it must be 1 to 1000" --layers=0
