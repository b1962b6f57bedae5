#!/bin/bash
# train_launched_test.sh TRAIN LAUNCH: brigade_launch starts a training again when a rank is killed,
# or a host is lost: it goes on from the last checkpoint, with the same ranks as if nothing had been.
. tests/examples/gpt/train_testing.sh
launch=$PWD/$2
root=$files/checkpoints
echo '{"train_batch_size": 4, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2},
       "optimizer": {"type": "Adam", "params": {"lr": 0.003}}}' >"$files/config.json"
job=("${tiny[@]}" --evaluate_every=0 --config="$files/config.json" --steps=200)
saved=(--save="$root" --save_every=10 --resume --metrics="$files/metrics")
losses='select(.loss) | [.step, .loss, .grad_norm]'

# The ranks, and not the launcher, whose words are the same.
ranks() {
  local process
  for process in $(pgrep -f -- "--save=$root"); do
    [ "$(readlink "/proc/$process/exe")" != "$(readlink -f "$train")" ] || echo "$process"
  done
}
# wait_for_step N: until a step of at least N is in the metrics.
wait_for_step() {
  until [ "$(tail -n 1 "$files/metrics" 2>/dev/null | jq '.step // 0' 2>/dev/null || echo 0)" -ge "$1" ]; do
    kill -0 $process 2>/dev/null || fail "it ended before step $1: $(cat "$files/out" "$files/error")"
    sleep 0.02
  done
}

"$launch" --nproc_per_node=2 "$train" "${job[@]}" --metrics="$files/whole" >"$files/out" 2>&1 ||
  fail "$(cat "$files/out")"

# Five kills, of either rank.
"$launch" --nproc_per_node=2 --max_restarts=5 "$train" "${job[@]}" "${saved[@]}" \
  >"$files/out" 2>"$files/error" &
process=$!
for kill in 1 2 3 4 5; do
  until [ "$(grep -c 'starting 2 ranks' "$files/error")" -eq $((kill - 1)) ]; do sleep 0.02; done
  wait_for_step $((kill * 25))
  mapfile -t all < <(ranks)
  [ ${#all[@]} -gt 0 ] || fail 'there is no rank'
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
cat >"$files/ssh" <<END
#!/bin/sh
[ \$1 = a ] || [ ! -e '$files/away' ] || exit 255
exec sh -c "\$2"
END
chmod +x "$files/ssh"
"$launch" --hosts=a:0@b:0 --nnodes=1:2 --ssh="$files/ssh" --max_restarts=2 --master_addr=127.0.0.1 \
  "$train" "${job[@]}" "${saved[@]}" >"$files/out" 2>"$files/error" &
process=$!
wait_for_step 60
touch "$files/away"
# The agents of b: a process and its parent.
for each in $(ranks); do
  grep -qz '^GROUP_RANK=1$' "/proc/$each/environ" || continue
  kill -KILL "$(ps -o ppid= -p "$each")"
done
until grep -q 'starting 1 ranks on 1 host' "$files/error"; do
  kill -0 $process || fail "$(cat "$files/error")"
  sleep 0.02
done
rm "$files/away"
wait_for_step 120
until mapfile -t all < <(ranks) && [ ${#all[@]} -gt 0 ]; do sleep 0.02; done
kill -KILL "${all[0]}"
wait $process || fail "it ended with $?: $(cat "$files/error")"
grep -q 'starting 2 ranks on 2 hosts' "$files/error" || fail "$(cat "$files/error")"
last() { jq -s 'map(select(.loss)) | .[-20:] | map(.loss) | add / length' "$1"; }
jq -n --argjson a "$(last "$files/whole")" --argjson b "$(last "$files/metrics")" \
  'if $b > 0.9 * $a and $b < 1.1 * $a then empty else error("\($b) for \($a)") end' || fail 'another loss'
[ "$(jq -s 'map(select(.loss)) | .[-1].step' "$files/metrics")" -eq 200 ] || fail 'not all steps'
echo 'a host that was lost and came back'
