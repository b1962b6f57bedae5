#!/bin/bash
# plot_predict.sh PREDICT OUT.svg: the bus bandwidth of an all-reduce on 128 nodes of 8 H100 by each
# algorithm over the size of the message, by //collectives/tuning:predict. The first argument comes
# from Bazel: bazel run //tools:plot_predict -- docs/images/predicted_all_reduce.svg
[[ " $* " != *" --help "* ]] || { sed -n '2,/^[^#]/s/^# \?//p' "$0" && exit; }
. tools/figure.sh

"$1" --ranks=1024 --operation=all_reduce --tsv >"$work/predicted" || fail "$1 failed"
# A file for each algorithm: MiB, GB/s.
for algorithm in $(tail -n +2 "$work/predicted" | cut -f2 | sort -u); do
  awk -v algorithm="$algorithm" '$2 == algorithm { print $1 / 1048576, $4 }' "$work/predicted" >"$work/$algorithm"
done

cat >"$work/script" <<'END'
set terminal svg noenhanced size 960,500 font "sans-serif,14" background "white" name "predicted_all_reduce"
set output "svg"
set logscale xy 10
set xrange [0.001:4096]
set yrange [0.0001:1000]
set title "All-reduce on 128 nodes of 8 H100, a 400 Gb/s NIC each, predicted"
set xlabel "MiB"
set ylabel "bus bandwidth, GB/s"
set format "%g"
set border 3 lc "#888888"
set grid lc "#dddddd" lt 1
set tics nomirror out textcolor "black"
set key outside right center Left reverse samplen 2
algorithms = "double_tree halving_doubling hierarchical bidirectional_ring direct ring parameter_server"
colors = "#1b9e77 #7570b3 #e7298a #d95f02 #1f77b4 #000000 #999999"
plot for [i = 1:7] word(algorithms, i) using 1:2 with lines lw 2 lc rgb word(colors, i) title word(algorithms, i)
END
draw "$2"
