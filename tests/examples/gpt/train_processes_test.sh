#!/bin/bash
# train_processes_test.sh TRAIN: ranks that are processes.
. tests/examples/gpt/train_testing.sh

# mpirun_gives_the_losses_of_threads ARGUMENT...
mpirun_gives_the_losses_of_threads() {
  local job=("${small[@]}" --steps=10 --stage=3 "$@")
  "$train" "${job[@]}" --ranks=4 --metrics="$files/threads" >"$files/report" || fail "exit code $?"
  with_mpirun 4 "$train" "${job[@]}" --metrics="$files/processes" --trace="$files/trace.json" \
    >"$files/report" || fail "exit code $?"
  [ "$(losses "$files/threads")" = "$(losses "$files/processes")" ] || fail 'other losses'
  expect_line "$files/report" 'Report: 10 of 10 steps .*'
  [ "$(grep -cE '^Report:|^Sent in each step, in MB' "$files/report")" = 2 ] ||
    fail "$(cat "$files/report")"
  expect_line "$files/report" '4 processes on cpu( as .*)?, ZeRO stage 3, .*'
  ! grep -q $'[\r\033]' "$files/report" || fail 'control characters although this is no terminal'
  local rank
  for rank in 0 1 2 3; do
    local trace=$files/trace.rank$rank.json
    [ $rank = 0 ] && trace=$files/trace.json
    expect_json "$trace" "[.[0][] | select(.name == \"process_name\") | .args.name] == [\"rank $rank\"]"
    expect_json "$trace" "all(.[0][]; .pid == $rank)"
  done
}

# start RANK ARGUMENT...: in the background, as process $started.
start() {
  rm -f "$files/out.$1"  # lines of the process before are not what is waited for
  RANK=$1 WORLD_SIZE=2 "$train" "${tiny[@]}" --steps=1000000 "${@:2}" \
    >"$files/out.$1" 2>"$files/error.$1" &
  started=$!
}

# a_dead_rank_ends_the_other_one RANK ARGUMENT...: whichever of two is killed. That it is gone is
# what a closed connection says; a deadline has other words.
a_dead_rank_ends_the_other_one() {
  local dead=$1 alive=$((1 - $1)) processes=()
  shift
  MASTER_PORT=$(free_port)
  export MASTER_PORT
  start 0 "$@" && processes+=("$started")
  start 1 "$@" && processes+=("$started")
  wait_for_line "$files/out.0" '^step ' "${processes[0]}"
  kill -KILL "${processes[$dead]}"
  wait "${processes[$alive]}" && fail 'exit code 0 although a rank is dead'
  expect_line "$files/error.$alive" "train: .*rank $dead is gone: .*"
  if [ "$alive" = 0 ]; then expect_line "$files/out.0" 'Report: [0-9]+ of 1000000 steps .*'; fi
}

# Amid steps that read and write files, of which nothing is left.
a_dead_rank_leaves_no_file() {
  mkdir "$files/disk"
  a_dead_rank_ends_the_other_one "$1" --stage=3 --offload=all --offload_to=file \
    --offload_dir="$files/disk"
  rmdir "$files/disk" || fail 'a file is left'
}

mpirun_gives_the_losses_of_threads
mpirun_gives_the_losses_of_threads --tensor=2 --sequence_parallel
mpirun_gives_the_losses_of_threads --replicas=2 --replica_period=4 --replica_fragments=2 --replica_delay=1
mpirun_gives_the_losses_of_threads --tensor=2 --context_parallel=2 --heads=4
mpirun_gives_the_losses_of_threads --pipeline=4 --schedule=zb-h1
a_dead_rank_ends_the_other_one 1
a_dead_rank_ends_the_other_one 0
a_dead_rank_leaves_no_file 1
a_dead_rank_leaves_no_file 0
