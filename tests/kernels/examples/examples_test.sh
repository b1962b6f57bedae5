#!/bin/bash
# examples_test.sh EXAMPLE SOURCE
#
# Runs the program that a folder of kernels/ shows, which must print what its source says, and ask
# each call of CUDA for its result.
set -u
example=$1 source=$2

if grep -nE '^ *cuda[A-Z][A-Za-z]*\(' "$source"; then
  echo "$source: these calls may fail unseen" >&2
  exit 1
fi
wanted=$(sed -n 's,^// Prints: ,,p' "$source")
printed=$("$example") || { echo "$source: the program returns $?: $printed" >&2; exit 1; }
if [[ -z $wanted || $printed != "$wanted" ]]; then
  printf '%s: it says "%s", the program prints "%s"\n' "$source" "$wanted" "$printed" >&2
  exit 1
fi
