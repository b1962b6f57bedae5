#!/bin/bash
# launchers_test.sh GRAPH NVCC LABEL...
#
# Launchers outside of kernels/, whose own test is in //tests/kernels/vendoring: tools/vendor takes
# each under other names, nvcc compiles it with the flags of PROVENANCE and nothing but its folder
# and Abseil, and refuses it with --use_fast_math.
set -u -o pipefail
export LC_ALL=C
graph=$1 nvcc=$2 work=$TEST_TMPDIR
shift 2

fail() {
  printf 'FAILED: %s\n' "$*" >&2
  exit 1
}

compiled=0
for label in "$@"; do
  name=${label##*:}
  folder=$work/$name
  tools/vendor "$label" --graph "$graph" --out "$folder" --prefix third_party/bk \
    --namespace acme::bk >"$work/log" || fail "$label: tools/vendor: $(cat "$work/log")"
  read -ra flags < <(sed -n 's/^cuda flags: //p' "$folder/PROVENANCE")
  mapfile -t sources < <(find "$folder" -name '*.cu')
  [ ${#sources[@]} -eq 0 ] || [ ${#flags[@]} -gt 0 ] || fail "$label: PROVENANCE has no flags for nvcc"
  for source in "${sources[@]}"; do
    # Without optimisation: it takes less than half of the time.
    command=("$nvcc" "${flags[@]}" -std=c++20 -gencode arch=compute_90,code=compute_90 -Xcicc -O0
      -I"$folder" -c "$source" -o "$work/object")
    "${command[@]}" -Werror all-warnings >"$work/log" 2>&1 ||
      fail "$label: ${source##*/} does not compile: $(cat "$work/log")"
    "${command[@]}" --use_fast_math >"$work/log" 2>&1 &&
      fail "$label: ${source##*/} compiles with --use_fast_math"
    grep -q compile_without_use_fast_math "$work/log" ||
      fail "$label: no reason against --use_fast_math: $(cat "$work/log")"
    compiled=$((compiled + 1))
  done
  echo "$label: ${#sources[@]} compiled"
done
[ $compiled -ge 9 ] || fail "only $compiled files were compiled"
