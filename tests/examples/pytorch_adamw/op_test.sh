#!/bin/bash
# op_test.sh cpu|cuda GRAPH GOLDEN NVCC FOLDER [SCRIPT...]: examples/pytorch_adamw without CUDA, and
# what is of CUDA in it.
#
# cpu: vendors the kernels' loops for the CPU; with scripts of FOLDER also builds the package as its
# README says, unoptimised (the bits need none of it), and runs them with it. Needs no CUDA toolkit.
# cuda: vendors both halves, and compiles what the CUDA half has beside the kernels; with any more
# argument also its ops, where PyTorch has headers for them.
#
# With these PyTorch 2.4 or newer has to be in the virtual environment of benchmarks/peers
# (BRIGADE_PEERS_VENV), or in python3's own library.
set -u -o pipefail
half=$1 graph=$PWD/$2 nvcc=$4 folder=$PWD/$5
export GOLDEN=$PWD/$3 PYTHONDONTWRITEBYTECODE=1
work=$TEST_TMPDIR/tree
shift 5

fail() {
  printf 'FAILED: %s\n' "$*" >&2
  exit 1
}

# A copy of the tree, since the package is built inside of it.
mkdir -p "$work/examples"
for path in *; do [ "$path" = examples ] || ln -s "$PWD/$path" "$work/$path"; done
cp -rL examples/pytorch_adamw "$work/examples/"
cd "$work/examples/pytorch_adamw" || exit 1
chmod -R u+w .

only=()
[ "$half" = cuda ] || only=(--cpu)
./vendor --graph "$graph" "${only[@]}" || fail 'tools/vendor takes no copy of the kernels'
./vendor --check --graph "$graph" || fail 'tools/vendor finds that its own copy differs'
cuda_files=$(find third_party -name '*cuda*' | wc -l)
[ "$half" = cuda ] || [ "$cuda_files" = 0 ] || fail "vendor --cpu took $cuda_files files of CUDA"

# What PROVENANCE says of both folders, which is the same.
said() { sed -n "s/^$1: //p" third_party/adam/PROVENANCE; }
read -ra flags <<<"$(said flags)"
include=(-I. -Ithird_party/adam -Ithird_party/grad_check)
if [ "$half" = cuda ]; then
  read -ra cuda_flags <<<"$(said 'cuda flags')"
  printf -v host '%s,' "${flags[@]}"
  "$nvcc" "${cuda_flags[@]}" -Xcompiler="${host%,}" -arch=sm_90 "${include[@]}" -cubin \
    csrc/step_cuda.cu -o "$work/step_cuda.cubin" >"$work/log" 2>&1 ||
    fail "csrc/step_cuda.cu: $(cat "$work/log")"
fi
[ $# -gt 0 ] || exit 0

home=${HOME:-$(getent passwd "$(id -u)" | cut -d: -f6)}
python=${BRIGADE_PEERS_VENV:-${XDG_CACHE_HOME:-$home/.cache}/brigade/peers/pytorch}/bin/python
has_torch='
import sys, setuptools, torch
sys.exit([int(word) for word in torch.__version__.split(".")[:2]] < [2, 4])'
"$python" -c "$has_torch" 2>/dev/null || python=python3
if ! "$python" -c "$has_torch" 2>/dev/null; then
  printf '[  SKIPPED ] %s (no PyTorch 2.4 or newer with setuptools: tools/setup --launchers installs them)\n' \
    "${0##*/}"
  exit 0
fi

if [ "$half" = cuda ]; then
  # PyTorch's own headers for CUDA are in every package of it but those for the CPU alone.
  paths=$("$python" -c '
from torch.utils import cpp_extension
print(*(f"-isystem{path}" for path in cpp_extension.include_paths()))
') || fail "PyTorch does not say where its headers are"
  read -ra of_torch <<<"$paths"
  of_torch+=(-isystem"${nvcc%/*}/../include")
  if echo '#include <c10/cuda/CUDAStream.h>' |
    g++ -std=c++20 -E "${of_torch[@]}" -x c++ - >/dev/null 2>&1; then
    g++ "${flags[@]}" -std=c++20 -fsyntax-only "${include[@]}" "${of_torch[@]}" csrc/ops_cuda.cc \
      >"$work/log" 2>&1 || fail "csrc/ops_cuda.cc: $(cat "$work/log")"
  else
    echo "csrc/ops_cuda.cc is not compiled: this PyTorch has no headers for CUDA"
  fi
  exit 0
fi

# refused REASON VARIABLE...: that the package does not build so, and says why.
refused() {
  if env "${@:2}" "$python" setup.py build_ext --inplace >"$work/log" 2>&1; then
    fail "it builds although $1"
  fi
  grep -q "$1" "$work/log" || fail "it does not say '$1', but: $(cat "$work/log")"
}
mv third_party vendored
refused 'third_party/adam is missing: run .*/vendor first' BRIGADE_ADAMW_CUDA=0
mv vendored third_party
# Without a toolkit it says so before it looks at the kernels.
refused 'BRIGADE_ADAMW_CUDA=1 needs' BRIGADE_ADAMW_CUDA=1

# The last of several -O counts. Nothing says that there is no CUDA: setup.py has to see it.
for file in third_party/*/PROVENANCE; do sed -i 's/^flags: .*/& -O0/' "$file"; done
env -u BRIGADE_ADAMW_CUDA MAX_JOBS="${MAX_JOBS:-2}" "$python" setup.py -q build_ext --inplace \
  >"$work/log" 2>&1 || fail "the package does not build: $(cat "$work/log")"

# What the README shows under "Use".
{
  cat <<'END'
import torch
model = torch.nn.Linear(8, 1)
before = model.weight.detach().clone()
loss = model(torch.ones(4, 8)).sum()
END
  awk '$0 == "```python" { inside = 1; next } /^```/ { inside = 0 } inside' README.md
  echo 'assert not torch.equal(before, model.weight)'
} >"$work/use.py"
grep -q 'scaler.step(optimizer)' "$work/use.py" || fail 'examples/pytorch_adamw/README.md shows no use'
PYTHONPATH=$PWD "$python" "$work/use.py" || fail 'the use that examples/pytorch_adamw/README.md shows'

for script in "$@"; do
  echo "$script"
  PYTHONPATH=$PWD:$folder "$python" "$folder/$script" || fail "$script"
done
