#!/bin/bash
# tools/plot draws a panel for each kind of metric there is, and says what is wrong with a file.
set -u
plot=$PWD/tools/plot.sh
cd "$TEST_TMPDIR" || exit 1
status=0
wrong() {
  printf '%s\n' "$*"
  status=1
}

# size FILE: WIDTHxHEIGHT of a PNG, from its header.
size() {
  [ "$(head -c 8 "$1" | od -An -tx1 | tr -d ' ')" = 89504e470d0a1a0a ] || wrong "$1 is no PNG"
  od -An -j16 -N8 -tu1 "$1" | awk '{ print $3 * 256 + $4 "x" $7 * 256 + $8 }'
}

# draws SIZE ARGUMENT...: of the last line's file.
draws() {
  local expected=$1 out
  shift
  out=$("$plot" "$@" 2>&1) || { wrong "$* failed: $out"; return; }
  [ "$(size "$out")" = "$expected" ] || wrong "$out is $(size "$out"), expected $expected"
}

# fails TEXT ARGUMENT...: with this text on stderr, and without a picture.
fails() {
  local expected="tools/plot: $1" said
  shift
  said=$("$plot" "$@" 2>&1 >/dev/null) && wrong "$* succeeded"
  [ "$said" = "$expected" ] || wrong "expected '$expected', got '$said'"
}

for step in 1 2 3 4; do
  echo '{"step":'$step',"seconds":0.2,"loss":'$((6 - step))'.5,"tokens_per_second":20480.5,"loss_scale":65536,'\
'"grad_norm":3.2,"learning_rate":0.0001,"skipped":false}'
done >run.jsonl
echo '{"step":4,"held_out_loss":2.9}' >>run.jsonl
draws 1200x1040 run.jsonl
[ -s run.png ] || wrong "run.jsonl was not drawn into run.png"

# redrawn CHANGE: whether the file with this change gives the same picture.
redrawn() {
  mkdir -p changed && sed "$1" run.jsonl >changed/run.jsonl && "$plot" changed/run.jsonl >/dev/null || wrong "$1 fails"
  cmp -s run.png changed/run.png
}
redrawn 's/^/ /' || wrong "the same numbers give another picture"
for change in s/2.9/3.9/ s/65536/32768/ 3s/false/true/ s/20480/10240/ 2s/4.5/4.9/; do
  ! redrawn $change || wrong "$change changes nothing"
done

# A step of which something is missing or no finite number; one step; a last line without its end.
printf '{"step":1,"loss":null,"loss_scale":1}\n{"step":2,"loss":NaN}\n{"step":3,"loss":1e999}\n{"step":4,"loss":2}' >odd.jsonl
draws 1200x720 odd.jsonl "a \"file\" of 1'.png"
echo '{"step":7,"tokens_per_second":100}' >one.jsonl
draws 1200x400 one.jsonl
mkdir -p from/here && cp one.jsonl from
BUILD_WORKING_DIRECTORY=$PWD/from draws 1200x400 one.jsonl "$PWD/relative.png"
(cd from/here && BUILD_WORKING_DIRECTORY=.. "$plot" one.jsonl here.png) >/dev/null
[ -s from/here.png ] || wrong "paths do not begin at BUILD_WORKING_DIRECTORY"

fails "usage: bazel run //tools:plot -- FILE.jsonl [OUT.png]"
fails "no.jsonl: no such file" no.jsonl
fails "from: cannot be read" from
: >empty.jsonl
fails "empty.jsonl: is empty" empty.jsonl
printf '{"step":1,"loss":2}\n{"step":2,"lo' >cut.jsonl
fails 'cut.jsonl: line 2 is not a JSON object: {"step":2,"lo' cut.jsonl
printf '{"step":1,"loss":2}\n\n{"step":3,"loss":2}\n' >blank.jsonl
fails 'blank.jsonl: line 2 is not a JSON object: ' blank.jsonl
printf '3\n' >number.jsonl
fails 'number.jsonl: line 1 is not a JSON object: 3' number.jsonl
printf '{"step":1,"rate":2}\n{"loss":3}\n' >other.jsonl
fails "other.jsonl: no line has a step with loss, held_out_loss, loss_scale or tokens_per_second" other.jsonl
fails "nowhere/run.png: cannot be written" run.jsonl nowhere/run.png
fails "/dev/full: cannot be written" run.jsonl /dev/full

mkdir -p bin && ln -sf "$(command -v bash)" bin/bash
PATH=$PWD/bin fails "jq is not installed; run tools/setup, or apt-get install jq" run.jsonl
ln -sf "$(command -v jq)" bin/jq
PATH=$PWD/bin fails "gnuplot is not installed; run tools/setup, or apt-get install gnuplot-nox" run.jsonl
[ ! -e cut.png ] && [ ! -e other.png ] || wrong "a picture of a bad file"

exit $status
