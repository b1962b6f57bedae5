#!/bin/bash
# op_test.sh GRAPH GOLDEN NVCC FOLDER [SCRIPT...]: vendors the kernels of examples/pytorch_adamw, and
# compiles what its CUDA half has beside them; with scripts of FOLDER also builds the package for the
# CPU as its README says, unoptimised (the bits need none of it), runs them with it, and compiles the
# ops of the CUDA half.
#
# For that PyTorch 2.4 or newer has to be in the virtual environment of benchmarks/peers (BRIGADE_PEERS_VENV),
# or in python3's own library.
set -u -o pipefail
graph=$PWD/$1 nvcc=$3 folder=$PWD/$4
export GOLDEN=$PWD/$2 PYTHONDONTWRITEBYTECODE=1
work=$TEST_TMPDIR/tree
shift 4

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

./vendor --graph "$graph" || fail 'tools/vendor takes no copy of the kernels'
./vendor --check --graph "$graph" || fail 'tools/vendor finds that its own copy differs'

# What PROVENANCE says of both folders, which is the same.
said() { sed -n "s/^$1: //p" third_party/adam/PROVENANCE; }
read -ra flags <<<"$(said flags)"
read -ra cuda_flags <<<"$(said 'cuda flags')"
include=(-I. -Ithird_party/adam -Ithird_party/grad_check)
printf -v host '%s,' "${flags[@]}"
"$nvcc" "${cuda_flags[@]}" -Xcompiler="${host%,}" -arch=sm_90 "${include[@]}" -cubin csrc/step_cuda.cu \
  -o "$work/step_cuda.cubin" >"$work/log" 2>&1 || fail "csrc/step_cuda.cu: $(cat "$work/log")"
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

mv third_party vendored
if "$python" setup.py build_ext --inplace >"$work/log" 2>&1; then fail 'it builds without the kernels'; fi
grep -q 'third_party/adam is missing: run .*/vendor first' "$work/log" || fail "$(cat "$work/log")"
mv vendored third_party

# The last of several -O counts.
for file in third_party/*/PROVENANCE; do sed -i 's/^flags: .*/& -O0/' "$file"; done
BRIGADE_ADAMW_CUDA=0 MAX_JOBS=${MAX_JOBS:-2} "$python" setup.py -q build_ext --inplace >"$work/log" 2>&1 ||
  fail "the package does not build: $(cat "$work/log")"

# PyTorch's own headers for CUDA are in every package of it but those for the CPU alone.
paths=$("$python" -c '
from torch.utils import cpp_extension
print(*(f"-isystem{path}" for path in cpp_extension.include_paths()))
') || fail "PyTorch does not say where its headers are"
read -ra of_torch <<<"$paths"
if echo '#include <c10/cuda/CUDAStream.h>' |
  g++ -std=c++20 -E "${of_torch[@]}" -isystem"${nvcc%/*}/../include" -x c++ - >/dev/null 2>&1; then
  g++ "${flags[@]}" -std=c++20 -fsyntax-only "${include[@]}" "${of_torch[@]}" -isystem"${nvcc%/*}/../include" \
    csrc/ops_cuda.cc >"$work/log" 2>&1 || fail "csrc/ops_cuda.cc: $(cat "$work/log")"
else
  echo "csrc/ops_cuda.cc is not compiled: this PyTorch has no headers for CUDA"
fi

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
