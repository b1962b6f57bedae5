#!/bin/bash
# tools/format --check names the files that tools/format then puts right, and no others.
set -u
if ! command -v clang-format >/dev/null; then
  echo "clang-format is not installed; run tools/setup" >&2
  exit 1
fi
repo=$TEST_TMPDIR/repo
mkdir -p "$repo/tools" && cp -L tools/format "$repo/tools/format" && cp -L .clang-format "$repo" || exit 1
cd "$repo" && git init -q . || exit 1

fail() {
  printf '%s\n' "$*"
  exit 1
}

printf 'int f() { return 1; }\n' >good.cc
printf '__global__ void  g( int*x ){}\n' >"bad one.cu"
printf 'int  untracked;\n' >untracked.cc
git add -- good.cc "bad one.cu"

output=$(tools/format --check 2>&1) && fail "the check passed on a bad file"
[[ $output == *"bad one.cu: not formatted"* ]] || fail "bad one.cu is not named in: $output"
[[ $output != *good.cc* ]] || fail "good.cc is named in: $output"
[[ $output != *untracked.cc* ]] || fail "untracked.cc is named in: $output"

tools/format || fail "formatting failed"
[ "$(cat "bad one.cu")" = '__global__ void g(int* x) {}' ] || fail "got: $(cat "bad one.cu")"
tools/format --check || fail "the check fails after formatting"
tools/format --check untracked.cc >/dev/null 2>&1 && fail "a file given by name was not checked"
exit 0
