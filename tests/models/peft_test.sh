#!/bin/bash
# peft_test.sh PEFT_ANSWERS_TEST SCRIPT: adapters that PEFT writes now, with random weights, give
# here its logits, loss and gradients; and it reads what is saved here.
set -u -o pipefail
answers=$1 script=$2

fail() {
  printf 'FAILED: %s\n' "$*" >&2
  exit 1
}

home=${HOME:-$(getent passwd "$(id -u)" | cut -d: -f6)}
python=${BRIGADE_TRANSFORMERS_VENV:-${XDG_CACHE_HOME:-$home/.cache}/brigade/peers/transformers}/bin/python
for module in torch transformers safetensors peft; do
  if ! "$python" -c "import $module" 2>/dev/null; then
    printf '[  SKIPPED ] %s (no %s: it comes with tools/setup --transformers)\n' "${0##*/}" "$module"
    exit 0
  fi
done
# It asks no hub.
export HF_HUB_OFFLINE=1 TRANSFORMERS_VERBOSITY=error OMP_NUM_THREADS=2

"$python" "$script" write "$TEST_TMPDIR/adapters" --all || fail 'the reference writes nothing'
mkdir "$TEST_TMPDIR/saved" || exit 1
# Each of its cases is a test of its own.
unset TESTBRIDGE_TEST_ONLY GTEST_OUTPUT XML_OUTPUT_FILE
BRIGADE_ADAPTERS=$TEST_TMPDIR/adapters BRIGADE_SAVED=$TEST_TMPDIR/saved "$answers" ||
  fail 'not the answers of the reference'
mv "$TEST_TMPDIR"/saved/* "$TEST_TMPDIR/adapters" || fail 'nothing is saved'
"$python" "$script" check "$TEST_TMPDIR/adapters" || fail 'the reference reads something else'
