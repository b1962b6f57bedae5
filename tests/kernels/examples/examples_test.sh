#!/bin/bash
# examples_test.sh EXAMPLE SOURCE
#
# Runs the program that a folder of kernels/ shows, which must print what its source says, and ask
# each call of CUDA for its result. Who copies its caller copies a function of at most 20 lines.
set -u
example=$1 source=$2

if grep -nE '^ *cuda[A-Z][A-Za-z]*\(' "$source"; then
  echo "$source: these calls may fail unseen" >&2
  exit 1
fi
awk '
  /^[A-Za-z[]/ && !/^(namespace|using|struct|static_assert|template)[^A-Za-z0-9_]/ && !start {
    start = FNR
    is_open = 0
  }
  start && /[{][^}]*$/ { is_open = 1 }
  # A constant, or a function of one line.
  start && (!is_open && /[;}]$/ || /^};/) { start = 0 }
  /^}/ && start {
    if (FNR - start + 1 > 20) { print FILENAME ":" start ": a function of " FNR - start + 1 " lines"; bad = 1 }
    start = 0
    ++functions
  }
  END { exit bad || functions < 1 }
' "$source" >&2 || exit 1
wanted=$(sed -n 's,^// Prints: ,,p' "$source")
printed=$("$example") || { echo "$source: the program returns $?: $printed" >&2; exit 1; }
if [[ -z $wanted || $printed != "$wanted" ]]; then
  printf '%s: it says "%s", the program prints "%s"\n' "$source" "$wanted" "$printed" >&2
  exit 1
fi
