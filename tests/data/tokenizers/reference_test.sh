#!/bin/bash
# reference_test.sh PEER TRAIN SCRIPT TEXTS: tokenizers beside Hugging Face's own, where that is installed.
set -u -o pipefail
peer=$1 train=$2 script=$3 texts=$4

home=${HOME:-$(getent passwd "$(id -u)" | cut -d: -f6)}
python=${BRIGADE_TOKENIZERS_VENV:-${XDG_CACHE_HOME:-$home/.cache}/brigade/peers/tokenizers}/bin/python
if ! "$python" -c 'import tokenizers' 2>/dev/null; then
  printf '[  SKIPPED ] %s (no tokenizers: it comes with tools/setup --tokenizers)\n' "${0##*/}"
  exit 0
fi
TOKENIZERS_PARALLELISM=false "$python" "$script" "$peer" "$train" "$TEST_TMPDIR" "$texts"
