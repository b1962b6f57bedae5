#!/bin/bash
# cpu_test.sh GRAPH EXPECTED [all]
#
# Vendors each kernel's loop for the CPU, compiles it with nothing but its folder (and Highway, where
# PROVENANCE says so), and runs it: under the project's names with g++ in C++20 and under others with
# clang in C++17, with LLVM's standard library, without exceptions and RTTI; both linked into one
# program, whose results have the bits of the build; and so does the caller that the kernel's folder
# shows. With "all" each of the names with each compiler, in both standards, optimised. Fast-math does
# not compile.
# CMake builds a folder, and a program on it; who links formulas gets the flags of their bits, and
# CMake refuses those that change them.
graph=$1 expected=$2 all=${3-} part=cpu
. tests/kernels/vendoring/vendoring.sh

# library VARIANT OPERATION COMMAND...: prints the objects of the vendored sources.
library() {
  local variant=$1 operation=$2 source
  shift 2
  find "$work/$variant/$operation" -name '*.cc' | while read -r source; do
    object "$variant" "$@" "${warnings[@]}" -I"$work/$variant/$operation" "$source" || exit 1
  done
}

# links OPERATION OBJECTS FILE...: the objects that the file OBJECTS names, and more files, into
# $work/program. Two folders may have the same source, and so the same object.
links() {
  local needs objects
  needs=$(said plain "$1" needs)
  mapfile -t objects < <(sort -u "$2")
  g++ "${@:3}" "${objects[@]}" $([[ $needs != *Highway* ]] || echo -lhwy) -lc++ -pthread \
    -o "$work/program" || fail "$1: does not link"
}

# both OPERATION PLAIN RENAMED: both variants in one program, and the caller with the second; the
# arguments are compilers with flags.
both() {
  local operation=$1 variant command taken
  for variant in plain renamed; do
    [ $variant = plain ] && read -ra command <<<"$2" || read -ra command <<<"$3"
    library $variant "$operation" "${command[@]}" || exit 1
    program $variant "$operation" "${command[@]}" -I"$work/$variant/$operation" || exit 1
  done >"$work/objects_to_link" || exit 1
  main plain renamed "$operation"
  links "$operation" "$work/objects_to_link" "$work/main.cc"
  compare "$operation" 2 "$work/program"

  for taken in $(taken_by "$operation"); do
    library renamed "$taken" "${command[@]}" || exit 1
  done >"$work/objects_to_link" || exit 1
  caller renamed "$operation" "${command[@]}" >>"$work/objects_to_link" || exit 1
  links "$operation" "$work/objects_to_link"
  shows "$operation" "$work/program"
}

# flatten/ is made of casts, and internal/ is for several.
folders=$(sed -n 's/^| `\([a-z0-9_]*\)\/` .*/\1/p' kernels/README.md | grep -vx -e flatten -e internal)
[ "$(sort <<<"$folders")" = "$(tr ' ' '\n' <<<"$OPERATIONS" | sort)" ] ||
  fail "the table of kernels/README.md and the list of BUILD.bazel differ"

for operation in $OPERATIONS; do
  vendor plain "$operation"
  vendor renamed "$operation"
done
for operation in $OPERATIONS; do
  case $(said plain "$operation" needs) in
    - | Highway) ;;
    *) fail "$operation needs $(said plain "$operation" needs)" ;;
  esac
  flags=$(said plain "$operation" flags)
  if [ "$all" ]; then
    for standard in 17 20; do
      both "$operation" "g++ -std=c++$standard $flags" "clang++ -std=c++$standard $flags"
      both "$operation" "clang++ -std=c++$standard $flags" "g++ -std=c++$standard $flags"
    done
  else
    # The bits need no optimisation.
    both "$operation" "g++ -std=c++20 $flags -O0" \
      "clang++ -std=c++17 -stdlib=libc++ -fno-exceptions -fno-rtti $flags -O0"
  fi
  echo "$operation: same bits under both names"
done

for compiler in g++ clang++; do
  for flag in -ffast-math -ffinite-math-only; do
    $compiler -std=c++17 $flag -I"$work/plain/adam" -c "$work/plain/adam/brigade/kernels/adam/adam_cpu.cc" \
      -o "$work/fast.o" 2>"$work/log" && fail "$compiler takes $flag"
    grep -q 'error.*IEEE arithmetic' "$work/log" || fail "no reason against $flag: $(cat "$work/log")"
  done
done

# A folder that ends with the prefix; the include path is above it.
tools/vendor //kernels/fill --cpu --graph "$graph" --out "$work/fw/third_party/bk" \
  --prefix third_party/bk --namespace acme::bk >"$work/log" || fail "fill: $(cat "$work/log")"
cat >"$work/fw/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.18)
project(fw LANGUAGES CXX)
add_subdirectory(third_party/bk)
add_executable(program main.cc program.cc)
target_link_libraries(program PRIVATE acme_bk_kernels_fill_cpu)
END
main renamed fill
program renamed fill g++ -std=c++17 -I"$work/fw" >/dev/null || exit 1
cp "$work/main.cc" "$work/fw/main.cc"
programs=$work/programs/renamed/third_party/bk/tests/kernels/vendoring/programs
cp "$programs/fill.cc" "$work/fw/program.cc"
mkdir -p "$work/fw/third_party/bk/tests/kernels/vendoring/programs"
cp "$programs/program.h" "$work/fw/third_party/bk/tests/kernels/vendoring/programs/"
{ cmake -S "$work/fw" -B "$work/build" && cmake --build "$work/build" -v; } >"$work/log" 2>&1 ||
  fail "CMake: $(cat "$work/log")"
grep -- '-c .*fill_cpu.cc' "$work/log" | grep -e '-fPIC' | grep -q -e "$(said plain fill flags | sed 's/^-O3 //')" ||
  fail "CMake compiles with other flags than PROVENANCE says: $(grep fill_cpu "$work/log")"
compare fill 1 "$work/build/program"
echo "fill: built by CMake"

# A folder of headers alone.
tools/vendor //kernels/adam:adam_math --graph "$graph" --out "$work/math/formulas" >"$work/log" ||
  fail "adam_math: $(cat "$work/log")"
cat >"$work/math/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.18)
project(math LANGUAGES CXX)
add_subdirectory(formulas)
add_executable(program main.cc)
target_link_libraries(program PRIVATE brigade_kernels_adam_adam_math)
END
printf '#include "brigade/kernels/adam/adam_math.h"\nint main() {}\n' >"$work/math/main.cc"
cmake -S "$work/math" -B "$work/math_build" -DCMAKE_EXPORT_COMPILE_COMMANDS=ON >"$work/log" 2>&1 ||
  fail "CMake: $(cat "$work/log")"
grep '"command".*main.cc' "$work/math_build/compile_commands.json" | grep -q -e ' -ffp-contract=off' ||
  fail "a user of headers does not get -ffp-contract=off"
grep -q -e 'COMPILE_LANGUAGE:CUDA>:--fmad=false;-Xcompiler=-ffp-contract=off>' "$work/math/formulas/CMakeLists.txt" ||
  fail "a user of headers in CUDA does not get --fmad=false"
cmake -S "$work/math" -B "$work/math_build" -DCMAKE_CXX_FLAGS="-g -ffast-math" >"$work/log" 2>&1 &&
  fail "CMake takes -ffast-math"
grep -q 'compile without -ffast-math' "$work/log" || fail "CMake does not say why: $(cat "$work/log")"
echo "adam_math: its users get the flags of its bits"
