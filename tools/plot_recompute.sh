#!/bin/bash
# plot_recompute.sh MEMORY_MODEL OUT.svg: the time of a pass over the memory of its activations, for
# all budgets, and where the policies lie, by //examples/gpt:memory_model for the default model at
# context 1024.
# The first argument comes from Bazel: bazel run //tools:plot_recompute -- docs/images/recompute.svg
[[ " $* " != *" --help "* ]] || { sed -n '2,/^[^#]/s/^# \?//p' "$0" && exit; }
. tools/figure.sh

"$1" --context=1024 --precision=bf16 --points=1000 >"$work/output" || fail "$1 failed"
# Rows are: policy, bytes, MB, share of bytes, %, share of time, %.
awk '$1 == "budget" { print $4, $6 }' "$work/output" >"$work/curve"
awk '$7 == "%" && $1 != "budget" { print $1, $4, $6 }' "$work/output" >"$work/policies"
[ -s "$work/curve" ] && [ -s "$work/policies" ] || fail "$1 printed no curve"

cat >"$work/script" <<'END'
set terminal svg size 860,500 font "sans-serif,14" background "white" name "recompute"
set output "svg"
set xrange [0:105]
set yrange [95:175]
set title "4 blocks of width 128, context 1024, 4 texts, bf16"
set xlabel "activations, % of those without recomputation"
set ylabel "operations of a pass, %"
set border 3 lc "#888888"
set grid lc "#dddddd" lt 1
set tics nomirror out textcolor "black"
set rmargin 6
set key top right Left reverse samplen 2
plot "curve" using 1:2 with fsteps lw 2 lc rgb "#1f77b4" title "the least time within each budget", \
     "policies" using 2:3 with points pt 6 ps 1.2 lw 2 lc rgb "#d95f02" title "policies", \
     "policies" using 2:3:1 with labels left offset 0.8,0.8 textcolor rgb "#d95f02" notitle
END
draw "$2"
