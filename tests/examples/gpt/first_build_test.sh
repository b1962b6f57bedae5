#!/bin/bash
# The README's number of files that the first build of the trainer compiles is that of the build
# graph, give or take a tenth. The emulator's are of builds for it, and compiled by no other.
set -u -o pipefail
export LC_ALL=C

files=$(grep -E '^(@@?)?//[^/].*\.(cc|cu)$' tests/examples/gpt/train_sources | grep -vcE '^(@@?)?//emulator')
said=$(sed -n 's/^The first build compiles about \([0-9]*\) files:.*/\1/p' examples/gpt/README.md)
[ -n "$said" ] || { echo "the README does not say how many files the first build compiles" && exit 1; }
distance=$((files > said ? files - said : said - files))
[ $((10 * distance)) -le "$files" ] && exit
echo "the first build compiles $files files, and the README says about $said"
exit 1
