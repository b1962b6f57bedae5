#!/bin/bash
# plot_recompute_test.sh MEMORY_MODEL: the figure in docs/images is what tools/plot_recompute draws
# today.
set -u
model=$PWD/$1
status=0
wrong() {
  printf '%s\n' "$*"
  status=1
}

drawn=$TEST_TMPDIR/drawn.svg
tools/plot_recompute.sh "$model" "$drawn" || wrong "tools/plot_recompute fails"
# Every release of gnuplot has its own way with numbers; the first lines say which it was.
version() { grep -o 'Produced by GNUPLOT.*' "$1"; }
if [ "$(version "$drawn")" = "$(version docs/images/recompute.svg)" ]; then
  cmp "$drawn" docs/images/recompute.svg || wrong "bazel run //tools:plot_recompute -- docs/images/recompute.svg"
fi
for text in 'none' 'block' 'selective' 'segments:2' 'within each budget' '</svg>'; do
  grep -q "$text" "$drawn" || wrong "the figure has no '$text'"
done

# fails TEXT ARGUMENT...: with this text, and without a figure.
fails() {
  local expected="tools/plot_recompute: $1" said
  shift
  said=$(tools/plot_recompute.sh "$@" 2>&1 >/dev/null) && wrong "$* succeeds"
  [[ $said == *"$expected" ]] || wrong "expected '$expected', got '$said'"
}
fails "usage: bazel run //tools:plot_recompute -- OUT.svg" "$model"
fails "/bin/false failed" /bin/false "$TEST_TMPDIR/none.svg"
fails "/bin/true printed no curve" /bin/true "$TEST_TMPDIR/none.svg"
fails "/nowhere/figure.svg: cannot be written" "$model" /nowhere/figure.svg

exit $status
