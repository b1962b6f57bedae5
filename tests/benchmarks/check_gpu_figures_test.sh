#!/bin/bash
# Figures made up: all bars met, some missed, some not measured.
set -u
file=$TEST_TMPDIR/benchmarks.json
status=0
# expect CODE MISSED FILTER: what check_gpu_figures makes of the figures, changed by jq's FILTER.
expect() {
  local out code
  jq -n "$figures | $3" >"$file" || exit 1
  out=$(benchmarks/check_gpu_figures "$file")
  code=$?
  [ $code -eq "$1" ] && [[ $out == *$'\n'"$2 of "*" bars missed" ]] && return
  printf '%s: expected %s and %s, got %d:\n%s\n' "$3" "$1" "$2" $code "$out"
  status=1
}

read -r -d '' figures <<'END'
  def rows(names): {benchmarks: [names as $name | ("", "tensors:1000/") as $list | (100000000, 1000000000) as $size
    | {name: "\($name)/\($list)elements:\($size)/cuda/manual_time", "GB/s": 4000, of_copy: 0.93, host_waits: 0}]};
  def ratios(workload; ratio): [(100000000, 1000000000) as $size | (1, 1000) as $tensors
    | {workload: workload, elements: $size, tensors: $tensors, ratio: ratio}];
  {gpu: {device: "made up", driver: "1"}, package: {commit: "c0ffee"}, command: "run", items: [],
   "benchmarks/kernels/adam": rows("adam/grad:" + ("fp32/copy:none", "bf16/copy:bf16", "fp32/copy:bf16", "fp16/copy:fp16")),
   "benchmarks/optim/mixed_precision_step": rows("mixed_precision_step"),
   "benchmarks/peers/pytorch_step/adamw": ratios("adamw"; 1.2),
   "benchmarks/peers/pytorch_step/step": ratios("step"; 1.9)}
END
expect 0 0 .
expect 1 1 '."benchmarks/kernels/adam".benchmarks[0].of_copy = 0.89'
expect 1 1 '."benchmarks/kernels/adam".benchmarks[2]."GB/s" = 3500'
expect 1 1 '."benchmarks/optim/mixed_precision_step".benchmarks[1].host_waits = 0.25'
expect 1 1 '."benchmarks/peers/pytorch_step/step"[3].ratio = 1.7'
expect 1 4 'del(."benchmarks/peers/pytorch_step/adamw")'
expect 1 1 '."benchmarks/kernels/adam".benchmarks[0] |= del(.of_copy)'
exit $status
