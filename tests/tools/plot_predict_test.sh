#!/bin/bash
# plot_predict_test.sh PREDICT: the figure in docs/images is what tools/plot_predict draws today.
set -u
predict=$PWD/$1
status=0
wrong() {
  printf '%s\n' "$*"
  status=1
}

drawn=$TEST_TMPDIR/drawn.svg
tools/plot_predict.sh "$predict" "$drawn" || wrong "tools/plot_predict fails"
# Every release of gnuplot has its own way with numbers; the first lines say which it was.
version() { grep -o 'Produced by GNUPLOT.*' "$1"; }
if [ "$(version "$drawn")" = "$(version docs/images/predicted_all_reduce.svg)" ]; then
  cmp "$drawn" docs/images/predicted_all_reduce.svg ||
    wrong "bazel run //tools:plot_predict -- docs/images/predicted_all_reduce.svg"
fi
for text in 'double_tree' 'hierarchical' 'bus bandwidth, GB/s' '128 nodes of 8 H100' '</svg>'; do
  grep -q "$text" "$drawn" || wrong "the figure has no '$text'"
done

# fails TEXT ARGUMENT...: with this text, and without a figure.
fails() {
  local expected="tools/plot_predict: $1" said
  shift
  said=$(tools/plot_predict.sh "$@" 2>&1 >/dev/null) && wrong "$* succeeds"
  [[ $said == *"$expected" ]] || wrong "expected '$expected', got '$said'"
}
fails "usage: bazel run //tools:plot_predict -- OUT.svg" "$predict"
fails "/bin/false failed" /bin/false "$TEST_TMPDIR/none.svg"
fails "/nowhere/figure.svg: cannot be written" "$predict" /nowhere/figure.svg

exit $status
