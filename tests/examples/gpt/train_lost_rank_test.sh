#!/bin/bash
# train_lost_rank_test.sh TRAIN ROUNDS MOMENT...: a rank is killed, or stopped, in so many rounds of
# each moment; all others end in time and name it. Moments are start-up, training and end, and three
# trainings whose ranks share something two by two: grid, the model's matrices, pipeline, its layers,
# and groups, ZeRO's state.
. tests/examples/gpt/train_testing.sh
rounds=$2
shift 2
steps=600
timeout=2          # of --timeout, in seconds
join_limit=30      # InitOptions::connect_timeout
# A rank that hangs is asked where it hangs for 1 s; saying good-bye to it takes 0.5 s, and rank 0's
# store waits 1 s for it. The rest is for a busy machine.
slack=6
RANDOM=1           # the same moments each time, as far as machines are alike
longest=0

milliseconds() { echo $((${EPOCHREALTIME/./} / 1000)); }
sleep_up_to() { sleep "$(printf '0.%03d' $((RANDOM % $1)))"; }

# await_end PROCESS MILLISECONDS: whether it ends before.
await_end() {
  while kill -0 "$1" 2>/dev/null; do
    [ "$(milliseconds)" -lt "$2" ] || return 1
    sleep 0.02
  done
}

# culprit: how errors name the victim, by its number in the group that has lost it.
culprit() {
  local says=': .*rank'
  if [ $moment = grid ] || [ $moment = pipeline ] || [ $moment = groups ]; then
    # Neighbours are a tensor group, or replicas; ranks 2 from each other replicas, or a pipeline.
    # Of ranks that share a state, or have the same slices, it is the same.
    local near=$((victim / 2 * 2)) far=$((victim % 2))
    says+=" $victim|group of ranks $near(,| and) $((near + 1))\\>.*: rank $((victim % 2))"
    says+="|group of ranks $far(,| and) $((far + 2))\\>.*: rank $((victim / 2))"
  else
    says+=" $victim"
  fi
  echo "($says) (is|sent|took|does|has|did|joined)|store of rank $victim"
}

# lose SIGNAL MOMENT
lose() {
  local signal=$1 moment=$2 ranks=3 grid=() processes=() rank limit=$timeout
  [ "$moment" != grid ] || ranks=4 grid=(--tensor=2 --sequence_parallel)
  [ "$moment" != pipeline ] || ranks=4 grid=(--pipeline=2 --schedule=zb-h1)
  [ "$moment" != groups ] || ranks=4 grid=(--shard_ranks=2 --stage=3)
  local victim=$((RANDOM % ranks))
  rm -f "$files"/out.* "$files"/error.*
  MASTER_PORT=$(free_port)
  export MASTER_PORT
  for ((rank = 0; rank < ranks; rank++)); do
    RANK=$rank WORLD_SIZE=$ranks "$train" "${tiny[@]}" "${grid[@]}" --steps=$steps --timeout=${timeout}s \
      >"$files/out.$rank" 2>"$files/error.$rank" &
    processes+=($!)
  done
  case $moment in
    start-up)
      sleep_up_to 60
      limit=$join_limit
      ;;
    training | grid | pipeline | groups)
      wait_for_line "$files/out.0" '^step ' "${processes[0]}"
      sleep_up_to 250
      ;;
    end)
      wait_for_line "$files/out.0" "^held out after $((steps / 5 * 4)) " "${processes[0]}"
      sleep_up_to 250
      ;;
  esac
  local began
  began=$(milliseconds)
  disown "${processes[victim]}"  # or the shell reports that it was killed
  kill "-$signal" "${processes[victim]}" 2>/dev/null
  for ((rank = 0; rank < ranks; rank++)); do
    [ $rank != $victim ] || continue
    local where="rank $rank, where rank $victim had SIG$signal in round $round of $moment"
    await_end "${processes[rank]}" $((began + 1000 * (limit + slack))) || fail "it hangs: $where"
    wait "${processes[rank]}"
    if [ $? = 0 ]; then
      # All was done before.
      expect_line "$files/out.0" "Report: $steps of $steps steps .*"
      well=$((well + 1))
      continue
    fi
    grep -qE "^train: .*$(culprit)" "$files/error.$rank" ||
      fail "it does not name it: $where: $(cat "$files/error.$rank")"
    named=$((named + 1))
  done
  local took=$(($(milliseconds) - began))
  [ $took -le $longest ] || longest=$took
  kill -KILL "${processes[victim]}" 2>/dev/null
}

for moment in "$@"; do
  for signal in KILL STOP; do
    named=0 well=0 longest=0
    for ((round = 0; round < rounds; round++)); do lose $signal "$moment"; done
    echo "$rounds times SIG$signal at $moment: $named ranks named the lost one, $well had ended" \
      "before; the last one after at most $longest ms"
  done
done
