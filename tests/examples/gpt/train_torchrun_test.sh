#!/bin/bash
# train_torchrun_test.sh TRAIN: ranks that torchrun has started, whose agent holds MASTER_PORT.
. tests/examples/gpt/train_testing.sh
need_python_program torchrun

threads_of 2
export BRIGADE_JOB_SECRET
BRIGADE_JOB_SECRET=$(printf '%064d' 7)

# with_torchrun ARGUMENT... : one or several agents' flags, then the program; what it says to
# $files/out and $files/error.
with_torchrun() {
  OMP_NUM_THREADS=1 "$python_programs/torchrun" --no-python "$@" >"$files/out" 2>"$files/error"
}

one_agent_gives_the_losses_of_threads() {
  (
    unset BRIGADE_JOB_SECRET  # ranks of one host make their own
    with_torchrun --standalone --nproc-per-node=2 "$train" "${launched[@]}"
  ) || fail "exit code $?: $(cat "$files/error")"
  expect_losses_of_threads
  ! grep -q 'share no secret' "$files/error" || fail 'ranks of one host did not use its loopback'
}

# agent NODE ARGUMENT...: one of two, in the background, as process $started; each has a rank.
agent() {
  local node=$1
  shift
  OMP_NUM_THREADS=1 "$python_programs/torchrun" --no-python --nnodes=2 --nproc-per-node=1 \
    --rdzv-backend=c10d --rdzv-endpoint="127.0.0.1:$port" --rdzv-id=two --local-addr=127.0.0.1 \
    "$@" >>"$files/out" 2>"$files/error.$node" &
  started=$!
}

# two_agents ARGUMENT...
two_agents() {
  local port node agents=()
  port=$(free_port)
  : >"$files/out"
  for node in 0 1; do agent $node "$@" && agents+=("$started"); done
  for node in 0 1; do
    wait "${agents[$node]}" || fail "exit code $? of agent $node: $(cat "$files/error.$node")"
  done
}

two_agents_give_the_losses_of_threads() {
  two_agents "$train" "${launched[@]}"
  expect_losses_of_threads
}

# killed_once TRAIN ARGUMENT...: in place of the trainer, so that rank 1 dies amid the first
# attempt, which would not end by itself.
cat >"$files/killed_once" <<'END'
#!/bin/bash
[ -e "$files/killed" ] && exec "$@"
if [ "$RANK" = 1 ]; then
  (
    until grep -q '^step ' "$files/out"; do sleep 0.1; done
    echo "$TORCHELASTIC_RESTART_COUNT" >"$files/killed"
    kill -KILL $$
  ) &
fi
exec "$@" --steps=1000000
END
chmod +x "$files/killed_once"
export files

# The agent's store outlives the attempt, with what the rank 0 before has told in it.
a_restart_makes_a_new_group() {
  rm -f "$files/killed"
  with_torchrun --nproc-per-node=2 --max-restarts=1 --master-addr=127.0.0.1 \
    --master-port="$(free_port)" "$files/killed_once" "$train" "${launched[@]}" ||
    fail "exit code $?: $(cat "$files/error")"
  expect_line "$files/killed" 0
  expect_losses_of_threads
}

# Only one of the agents counts the restart.
a_restart_of_two_agents_makes_a_new_group() {
  rm -f "$files/killed"
  two_agents --max-restarts=1 "$files/killed_once" "$train" "${launched[@]}"
  expect_line "$files/killed" 0
  expect_losses_of_threads
}

the_root_cause_is_shown() {
  with_torchrun --standalone --nproc-per-node=2 "$train" "${tiny[@]}" --data=/dev/zero &&
    fail 'exit code 0 although /dev/zero is no text'
  grep -A 9 'Root Cause (first observed failure)' "$files/error" >"$files/cause"
  expect_line "$files/cause" ' *traceback : .*INVALID_ARGUMENT: /dev/zero is a device, not a file.*'
}

one_agent_gives_the_losses_of_threads
two_agents_give_the_losses_of_threads
a_restart_makes_a_new_group
a_restart_of_two_agents_makes_a_new_group
the_root_cause_is_shown
