#!/bin/bash
# plot_offload.sh SHARE OUT.svg [FOLDER]: a rank's memory by tier and the time of its step against the
# share of the optimizer state that is offloaded, as //benchmarks/offload:share measures it here;
# with a folder on a disk also with all of it in a file.
# The first argument comes from Bazel: bazel run //tools:plot_offload -- docs/images/offload.svg /mnt/disk
[[ " $* " != *" --help "* ]] || { sed -n '2,/^[^#]/s/^# \?//p' "$0" && exit; }
folder=${3-}
set -- "${@:1:2}"
. tools/figure.sh

"$1" ${folder:+--folder="$folder"} >"$work/output" || fail "$1 failed"
# Rows are: share, bytes an element on device, host and in the file, ms.
awk '$1 ~ /^[0-9.]+$/ { print $1, $2, $3, $5 }' "$work/output" >"$work/shares"
awk '$1 == "file" { print 1.12, $2, $3, $5 }' "$work/output" >"$work/file"
[ -s "$work/shares" ] || fail "$1 printed no shares"

cat >"$work/script" <<'END'
set terminal svg size 860,500 font "sans-serif,14" background "white" name "offload"
set output "svg"
set xrange [0:1.2]
set yrange [0:24]
set y2range [0:*]
set xtics 0.25 add ("file" 1.12)
set ytics 4
set y2tics
set xlabel "share of the optimizer state on the host"
set ylabel "bytes an element"
set y2label "ms a step"
set border 11 lc "#888888"
set grid lc "#dddddd" lt 1
set tics nomirror out textcolor "black"
set key outside top center horizontal samplen 2
set style data linespoints
plot "shares" using 1:2 lw 2 pt 7 ps 0.6 lc rgb "#1f77b4" title "on the device", \
     "shares" using 1:3 lw 2 pt 7 ps 0.6 lc rgb "#1b9e77" title "on the host", \
     "shares" using 1:4 axes x1y2 lw 2 pt 6 lc rgb "#d95f02" title "ms a step"
END
[ ! -s "$work/file" ] || cat >>"$work/script" <<'END'
set output "svg"
replot "file" using 1:2 with points pt 7 ps 1 lc rgb "#1f77b4" notitle, \
       "file" using 1:3 with points pt 7 ps 1 lc rgb "#1b9e77" notitle, \
       "file" using 1:(19):(sprintf("%.0f ms", $4)) with labels textcolor rgb "#d95f02" notitle
END
draw "$2"
