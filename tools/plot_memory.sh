#!/bin/bash
# plot_memory.sh MEMORY_MODEL OUT.svg: what a rank needs in each stage over the number of ranks, by
# //zero/plan:memory_model, and the figures that the ZeRO paper published for the same model.
# The first argument comes from Bazel: bazel run //tools:plot_memory -- docs/images/zero_memory.svg
[[ " $* " != *" --help "* ]] || { sed -n '2,/^[^#]/s/^# \?//p' "$0" && exit; }
. tools/figure.sh

"$1" --params=7.5e9 --ranks=1,2,4,8,16,32,64,128,256,512,1024 >"$work/output" ||
  fail "$1 failed"
# The second table's rows are: ranks, stage, GB by purpose, total. Ours: ranks, and the totals of
# all stages.
awk '/^Brigade/ { ours = 1 }
     ours && $2 ~ /^[0-3]$/ { printf "%s%s%s", $2 == 0 ? $1 " " : "", $NF, $2 == 3 ? "\n" : " " }' \
  "$work/output" >"$work/ours"
# arXiv 1910.02054, table 1: GB for 7.5e9 parameters on N ranks in stages 1, 2, 3.
cat >"$work/paper" <<'END'
4 52.5 41.3 30
16 35.6 21.6 7.5
64 31.4 16.6 1.88
256 30.4 15.4 0.47
1024 30.1 15.1 0.12
END

cat >"$work/script" <<'END'
set terminal svg size 860,500 font "sans-serif,14" background "white" name "zero_memory"
set output "svg"
set logscale x 2
set logscale y 10
set xrange [1:1024]
set yrange [0.1:200]
set title "7.5e9 parameters, 16 bits, Adam"
set xlabel "ranks"
set ylabel "GB per rank"
set format y "%g"
set border 3 lc "#888888"
set grid lc "#dddddd" lt 1
set tics nomirror out textcolor "black"
set rmargin 12
set key bottom left Left reverse samplen 2
color(stage) = word("#666666 #1f77b4 #d95f02 #1b9e77", stage + 1)
plot for [stage = 0:3] "ours" using 1:stage + 2 with lines lw 2 lc rgb color(stage) notitle, \
     for [stage = 0:3] "ours" every ::10 using 1:stage + 2:(sprintf("stage %d", stage)) \
         with labels left offset 1.5,0 textcolor rgb color(stage) notitle, \
     for [stage = 1:3] "paper" using 1:stage + 1 with points pt 6 ps 1.2 lw 2 lc rgb color(stage) notitle, \
     NaN with lines lw 2 lc "black" title "Brigade, by its memory model", \
     NaN with points pt 6 ps 1.2 lw 2 lc "black" title "the ZeRO paper's table"
END
draw "$2"
