#!/bin/bash
# train_deepspeed_test.sh TRAIN: ranks that DeepSpeed's launcher has started.
. tests/examples/gpt/train_testing.sh
need_python_program deepspeed

threads_of 2

# DeepSpeed needs no accelerator to start processes, but it asks for one.
DS_ACCELERATOR=cpu PATH=$python_programs:$PATH deepspeed --num_gpus=2 \
  --master_port="$(free_port)" --no_python --no_local_rank "$train" "${launched[@]}" \
  >"$files/out" 2>&1 || fail "exit code $?: $(cat "$files/out")"
expect_losses_of_threads
