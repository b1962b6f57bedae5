#!/bin/bash
# command_lines_test.sh PEER INSPECT VERIFY EXPORT: of checkpoints on a real disk, what the commands
# print, where they look, and how they end.
set -u -o pipefail
peer=$PWD/$1 inspect=$PWD/$2 verify=$PWD/$3 export=$PWD/$4
files=$TEST_TMPDIR
step=$files/in_pieces/step-00000003

fail() {
  printf 'FAILED: %s\n' "$*" >&2
  exit 1
}

# expect STATUS COMMAND...: its exit status; what it says is in $files/out and $files/error.
expect() {
  local wanted=$1 status=0
  shift
  "$@" >"$files/out" 2>"$files/error" || status=$?
  [ "$status" = "$wanted" ] || fail "exit status $status of $*: $(cat "$files/out" "$files/error")"
}
expect_text() { grep -qE -- "$2" "$files/$1" || fail "no \"$2\" in $(cat "$files/$1")"; }

"$peer" save "$files" || fail 'no checkpoint'

for command in "$inspect" "$verify" "$export"; do
  expect 0 "$command" --help
  expect_text out 'FOLDER'
  expect 2 "$command"
  expect 2 "$command" --nothing "$step"
  expect_text error '--nothing is not known'
done
expect 1 "$inspect" "$files/nothing"
expect_text error 'nothing'
expect 1 "$verify" "$files/nothing"
expect_text error 'nothing/manifest.json'
expect 2 "$export" "$step" "$files/x" --dtype=int8
expect 2 "$export" "$step" --folder="$files/x" --force
expect 2 "$export" "$step" "$files/x" --folder="$files/y"

expect 0 "$inspect" "$files/in_place"
expect_text out 'step-00000003: 11 parameters, .* in place  <- the newest'
expect 0 "$inspect" "$step"
expect_text out '^  h.0.w +\[5, 3, 100\] float16, group 0$'

# A relative path is the user's.
export BUILD_WORKING_DIRECTORY=$files/in_pieces
expect 0 "$verify" step-00000003
expect_text out '^whole: 3 files, 31 tensors, [0-9]+ bytes in .* GB/s$'
expect 0 "$export" step-00000003 ../w.safetensors --dtype=bf16
expect 0 "$inspect" ../w.safetensors
expect_text out '^  h.0.frozen +BF16 \[50\] 100 bytes$'
expect 1 "$export" step-00000003 ../w.safetensors
expect_text error 'w.safetensors is there already'
expect 0 "$export" step-00000003 ../w.safetensors --force
expect 0 "$export" step-00000003 --folder=../copy
diff -r "$files/copy" "$files/in_place/step-00000003" || fail 'the folder is another'
unset BUILD_WORKING_DIRECTORY

printf x | dd of="$step/pieces-00003-of-00003.bin" bs=1 seek=100 conv=notrunc status=none
expect 1 "$verify" "$step"
expect_text out '^DAMAGED: '
expect_text error 'pieces-00003-of-00003.bin has the checksum .*, and should have'
expect_text error 'safetensors: tensor ".*" has the checksum'
expect 1 "$export" "$step" --folder="$files/damaged"
expect_text error 'is damaged'
[ -z "$(find "$files" -name '*damaged*' -o -name '.*part*')" ] || fail "left: $(ls -A "$files")"
