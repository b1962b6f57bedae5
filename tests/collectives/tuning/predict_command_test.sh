#!/bin/bash
# predict_command_test.sh BINARY: the tables, the lines for programs, the user's own machine, and
# errors that name the flag.
set -u
predict=$PWD/$1
status=0
wrong() {
  printf '%s\n' "$*"
  status=1
}
out=$TEST_TMPDIR/out

"$predict" --ranks=16384 >"$out" || wrong "16384 ranks fail"
for text in '^ *1 KiB .* us\*' '^ *4 GiB ' ' hierarchical +double_tree' 'Predicted bus bandwidth, GB/s' \
  '^double_tree for all_reduce of 4 GiB on 2048 nodes of 8 ranks: [0-9.]+ m?s, before hierarchical with [0-9.]+ m?s$'; do
  grep -Eq "$text" "$out" || wrong "no line '$text' in: $(cat "$out")"
done
[ "$(grep -c ' for all_reduce of ' "$out")" = 12 ] || wrong "there are not 12 choices"
grep -Fxq 'all_reduce between 16384 ranks, nodes: 2048; machine: hgx_h100' "$out" ||
  wrong "no operation, ranks and machine in: $(cat "$out")"
# Between nodes signs pay for an all-reduce of much, and never for little.
grep -Fxq 'Predicted time of an array of bf16 as codes (* the shortest)' "$out" ||
  wrong "no table of codecs in: $(cat "$out")"
"$predict" --ranks=16 >"$out.codecs" || wrong "16 ranks fail"
sed -n '/ as codes /,$p' "$out.codecs" >"$out.table"
grep -Eq '^ +none +one_bit +power_sgd +top_k *$' "$out.table" || wrong "codecs: $(cat "$out.table")"
# One column for each codec, and one shortest time in each row.
time='[0-9.]+ [mu]s[* ]'
for size in '1 KiB' '4 GiB'; do
  grep -Eq "^ *$size +$time +$time +$time +$time\$" "$out.table" || wrong "no row of $size: $(cat "$out.table")"
done
[ "$(grep -c '\*' "$out.table")" = 13 ] && [ "$(tr -cd '*' <"$out.table" | wc -c)" = 13 ] ||
  wrong "not one shortest time a size: $(cat "$out.table")"
grep -Eq "^ *4 GiB +[0-9.]+ ms " "$out.table" || wrong "nothing pays for much: $(cat "$out.table")"
# Factors of more columns, and more elements, take longer; small matrices have no factors.
"$predict" --ranks=16 --low_rank=32 --density=0.5 | sed -n '/ as codes /,$p' >"$out.more"
grep -Eq "^ *1 KiB +$time +$time +- +$time\$" "$out.more" || wrong "factors: $(cat "$out.more")"
grep -Eq "^ *4 GiB +$time +$time +$time +[0-9]{3} ms \$" "$out.more" ||
  wrong "half of the elements pay: $(cat "$out.more")"
"$predict" --ranks=16 --operation=reduce_scatter | grep -Eq '^ +none +int8 +int4 *$' ||
  wrong "no codes in a reduce-scatter"
# From any folder, with the file beside the program.
mkdir -p "$TEST_TMPDIR/bin" "$TEST_TMPDIR/elsewhere"
cp -L "$predict" "$TEST_TMPDIR/bin/predict"
mkdir -p "$TEST_TMPDIR/bin/predict.runfiles/any_name/collectives/tuning/topologies"
cp -L collectives/tuning/topologies/hgx_h100.json \
  "$TEST_TMPDIR/bin/predict.runfiles/any_name/collectives/tuning/topologies/"
(cd "$TEST_TMPDIR/elsewhere" && ../bin/predict --ranks=16384) | diff "$out" - ||
  wrong "from another folder it predicts something else"

# Where an algorithm does not exist there is a dash: 10 ranks are no power of two.
"$predict" --ranks=10 --ranks_per_node=5 | grep -Eq '^ *1 KiB .* - ' || wrong "no dash for 10 ranks"

# A machine whose figures are easy: 1 us and 1 GB/s. A ring of 4: 3 us and 3/4 of 4 GiB.
mkdir -p "$TEST_TMPDIR/from"
cat >"$TEST_TMPDIR/from/machine.json" <<'END'
{"inside": {"latency_us": 1, "gigabytes_per_s": 1}, "between": {"latency_us": 1, "gigabytes_per_s": 1},
 "ranks_of_node": [4]}
END
BUILD_WORKING_DIRECTORY=$TEST_TMPDIR/from "$predict" --topology=machine.json --operation=all_gather --tsv >"$out" ||
  wrong "a machine of the user's fails"
[ "$(head -1 "$out")" = $'bytes\talgorithm\tseconds\tbusbw_gigabytes_per_s' ] || wrong "head: $(head -1 "$out")"
grep -q $'^4294967296\tring\t3.22123\t0.999999$' "$out" || wrong "no ring of 4 in: $(cat "$out")"
grep -q $'\tdouble_tree\t' "$out" && wrong "an all-gather by a tree"

# refuses TEXT FLAG...
refuses() {
  local expected=$1 said
  shift
  said=$("$predict" "$@" 2>&1 >/dev/null) && wrong "$* is accepted"
  [ "$said" = "$expected" ] || wrong "$*: expected '$expected', got '$said'"
}
refuses 'INVALID_ARGUMENT: --ranks is -1; it must be 1 to 1048576' --ranks=-1
refuses 'INVALID_ARGUMENT: --ranks is 1048577; it must be 1 to 1048576' --ranks=1048577
refuses 'INVALID_ARGUMENT: --ranks_per_node is 0; it must be at least 1' --ranks=8 --ranks_per_node=0
refuses 'INVALID_ARGUMENT: --low_rank is 0; it must be 1 to 128' --low_rank=0
refuses 'INVALID_ARGUMENT: --density is 1.5; it must be 0 to 1' --density=1.5
refuses 'INVALID_ARGUMENT: --operation is "broadcast"; it must be all_reduce, reduce_scatter or all_gather' \
  --operation=broadcast
grep -q ' as codes ' <("$predict" --topology="$TEST_TMPDIR/from/machine.json") &&
  wrong "codecs on a machine of whose memory nothing is known"
refuses 'INVALID_ARGUMENT: "all_gather" is no flag; see --help' --ranks=8 all_gather
refuses 'NOT_FOUND: cannot open /nowhere.json: No such file or directory' --topology=/nowhere.json
echo '{}' >"$TEST_TMPDIR/empty.json"
refuses 'INVALID_ARGUMENT: the topology has no "inside"' --topology="$TEST_TMPDIR/empty.json"

exit $status
