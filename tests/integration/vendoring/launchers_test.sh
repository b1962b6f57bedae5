#!/bin/bash
# launchers_test.sh GRAPH NVCC RUNTIME day|soak LABEL...
#
# Launchers outside of kernels/, whose own test is in //tests/kernels/vendoring: tools/vendor takes
# each under other names, nvcc compiles it with the flags of PROVENANCE and nothing but its folder
# and Abseil, in C++20 and, of collectives/ and optim/, in C++17, and refuses it with
# --use_fast_math. Of a library that is a launcher, a program calls all that its header declares, on
# an emulated device, those of nn/ in soaks; others have theirs for themselves. No .cu file is left
# out.
set -u -o pipefail
export LC_ALL=C
graph=$1 nvcc=$2 runtime=$(cd "$(dirname "$3")" && pwd) turn=$4
# Paths may have blanks.
work="$TEST_TMPDIR/a folder"
shift 4
mkdir -p "$work"
top=$("$nvcc" --dryrun -E -x cu /dev/null 2>&1 | sed -n 's/^#\$ TOP=//p')

fail() {
  printf 'FAILED: %s\n' "$*" >&2
  exit 1
}

# under_names FILE: copies it below $work/programs, under the other names, and sets $copied.
under_names() {
  copied=$work/programs/third_party/bk/$1
  mkdir -p "$(dirname "$copied")"
  sed -e 's|"brigade/|"third_party/bk/|' -e 's/brigade::/acme::bk::/g' "$1" >"$copied"
}
under_names tests/integration/vendoring/programs/program.h

# runs LABEL STANDARD OBJECT...: the program of a library with these objects.
runs() {
  local label=$1 standard=$2 name=${1##*:} copied launcher header=${1#//}
  shift 2
  under_names "tests/integration/vendoring/programs/$name.cc"
  for launcher in $(sed -nE 's/^cudaError_t (Launch\w+)\(.*/\1/p' "${header/://}.h" | sort -u); do
    grep -qE "\b$launcher\(" "$copied" || fail "$label: the program does not call $launcher"
  done
  g++ "-std=c++$standard" -DACME_BK_CUDA=1 -Wall -Wextra -Werror -I"$work/$name" -I"$work/programs" \
    -isystem "$top/include" "$copied" "$@" -L"$runtime" -l:libcudart.so.13 -Wl,-rpath,"$runtime" \
    -o "$work/program" || fail "$label: the program does not compile in C++$standard"
  "$work/program" || fail "$label: the program ended with $?"
}

for label in "$@"; do
  name=${label##*:}
  folder=$work/$name
  tools/vendor "$label" --graph "$graph" --out "$folder" --prefix third_party/bk \
    --namespace acme::bk >"$work/log" || fail "$label: tools/vendor: $(cat "$work/log")"
  read -ra flags < <(sed -n 's/^cuda flags: //p' "$folder/PROVENANCE")
  package=${label#//}
  package=${package%:*}
  mapfile -t sources < <(find "$folder/third_party/bk/$package" -name '*.cu')
  # Of headers alone: another library compiles what they are made of.
  [ ${#sources[@]} -gt 0 ] || continue
  printf '%s\n' "${sources[@]#"$folder/third_party/bk/"}" >>"$work/compiled"
  [ ${#flags[@]} -gt 0 ] || fail "$label: PROVENANCE has no flags for nvcc"
  # Without optimisation: it takes less than half of the time, and calls functions, which the
  # emulator does not know.
  standards=(20) optimised=(-Xcicc -O0)
  if [[ $package =~ ^(collectives|optim) ]]; then
    standards+=(17) optimised=()
  elif [[ $turn == soak && $name == *_cuda ]]; then
    optimised=()
  fi
  for standard in "${standards[@]}"; do
    objects=()
    for source in "${sources[@]}"; do
      objects+=("$work/${source##*/}.o")
      command=("$nvcc" "${flags[@]}" "-std=c++$standard" "${optimised[@]}" --no-compress
        -gencode "arch=compute_90,code=compute_90" -I"$folder" -c "$source"
        -o "$work/${source##*/}.o")
      "${command[@]}" --use_fast_math >"$work/log" 2>&1 &&
        fail "$label: ${source##*/} compiles with --use_fast_math"
      grep -q compile_without_use_fast_math "$work/log" ||
        fail "$label: no reason against --use_fast_math: $(cat "$work/log")"
      "${command[@]}" -Werror all-warnings >"$work/log" 2>&1 ||
        fail "$label: ${source##*/} does not compile in C++$standard: $(cat "$work/log")"
    done
    [ ${#optimised[@]} -gt 0 ] || runs "$label" "$standard" "${objects[@]}"
  done
  echo "$label: in C++ ${standards[*]}"
done
find -L . -name '*.cu' ! -path './kernels/*' -printf '%P\n' | sort >"$work/all"
sort "$work/compiled" | diff "$work/all" - || fail "not each file is compiled once"
