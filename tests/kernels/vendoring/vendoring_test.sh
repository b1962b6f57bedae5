#!/bin/bash
# vendoring_test.sh NVCC
#
# Runs the lines of kernels/README.md that copy a launcher out of the project and compile it, for
# each launcher into an empty folder; then builds a program that calls it with nothing but that
# folder and the CUDA runtime.
set -u
nvcc=$1

fail() {
  printf '%s\n' "$*" >&2
  exit 1
}

recipe=$TEST_TMPDIR/recipe.sh
sed -n '/^```sh$/,/^```$/p' kernels/README.md | grep -v '^```' >"$recipe"
grep -q '^cp ' "$recipe" || fail "kernels/README.md has no lines that copy a launcher"
PATH=$(dirname "$nvcc"):$PATH
# Nobody who vendors a kernel has to turn warnings off.
export NVCC_APPEND_FLAGS="-Werror all-warnings"

# try OPERATION CALL: the call compiles in a C++ program of its own and links.
try() {
  local op=$1 call=$2
  local to=$TEST_TMPDIR/$op
  mkdir "$to" || exit 1
  op=$op to=$to bash -eu "$recipe" || fail "$op: the recipe of kernels/README.md does not work"
  cat >"$to/program.cc" <<EOF
#include "brigade/kernels/$op/${op}_cuda.h"
namespace brigade::kernels {
cudaError_t Call() { return $call; }
}  // namespace brigade::kernels
int main() { return brigade::kernels::Call(); }
EOF
  "$nvcc" -std=c++20 -arch=sm_90 -I"$to" "$to/program.cc" "$to/${op}_cuda.o" -o "$to/program" ||
    fail "$op: a program that calls the vendored launcher does not build"
}

for header in kernels/*/*_cuda.h; do
  op=$(basename "$header" _cuda.h)
  case $op in
    amax) try amax 'LaunchAmax<float>(nullptr, 0, nullptr, nullptr, nullptr, nullptr)' ;;
    adam) try adam 'LaunchAdam<precision::Half, precision::Half>(nullptr, 0, AdamParameters(), nullptr)' ;;
    cast) try cast 'LaunchCast<float, precision::Half>(nullptr, 0, nullptr, false, nullptr)' ;;
    fill) try fill 'LaunchFill(nullptr, 0, FillPattern(), 4, nullptr)' ;;
    grad_check) try grad_check 'LaunchGradCheck<precision::Half>(nullptr, 0, nullptr, nullptr, nullptr)' ;;
    reduce) try reduce 'LaunchReduce<precision::Half>(ReduceArrays(), ReduceOp::kSum, nullptr)' ;;
    sgd) try sgd 'LaunchSgd<float, NoCopy>(nullptr, 0, SgdParameters(), nullptr)' ;;
    step_control) try step_control 'LaunchStepControl(StepParameters(), nullptr)' ;;
    *) fail "$header: say here how to call this launcher" ;;
  esac
  echo "$op: vendored"
done
