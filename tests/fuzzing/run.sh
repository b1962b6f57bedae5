#!/bin/bash
# run.sh PROGRAM PATH [FOLDER]
#
# Gives the inputs in PATH_corpus to PROGRAM, of a brigade_fuzz_test. Where BRIGADE_FUZZ_SECONDS is
# set, libFuzzer changes them for so long, with the words of PATH.dict. What reaches new code is then
# in FOLDER/new, and an input that breaks a promise in FOLDER itself (by default the test's
# outputs), and in the log in base64.
set -u
program=$1
path=$2
folder=${3:-${TEST_UNDECLARED_OUTPUTS_DIR:-}}

[ "${BRIGADE_FUZZ_SECONDS:-}" ] || exec "$program" "${path}_corpus"/*

new=$folder/new
[ $# -gt 2 ] || new=$TEST_TMPDIR/new
mkdir -p "$new" || exit 1
# Of an input of 4 KB nothing makes 64 MB at once.
options=(-max_len=4096 -timeout=5 -malloc_limit_mb=64 -rss_limit_mb=1024 -print_final_stats=1)
[ ! -e "$path.dict" ] || options+=(-dict="$path.dict")
"$program" "${options[@]}" -max_total_time="$BRIGADE_FUZZ_SECONDS" -artifact_prefix="$folder/" \
  "$new" "${path}_corpus" 2>&1 | grep -vE '^(#[0-9]+\s+(NEW|REDUCE|RELOAD|pulse)|\s+NEW_FUNC)\b'
exit "${PIPESTATUS[0]}"
