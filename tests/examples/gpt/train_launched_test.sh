#!/bin/bash
# train_launched_test.sh TRAIN LAUNCH: brigade_launch starts a training again when a rank is killed,
# or a host is lost: it goes on from the last checkpoint, with the same ranks as if nothing had been.
. tests/examples/gpt/train_testing.sh
launch=$PWD/$2
root=$files/checkpoints
# Steps of some 20 ms, so that kills fall between them.
echo '{"train_batch_size": 64, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2},
       "optimizer": {"type": "Adam", "params": {"lr": 0.003}}}' >"$files/config.json"
job=("${small[@]}" --evaluate_every=0 --config="$files/config.json" --steps=200)
saved=(--save="$root" --save_every=10 --resume --metrics="$files/metrics")
losses='select(.loss) | [.step, .loss, .grad_norm]'

# The ranks, and not the launcher, whose words are the same.
ranks() {
  local process
  for process in $(pgrep -f -- "--save=$root"); do
    [ "$(readlink "/proc/$process/exe")" != "$(readlink -f "$train")" ] || echo "$process"
  done
}
# wait_for WHAT COMMAND...: until the command succeeds, while the launcher runs.
wait_for() {
  until "${@:2}"; do
    kill -0 $process 2>/dev/null || fail "it ended before $1: $(cat "$files/out" "$files/error")"
    sleep 0.02
  done
}
# has_step N: whether a step of at least N is in the metrics.
has_step() {
  local step
  step=$(tail -n 1 "$files/metrics" 2>/dev/null | jq '.step // 0' 2>/dev/null)
  [ "${step:-0}" -ge "$1" ]
}
# says N WORDS: whether these have been said so often.
says() { [ "$(grep -c "$2" "$files/error")" -ge "$1" ]; }
has_ranks() { mapfile -t all < <(ranks) && [ ${#all[@]} -gt 0 ]; }

"$launch" --nproc_per_node=2 "$train" "${job[@]}" --metrics="$files/whole" >"$files/out" 2>&1 ||
  fail "$(cat "$files/out")"

# Five kills, of either rank.
"$launch" --nproc_per_node=2 --max_restarts=5 "$train" "${job[@]}" "${saved[@]}" \
  >"$files/out" 2>"$files/error" &
process=$!
for kill in 1 2 3 4 5; do
  wait_for "start $kill" says $((kill - 1)) 'starting 2 ranks'
  wait_for "step $((kill * 25))" has_step $((kill * 25))
  wait_for 'ranks' has_ranks
  kill -KILL "${all[kill % ${#all[@]}]}"
done
wait $process || fail "it ended with $?: $(cat "$files/error")"
[ "$(grep -c 'was ended by SIGKILL.*; restart' "$files/error")" -eq 5 ] || fail "$(cat "$files/error")"
cmp <(jq -c "$losses" "$files/whole") <(jq -c "$losses" "$files/metrics") ||
  fail 'other losses than without kills'
echo 'five kills: the same losses'

# Two hosts, of which one is away while the file is there. Its agent is killed: training goes on with
# the ranks of the other one, and after the next failure with all.
rm -r "$root" "$files/metrics"
cat >"$files/ask_host" <<END
#!/bin/sh
[ \$1 = a ] || [ ! -e '$files/away' ] || exit 255
exec sh -c "\$2"
END
chmod +x "$files/ask_host"
"$launch" --hosts=a:0@b:0 --nnodes=1:2 --ssh="$files/ask_host" --max_restarts=2 --master_addr=127.0.0.1 \
  "$train" "${job[@]}" "${saved[@]}" >"$files/out" 2>"$files/error" &
process=$!
wait_for 'step 60' has_step 60
touch "$files/away"
# The agents of b: a process and its parent.
for each in $(ranks); do
  grep -qz '^GROUP_RANK=1$' "/proc/$each/environ" || continue
  kill -KILL "$(ps -o ppid= -p "$each")"
done
wait_for 'a start on one host' says 1 'starting 1 ranks on 1 host'
rm "$files/away"
wait_for 'step 120' has_step 120
wait_for 'ranks' has_ranks
kill -KILL "${all[0]}"
wait $process || fail "it ended with $?: $(cat "$files/error")"
grep -q 'starting 2 ranks on 2 hosts' "$files/error" || fail "$(cat "$files/error")"
last() { jq -s 'map(select(.loss)) | .[-20:] | map(.loss) | add / length' "$1"; }
jq -n --argjson a "$(last "$files/whole")" --argjson b "$(last "$files/metrics")" \
  'if $b > 0.9 * $a and $b < 1.1 * $a then empty else error("\($b) for \($a)") end' || fail 'another loss'
[ "$(jq -s 'map(select(.loss)) | .[-1].step' "$files/metrics")" -eq 200 ] || fail 'not all steps'
echo 'a host that was lost and came back'
