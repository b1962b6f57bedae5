#!/bin/bash
# plot_memory_test.sh MEMORY_MODEL: the figure in docs/images is what tools/plot_memory draws today.
set -u
model=$PWD/$1
status=0
wrong() {
  printf '%s\n' "$*"
  status=1
}

drawn=$TEST_TMPDIR/drawn.svg
tools/plot_memory.sh "$model" "$drawn" || wrong "tools/plot_memory fails"
# Every release of gnuplot has its own way with numbers; the first lines say which it was.
version() { grep -o 'Produced by GNUPLOT.*' "$1"; }
if [ "$(version "$drawn")" = "$(version docs/images/zero_memory.svg)" ]; then
  cmp "$drawn" docs/images/zero_memory.svg || wrong "bazel run //tools:plot_memory -- docs/images/zero_memory.svg"
fi
for text in 'stage 0' 'stage 3' 'GB per rank' 'the ZeRO paper' '</svg>'; do
  grep -q "$text" "$drawn" || wrong "the figure has no '$text'"
done

# fails TEXT ARGUMENT...: with this text, and without a figure.
fails() {
  local expected="tools/plot_memory: $1" said
  shift
  said=$(tools/plot_memory.sh "$@" 2>&1 >/dev/null) && wrong "$* succeeds"
  [[ $said == *"$expected" ]] || wrong "expected '$expected', got '$said'"
}
fails "usage: bazel run //tools:plot_memory -- OUT.svg" "$model"
fails "/bin/false failed" /bin/false "$TEST_TMPDIR/none.svg"
fails "/nowhere/figure.svg: cannot be written" "$model" /nowhere/figure.svg

exit $status
