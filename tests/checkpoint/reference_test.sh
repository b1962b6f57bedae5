#!/bin/bash
# reference_test.sh PEER EXPORT SCRIPT: files of a checkpoint as the reference implementation of
# safetensors reads them, and its files as they are read here; and the Python of docs/checkpoints.md.
set -u -o pipefail
peer=$1 export=$2 script=$3
files=$TEST_TMPDIR

fail() {
  printf 'FAILED: %s\n' "$*" >&2
  exit 1
}

home=${HOME:-$(getent passwd "$(id -u)" | cut -d: -f6)}
python=${BRIGADE_SAFETENSORS_VENV:-${XDG_CACHE_HOME:-$home/.cache}/brigade/peers/safetensors}/bin/python
if ! "$python" -c 'import numpy, safetensors' 2>/dev/null; then
  printf '[  SKIPPED ] %s (no safetensors: it comes with tools/setup --safetensors)\n' "${0##*/}"
  exit 0
fi

"$peer" save "$files" || fail 'no checkpoint'
for dtype in none fp32 fp16 bf16; do
  flag=--dtype=$dtype
  [ $dtype != none ] || flag=
  "$export" "$files/in_pieces/step-00000003" "$files/exported-$dtype.safetensors" $flag ||
    fail "no export of type $dtype"
done
"$python" "$script" check "$files" || fail 'the reference reads something else'

# The lines of the page, which has one rank's folder; this one is of five.
mkdir -p "$files/run" && ln -s ../in_place/step-00000003 "$files/run/step-00000800" || exit 1
awk '$0 == "```python" { inside = 1; next } /^```/ { inside = 0 } inside' docs/checkpoints.md |
  sed 's/of-00001/of-00005/' >"$files/page.py"
grep -q 'load_file(' "$files/page.py" || fail 'docs/checkpoints.md has no Python'
shown=$(cd "$files" && "$python" page.py) || fail 'the Python of docs/checkpoints.md'
[[ $shown == "{'"*": ("*")}" ]] || fail "the Python of docs/checkpoints.md prints $shown"

"$python" "$script" write "$files" || fail 'the reference writes nothing'
for name in one bf16; do
  "$peer" read "$files/$name.safetensors" | sort >"$files/read" || fail "$name is not read"
  LC_ALL=C diff <(LC_ALL=C sort "$files/read") <(LC_ALL=C sort "$files/expected-$name") ||
    fail "$name is read as something else"
done
"$peer" read "$files/sharded" >"$files/read" || fail 'the files of the index are not read'
diff <(LC_ALL=C sort "$files/read") <(LC_ALL=C sort "$files/expected-one") ||
  fail 'the files of the index are read as something else'
