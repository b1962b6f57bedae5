#!/bin/bash
# flags_test.sh NVCC COMPILER...
#
# What a person who vendors a kernel may compile it with: the CPU's loops, their parameters and their
# examples in C++17 without a warning, by each compiler that is here; and not with flags that would
# change bits, which must be refused by a message that names them.
set -u
nvcc=$1
shift

fail() {
  printf '%s\n' "$*" >&2
  exit 1
}

ln -s "$PWD" "$TEST_TMPDIR/brigade"
include=(-I"$TEST_TMPDIR" -I.)
message=$TEST_TMPDIR/message

compilers=()
for compiler in "$@"; do
  command -v "$compiler" >/dev/null && compilers+=("$compiler")
done
[[ ${#compilers[@]} -gt 0 ]] || echo "none of these compilers is here: $*"

files=(kernels/simd.cc kernels/nontemporal_store.cc kernels/*/*_cpu.cc kernels/*/example_cpu.cc)
[[ ${#files[@]} -ge 16 ]] || fail "only ${#files[@]} files are here"
for compiler in "${compilers[@]}"; do
  "$compiler" -std=c++17 -Wall -Wextra -Werror -pedantic -fsyntax-only "${include[@]}" \
    "${files[@]}" || fail "$compiler: not C++17, or not without warnings"
  echo "$compiler: compiles in C++17"
done

# refuses TEXT COMPILER FLAG...: the message has the text, and not much else.
refuses() {
  local text=$1
  shift
  "$@" >"$message" 2>&1 && fail "$*: compiles, although it must not"
  grep -q "$text" "$message" || fail "$*: does not say '$text': $(cat "$message")"
  [ "$(wc -l <"$message")" -le 20 ] || fail "$*: says more than its reason: $(cat "$message")"
}

for compiler in "${compilers[@]}"; do
  syntax=("$compiler" -fsyntax-only "${include[@]}")
  refuses "compile with -std=c++17 or newer" "${syntax[@]}" kernels/adam/adam_cpu.cc -std=c++14
  for file in kernels/*/*_cpu.cc; do
    # Whole numbers alone, which no such flag changes.
    [[ $file != kernels/digest/* ]] || continue
    refuses "compile without -ffast-math" "${syntax[@]}" "$file" -std=c++17 -ffast-math
  done
done

[[ $nvcc != none ]] || exit 0
for file in kernels/*/*_cuda.cu; do
  # Without optimisation: it takes a third of the time.
  device=("$nvcc" -std=c++17 -arch=sm_90 -cubin -Xcicc -O0 "${include[@]}" "$file"
    -o "$TEST_TMPDIR/kernel")
  # The others are compiled by the build.
  [[ $file != */fill_cuda.cu ]] || "${device[@]}" || fail "$file does not compile"
  [[ $file != kernels/digest/* ]] || continue
  refuses "compile_without_use_fast_math_and_ftz" "${device[@]}" --use_fast_math
done
