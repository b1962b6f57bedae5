#!/bin/bash
# cuda_test.sh GRAPH EXPECTED NVCC RUNTIME [all]
#
# Vendors each kernel's launcher, compiles it with nothing but its folder and CUDA, and runs it on an
# emulated device, under other names and in C++17; one of them also under the project's names, in the
# same program. The results have the bits of the build on the CPU; and so does the caller that the
# kernel's folder shows. With "all" all of them under both names and in both standards, for a real
# architecture too, and built by CMake. --use_fast_math does not compile. The commands of
# kernels/README.md do what it says.
graph=$1 expected=$2 nvcc=$3 runtime=$(cd "$(dirname "$4")" && pwd) all=${5-} part=cuda
. tests/kernels/vendoring/vendoring.sh
top=$("$nvcc" --dryrun -E -x cu /dev/null 2>&1 | sed -n 's/^#\$ TOP=//p')

# launcher VARIANT OPERATION STANDARD: prints the objects of the launcher.
launcher() {
  local variant=$1 operation=$2 standard=$3 folder=$work/$1/$2 flags source
  read -ra flags < <(said "$variant" "$operation" 'cuda flags')
  flags+=("-Xcompiler=$(said "$variant" "$operation" flags | tr ' ' ,),-Wall,-Wextra,-Wno-unused-parameter")
  flags+=(-Werror all-warnings -std=c++"$standard" --no-compress)
  flags+=(-gencode "arch=compute_90,code=compute_90")
  [ -z "$all" ] || flags+=(-gencode "arch=compute_90,code=sm_90")
  find "$folder" -name '*.c[cu]' | while read -r source; do
    object "$variant" "$nvcc" "${flags[@]}" -I"$folder" "$source" || exit 1
  done
}

# links OPERATION OBJECTS FILE...: the objects that the file OBJECTS names, and more files, into
# $work/program. Two folders may have the same source, and so the same object.
links() {
  local objects
  mapfile -t objects < <(sort -u "$2")
  g++ "${@:3}" "${objects[@]}" -L"$runtime" -l:libcudart.so.13 -Wl,-rpath,"$runtime" \
    -o "$work/program" || fail "$1: does not link"
}

# runs OPERATION STANDARD VARIANT...: the variants in one program, and the caller with the last.
runs() {
  local operation=$1 host=(g++ -std=c++"$2" -isystem "$top/include") standard=$2 variant taken
  shift 2
  for variant in "$@"; do
    launcher "$variant" "$operation" "$standard" || exit 1
    program "$variant" "$operation" "${host[@]}" -DON_CUDA -I"$work/$variant/$operation" || exit 1
  done >"$work/objects_to_link" || exit 1
  main "$@" "$operation"
  links "$operation" "$work/objects_to_link" "$work/main.cc"
  compare "$operation" $# "$work/program"

  for taken in $(taken_by "$operation"); do
    launcher "$variant" "$taken" "$standard" || exit 1
  done >"$work/objects_to_link" || exit 1
  caller "$variant" "$operation" "${host[@]}" >>"$work/objects_to_link" || exit 1
  links "$operation" "$work/objects_to_link"
  shows "$operation" "$work/program"
}

for operation in $OPERATIONS; do
  vendor plain "$operation"
  vendor renamed "$operation"
done
for operation in $OPERATIONS; do
  [ "$(said plain "$operation" needs)" = "CUDA Toolkit" ] ||
    fail "$operation needs $(said plain "$operation" needs)"
  if [ "$all" ]; then
    for standard in 17 20; do runs "$operation" $standard plain renamed; done
  elif [ "$operation" = fill ]; then
    runs "$operation" 17 plain renamed
  else
    runs "$operation" 17 renamed
  fi
  echo "$operation: same bits on an emulated device"
done

to=$work/fw/third_party/bk
sed -n '/^```sh$/,/^```$/p' kernels/README.md | grep '^tools/vendor' |
  sed "s|^tools/vendor|& --graph '$graph'|" >"$work/commands.sh"
op=adam to=$to bash -e -u "$work/commands.sh" >"$work/log" 2>&1 ||
  fail "the commands of kernels/README.md: $(cat "$work/log")"
[ "$(wc -l <"$work/commands.sh")" -eq 2 ] && grep -q 'nothing differs today' "$work/log" &&
  [ -f "$to/kernels/adam/adam_cuda.cu" ] && [ -f "$to/kernels/adam/adam_cpu.cc" ] ||
  fail "the commands of kernels/README.md: $(cat "$work/log")"
if [ "$all" ]; then
  { PATH=$(dirname "$nvcc"):$PATH cmake -S "$to" -B "$work/build" && cmake --build "$work/build" -v; } \
    >"$work/log" 2>&1 || fail "CMake with CUDA: $(cat "$work/log")"
  grep -q -e '--fmad=false.*adam_cuda.cu' "$work/log" || fail "without flags: $(cat "$work/log")"
fi

folder=$work/plain/step_control
"$nvcc" -arch=sm_75 -I"$folder" -c "$folder/brigade/kernels/step_control/step_control_cuda.cu" \
  -o "$work/old.o" >"$work/log" 2>&1 && fail "nvcc compiles for GPUs without bf16"
grep -q 'compute capability 8.0 or newer' "$work/log" ||
  fail "no reason against old GPUs: $(cat "$work/log")"
"$nvcc" --use_fast_math -arch=sm_90 -I"$folder" -c "$folder/brigade/kernels/step_control/step_control_cuda.cu" \
  -o "$work/fast.o" >"$work/log" 2>&1 && fail "nvcc takes --use_fast_math"
grep -q compile_without_use_fast_math "$work/log" ||
  fail "no reason against --use_fast_math: $(cat "$work/log")"
