#!/bin/bash
# examples_test.sh EXAMPLE SOURCE
#
# Runs the program that a folder of kernels/ shows, which must print what its source says.
set -u
example=$1 source=$2

wanted=$(sed -n 's,^// Prints: ,,p' "$source")
printed=$("$example") || { echo "$source: the program returns $?: $printed" >&2; exit 1; }
if [[ -z $wanted || $printed != "$wanted" ]]; then
  printf '%s: it says "%s", the program prints "%s"\n' "$source" "$wanted" "$printed" >&2
  exit 1
fi
