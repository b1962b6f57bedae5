#!/bin/bash
# nvcc.sh OBJECT PTX RESOURCES UNUSED HEADERS NVCC FLAG... SOURCE
#
# Runs nvcc and sorts what it leaves behind:
#   OBJECT     the object file
#   PTX        the PTX of the highest architecture
#   RESOURCES  ptxas's report of registers, spills and shared memory for each kernel
#   UNUSED     those of HEADERS (one a line) that the compiler did not read
# Intermediate files go to a folder of their own: nvcc derives their names from the process id, and
# those repeat when actions run in separate process namespaces.
set -u -o pipefail
export LC_ALL=C

object=$1 ptx=$2 resources=$3 unused=$4 headers=$5
shift 5
source=${!#}
stem=$(basename "$source" .cu)

work=$(mktemp -d "${TMPDIR:-/tmp}/brigade_nvcc.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT

"$@" -c -o "$object" -MD -MF "$work/depfile" --keep --keep-dir "$work" >"$work/log" 2>&1
status=$?

# Lines of ptxas -v are the report, everything else is for the reader of the build's output.
report='^ptxas info|^ +[0-9]+ bytes stack frame'
grep -E "$report" "$work/log" | grep -v "Compile time" >"$resources"
grep -vE "$report" "$work/log" >&2
[ $status -eq 0 ] || exit $status

# One architecture: stem.ptx. Several: stem.compute_80.ptx and so on; the last by number counts.
highest=$(cd "$work" && ls | grep -E "\.ptx$" | sort -V | tail -n 1)
if [ -z "$highest" ]; then
  echo "nvcc.sh: nvcc kept no PTX for $source ($stem)" >&2
  exit 1
fi
cp "$work/$highest" "$ptx" || exit 1

# Make's syntax to one path a line; then HEADERS minus those.
sed -e 's/^[^:]*: *//' -e 's/\\$//' "$work/depfile" | tr -s ' \t' '\n\n' | sort -u >"$work/used"
sort -u "$headers" | comm -23 - "$work/used" >"$unused"
