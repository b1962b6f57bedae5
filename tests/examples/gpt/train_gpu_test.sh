#!/bin/bash
# train_gpu_test.sh TRAIN [LIBRARY...]: the trainer on a GPU that four ranks share, in every stage.
# LIBRARY...: what stands in for CUDA's libraries where the GPU is emulated.
. tests/examples/gpt/train_testing.sh
for library in "${@:2}"; do
  LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}:$PWD/$(dirname "$library")
done
export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}
set -e
# A host with a GPU need not have Debian's licences.
for i in $(seq 3000); do printf 'bucket %d of rank %d\n' $((i % 7)) $((i % 5)); done >"$files/text"

for stage in 0 1 2 3; do
  "$train" "${tiny[@]}" --device=cuda --stage=$stage --precision=bf16 --steps=20 \
    --data="$files/text" --metrics="$files/$stage.jsonl" >"$files/report" ||
    fail "stage $stage ended with $?: $(cat "$files/report")"
  expect_line "$files/report" "4 threads on cuda:?0?, ZeRO stage $stage, .*"
  losses "$files/$stage.jsonl" >"$files/$stage.losses"
  cmp "$files/0.losses" "$files/$stage.losses" || fail "stage $stage trains otherwise than stage 0"
done
expect_json "$files/0.jsonl" '[.[] | select(.step != null and .loss != null)] | length >= 20'
