#!/bin/bash
# train_profile_test.sh TRAIN: a step that is profiled: where it is written, and what is refused.
. tests/examples/gpt/train_testing.sh
cd "$files" || exit 1
number='[0-9.]+'

a_file_has_the_profile_and_the_report_the_utilization() {
  "$train" "${small[@]}" --ranks=2 --steps=6 --profile_step=2 --profile=p.txt --ceilings=c.json \
    >report || fail "exit code $?"
  expect_line p.txt 'Profile of step 2: 2 x cpu, fp16'
  expect_line p.txt "MFU, HFU +$number%, $number%; of a causal model $number%, $number%"
  expect_line p.txt "ceilings of a rank +$number Gflop/s, $number GB/s of memory, $number GB/s to other ranks \(measured\)"
  expect_line p.txt "head( +$number){3} .* (compute|memory|network|host)"
  expect_line p.txt "compute +forward +gemm .* (compute|memory)"
  expect_line p.txt 'gradients +[0-9.]+ MB'
  expect_line p.txt "communication +reduce_scatter( +$number){6} +$number%"
  expect_line report "Step 2: MFU, HFU $number%, $number% of $number Gflop/s a rank \(measured\); limited by .*"
  expect_line report "Model flops utilization of all steps: MFU $number %, HFU $number %, of $number Gflop/s that a rank could make"
  expect_json c.json '.[0] | .device == "cpu" and .dtype == "fp16" and .ranks == 2 and .matmul_tflops > 0'
}

ceilings_are_read_from_the_file_and_a_peak_may_be_given() {
  "$train" "${small[@]}" --ranks=2 --steps=4 --profile_step=2 --ceilings=c.json --peak_tflops=989 \
    >report || fail "exit code $?"
  expect_line report 'Profile of step 2: 2 x cpu, fp16'
  expect_line report "ceilings of a rank +989000.00 Gflop/s, .* \(from c.json, the peak of products as given\)"
  "$train" "${small[@]}" --steps=2 --profile_step=2 --ceilings=c.json >/dev/null 2>error &&
    fail 'ceilings of two ranks are taken for four'
  grep -q '"ranks" is 2; it must be 4 as in this training' error || fail "$(cat error)"
}

a_peak_that_is_not_known_has_no_share() {
  echo '{"memory_gigabytes_per_s": 9}' >memory.json
  "$train" "${tiny[@]}" --steps=4 --profile=p.txt --ceilings=memory.json >report ||
    fail "exit code $?"
  expect_line p.txt 'Profile of step 2: .*'
  expect_line p.txt 'MFU, HFU +-, -; of a causal model -, -'
  expect_line report 'Step 2: MFU, HFU -, - of 0.00 Gflop/s a rank \(from memory.json\); limited by .*'
  expect_line report 'Model flops utilization: not known without the peak of products'
}

processes_have_one_profile() {
  command -v mpirun >/dev/null || { echo 'no mpirun'; return; }
  with_mpirun 2 "$train" "${tiny[@]}" --steps=5 --profile_step=3 --profile=of_two.txt \
    --ceilings=of_two.json >report || fail "exit code $?"
  expect_line of_two.txt 'Profile of step 3: 2 x cpu, .*'
  [ "$(grep -c '^Step 3: MFU, HFU' report)" = 1 ] || fail "$(cat report)"
  # Each collective beside what the machine can do of it.
  local call
  for call in all_gather all_reduce reduce_scatter; do
    expect_line of_two.txt "communication +$call( +$number){6} +$number%"
    expect_json of_two.json ".[0].${call}_gigabytes_per_s > 0"
  done
  [ "$(grep -c '^Profile of' of_two.txt)" = 1 ] || fail "$(cat of_two.txt)"
  expect_json of_two.json '.[0].ranks == 2'
}

a_training_that_goes_on_behind_the_step_has_none() {
  goes_on() {
    "$train" "${tiny[@]}" --steps=8 --save=saved --save_every=4 --keep=0 "$@" \
      --ceilings=memory.json --profile=behind.txt >report || fail "exit code $?"
  }
  goes_on --profile_step=9
  rm -r saved/step-00000008
  goes_on --resume --profile_step=4
  expect_line report 'No step was profiled: step 4 was not made'
  [ ! -e behind.txt ] || fail 'there is a file of no profile'
  rm -r saved/step-00000008
  goes_on --resume --profile_step=5
  expect_line behind.txt 'Profile of step 5: .*'
}

