#!/bin/bash
# plan_command_test.sh BINARY: the best ten with their counts, a picture, a machine of the user's,
# and errors that name the flag.
set -u
plan=$PWD/$1
status=0
wrong() {
  printf '%s\n' "$*"
  status=1
}
out=$TEST_TMPDIR/out

"$plan" --params=175B --ranks=1024 --svg="$TEST_TMPDIR/frontier.svg" >"$out" || wrong "1024 ranks fail"
for text in '96 layers of width 12288' '^286 grids, of which are left out$' ' do not fit in memory$' \
  ' are left$' '^  1 +[0-9]+ ' '^ 10 +[0-9]+ ' ' weights gradients +state buffers activations$'; do
  grep -Eq "$text" "$out" || wrong "no line '$text' in: $(cat "$out")"
done
grep -q '</svg>' "$TEST_TMPDIR/frontier.svg" || wrong "no picture"

# Fixed parts are kept.
"$plan" --model=gpt-1.7b --ranks=8 --batch=64 --tensor=2 --pipeline=2 --schedule=zb-h1 --stage=1 --recomputation=full --micro_batch=4 --top=1 >"$out" ||
  wrong "a fixed grid fails"
grep -Eq '^  1 +2 +1 +2 +2 zb-h1 +1 2 +full +4 ' "$out" || wrong "not what was fixed: $(cat "$out")"
"$plan" --model=gpt-1.7b --ranks=16 --batch=64 --tensor=1 --pipeline=1 --context_parallel=1 --stage=3 --shard_ranks=4 --replica_period=20 --replicas=2 --narrow_rounds --top=1 >"$out" ||
  wrong "replicas of groups fail"
grep -Eq ' MFU  replicas  round$' "$out" || wrong "no column of replicas: $(cat "$out")"
grep -Eq '^  1 +1 +1 +16 +1 1f1b +3 4 .*% +2 +[0-9.]+$' "$out" || wrong "not those replicas: $(cat "$out")"

# A machine of the user's, in whose folder the command stands.
mkdir -p "$TEST_TMPDIR/from"
cat >"$TEST_TMPDIR/from/machine.json" <<'JSON'
{"inside": {"latency_us": 1, "gigabytes_per_s": 1}, "between": {"latency_us": 1, "gigabytes_per_s": 1}}
JSON
BUILD_WORKING_DIRECTORY=$TEST_TMPDIR/from "$plan" --model=gpt-1.7b --ranks=8 --topology=machine.json \
  --peak_teraflops=1 --memory_gb=100 --memory_gigabytes_per_s=10 --ranks_per_node=4 >/dev/null ||
  wrong "a machine of the user's fails"

# refuses TEXT FLAG...
refuses() {
  local expected=$1 said
  shift
  said=$("$plan" "$@" 2>&1 >/dev/null) && wrong "$* is accepted"
  [[ $said == "$expected"* ]] || wrong "$*: expected '$expected', got '$said'"
}
refuses 'INVALID_ARGUMENT: the number of parameters is 0; it must be 1e7 to 1e14' --params=0
refuses 'NOT_FOUND: there is no model "gpt-5"; there are gpt-1.2b, ' --model=gpt-5
refuses 'NOT_FOUND: there is no machine "abacus"; there are dgx_a100, hgx_h100, dgx2h_v100' --machine=abacus
refuses 'INVALID_ARGUMENT: the number of ranks is 0; it must be 1 to 32768' --ranks=0
refuses 'INVALID_ARGUMENT: the batch is 0; it must be 1 to 1048576' --batch=0
refuses 'INVALID_ARGUMENT: the tensor extent 3 does not divide 8 ranks' --ranks=8 --tensor=3
refuses 'INVALID_ARGUMENT: "2f2b" is none of gpipe, 1f1b, ' --schedule=2f2b
refuses 'INVALID_ARGUMENT: "some" is none of none, selective and full' --recomputation=some
refuses 'INVALID_ARGUMENT: "star" is neither ring nor ulysses' --context_method=star
refuses 'INVALID_ARGUMENT: the ZeRO stage is 4; it must be 0 to 3' --stage=4
refuses 'INVALID_ARGUMENT: 3 replicas do not divide 8 ranks' --ranks=8 --replica_period=5 --replicas=3
refuses 'INVALID_ARGUMENT: 2 replicas without the steps between two of their rounds' --ranks=8 --replicas=2
refuses 'INVALID_ARGUMENT: the period of replicas is -1 steps; it must be 0 or more' --replica_period=-1
refuses 'INVALID_ARGUMENT: the ranks that share a state are 9; they must be 0 to 8' --ranks=8 --shard_ranks=9
refuses "INVALID_ARGUMENT: the model's width 12288 is no multiple of its 7 heads" --heads=7
refuses "INVALID_ARGUMENT: the device's memory in bytes is -1e+09; it must be more than 0" --memory_gb=-1
refuses 'INVALID_ARGUMENT: --top is 0; it must be at least 1' --top=0
refuses 'NOT_FOUND: cannot open /nowhere.json: No such file or directory' --topology=/nowhere.json
refuses 'NOT_FOUND: nothing fits on 8 ranks: of 20 grids' --ranks=8

exit $status