keys_say_the_same() {
  cat >config.json <<'END'
{"train_batch_size": 8, "optimizer": {"type": "AdamW", "params": {"lr": 0.001}},
 "flops_profiler": {"enabled": true, "profile_step": 3, "module_depth": 1, "top_modules": 2,
                    "detailed": false, "output_file": "of_config.txt", "recompute_fwd_factor": 1}}
END
  # Measured ceilings are the most of what this test takes.
  echo '{"matmul_tflops": 0.001, "memory_gigabytes_per_s": 9}' >given.json
  "$train" "${small[@]}" --steps=5 --config="$PWD/config.json" --ceilings=given.json >report ||
    fail "exit code $?"
  # Three steps before it, as in DeepSpeed.
  expect_line of_config.txt 'Profile of step 4: 4 x cpu, fp32'
  expect_line of_config.txt 'depth 1:'
  ! grep -qE 'depth 2:|^Units' of_config.txt || fail 'it is detailed, and deep'
  # All of it again: 4/3.
  awk '/^MFU, HFU/ { mfu = $3 + 0; hfu = $4 + 0  # numbers, without % and commas
    exit !(hfu > 1.3 * mfu && hfu < 1.4 * mfu || mfu < 1) }' of_config.txt ||
    fail "HFU is not 4/3 of MFU: $(grep MFU of_config.txt)"
}

without_the_step_there_is_no_profile() {
  "$train" "${tiny[@]}" --steps=2 --profile_step=3 --profile=none.txt --ceilings=memory.json >report ||
    fail "exit code $?"
  expect_line report 'No step was profiled: step 3 was not made'
  [ ! -e none.txt ] || fail 'there is a file of no profile'
}

what_is_wrong_is_refused() {
  local wanted
  refuses() {
    wanted="train: $1"
    shift
    timeout 60 "$train" "${tiny[@]}" --steps=4 "$@" >out 2>error && fail "$* is taken"
    [ "$(cat error)" = "$wanted" ] || fail "$* says \"$(cat error)\" instead of \"$wanted\""
    [ ! -s out ] || fail "$* says \"$(cat out)\" before the error"
  }
  refuses '--profile_step is 0; it must be at least 1' --profile_step=0
  refuses '--peak_tflops is -1; it must be more than 0, up to 1e9' --peak_tflops=-1 --profile_step=1
  refuses '--ceilings is for a profile: give --profile or --profile_step' --ceilings=c.json
  refuses '--profile and --trace name the same file, ./p.txt' --profile=./p.txt --trace=p.txt
  refuses '--profile and --ceilings name the same file, ./c.json' --profile=./c.json --ceilings=c.json
  refuses '--profile and --digest name the same file, d' --profile=d --digest=./d
  refuses '--ceilings and --trace name the same file, c' --ceilings=c --trace=./c --profile_step=1
  refuses '/dev/full is a device, not a file' --profile=/dev/full
  mkdir -p folder
  refuses "$PWD/folder is a folder, not a file" --profile="$PWD/folder"
  "$train" "${tiny[@]}" --steps=4 --profile=missing/p.txt >out 2>error && fail 'no folder, no error'
  grep -q 'missing/p.txt.*No such file or directory' error || fail "$(cat error)"
}

on_a_full_disk_it_is_printed() {
  # shellcheck disable=SC2016
  on_full_disk 4 sh -c 'head -c 4096 /dev/zero >disk/full; exec "$@"' - "$train" "${tiny[@]}" --steps=6 --profile_step=1 --ceilings="$PWD/memory.json" \
    --profile="$PWD/disk/p.txt" >report 2>error
  local code=$?
  [ $code -ne 77 ] || { echo 'no file system may be mounted'; return; }
  [ $code -eq 0 ] || fail "exit code $code: $(cat error)"
  expect_line error "train: .*disk/p.txt.*: No space left on device; the training goes on"
  [ "$(wc -l <error)" = 1 ] || fail "it says \"$(cat error)\""
  expect_line report 'Profile of step 1: .*'
  expect_line report "compute +forward +gemm .* (compute|memory)"
  expect_line report 'Report: 6 of 6 steps .*'
  [ ! -e of_disk/p.txt ] || fail 'a half profile is left'
}

# Also where no file system may be mounted: by a limit of a KiB a file, of which the report's reader
# has none.
of_a_profile_that_does_not_fit_nothing_is_left() {
  mkdir limited
  mkfifo fifo
  cat fifo >report &
  local reader=$! code=0
  (
    trap '' XFSZ
    ulimit -f 1
    exec "$train" "${tiny[@]}" --steps=6 --profile_step=1 --ceilings="$PWD/memory.json" \
      --profile="$PWD/limited/p.txt" >fifo 2>error
  ) || code=$?
  wait $reader
  [ $code -eq 0 ] || fail "exit code $code: $(cat error)"
  expect_line error "train: .*limited/p.txt.*: File too large; the training goes on"
  [ "$(wc -l <error)" = 1 ] || fail "it says \"$(cat error)\""
  expect_line report 'Profile of step 1: .*'
  expect_line report "compute +forward +gemm .* (compute|memory)"
  expect_line report 'Report: 6 of 6 steps .*'
  [ -z "$(ls limited)" ] || fail "$(ls limited) is left"
  rm -r limited fifo
}

a_file_has_the_profile_and_the_report_the_utilization
ceilings_are_read_from_the_file_and_a_peak_may_be_given
a_peak_that_is_not_known_has_no_share
processes_have_one_profile
a_training_that_goes_on_behind_the_step_has_none
keys_say_the_same
without_the_step_there_is_no_profile
what_is_wrong_is_refused
of_a_profile_that_does_not_fit_nothing_is_left
on_a_full_disk_it_is_printed
