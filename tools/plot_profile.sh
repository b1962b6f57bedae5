#!/bin/bash
# plot_profile.sh PROFILE OUT.svg: a profile that the trainer has written (--profile=PROFILE): what
# kernels reach beside the roofline, and by what the time of each unit was limited.
# bazel run //tools:plot_profile -- PROFILE OUT.svg
[[ " $* " != *" --help "* ]] || { sed -n '2,/^[^#]/s/^# \?//p' "$0" && exit; }
if [ $# != 2 ] || [[ $1 == -* ]] || [[ $2 == -* ]]; then
  echo "tools/plot_profile: usage: bazel run //tools:plot_profile -- PROFILE OUT.svg" >&2
  exit 2
fi
. tools/figure.sh

profile=$1
[[ $profile == /* ]] || profile=${BUILD_WORKING_DIRECTORY:-.}/$profile
[ -r "$profile" ] || fail "cannot read $1"
# "ceilings of a rank   31.66 Gflop/s, 8.52 GB/s of memory, ..."
read -r peak memory < <(awk '/^ceilings of a rank/ { print $5, $7 }' "$profile")
title=$(awk '/^Profile of step/ { print; exit }' "$profile")
[ -n "${peak-}" ] && [ -n "$title" ] || fail "$1 is no profile"
# Rows are: stream, pass, name, calls, ms, GB/s, of memory, Gflop/s, of peak, flop/B, of roof, limit.
awk '/^Kernels/ { inside = 1; next } /^$/ { inside = 0 }
  inside && NF == 12 && $8 > 0 { print $10, $8, $3, $2 }' "$profile" >"$work/kernels"
# Rows are: unit, 10 numbers, compute, memory, network, host, limit. Parts of units have a second dot
# or come behind a unit of their name.
awk '/^Units/ { inside = 1; next } /^$/ { inside = 0 }
  inside && $NF ~ /^(compute|memory|network|host)$/ && $1 != "unit" && !/\.(products|attention|norms|other) / {
    name = $1 == "between" ? "between" : $1
    print name, $(NF - 4) + 0, $(NF - 3) + 0, $(NF - 2) + 0, $(NF - 1) + 0 }' "$profile" >"$work/units"
[ -s "$work/units" ] || fail "$1 has no table of units: it was written without \"detailed\""

cat >"$work/script" <<END
peak = $peak
memory = $memory
set terminal svg size 1000,480 font "sans-serif,13" background "white" name "profile"
set output "svg"
set border 3 lc "#888888"
set grid lc "#dddddd" lt 1
set tics nomirror out textcolor "black"
set multiplot title "$title"
set size 0.54, 0.95
set origin 0, 0
set logscale xy
set format xy "%g"
set xrange [0.5:*]
set yrange [peak / 1000:peak * 2]
set xlabel "operations a byte"
set ylabel "Gflop/s of a rank"
set key bottom right samplen 2
roof(x) = memory > 0 && memory * x < peak ? memory * x : peak
END
if [ -s "$work/kernels" ]; then
  cat >>"$work/script" <<'END'
plot [x = 0.5:1000] roof(x) lw 2 lc rgb "#888888" title "roofline of the measured ceilings", \
     "kernels" using 1:2 with points pt 7 ps 0.9 lc rgb "#1f77b4" title "kernels", \
     "kernels" using (strcol(4) eq "forward" ? $1 : 1 / 0):2:(sprintf("%s, %s", strcol(3), strcol(4))) \
       with labels left offset 0.7,0 font ",10" noenhanced textcolor rgb "#1f77b4" notitle, \
     "kernels" using (strcol(4) eq "forward" ? 1 / 0 : $1):2:(sprintf("%s, %s", strcol(3), strcol(4))) \
       with labels right offset -0.7,0 font ",10" noenhanced textcolor rgb "#1f77b4" notitle
END
else
  cat >>"$work/script" <<'END'
plot [x = 0.5:1000] roof(x) lw 2 lc rgb "#888888" title "roofline of the measured ceilings"
END
fi
cat >>"$work/script" <<'END'
unset logscale
set format "%g"
set size 0.46, 0.95
set origin 0.54, 0
set xrange [-0.6:*]
set yrange [0:100]
set xlabel ""
set ylabel "% of the time on the ranks"
set key outside top center horizontal samplen 1
set style data histograms
set style histogram rowstacked
set style fill solid 0.9 noborder
set boxwidth 0.8
set xtics rotate by -40 noenhanced
plot "units" using 2:xtic(1) lc rgb "#1b9e77" title "compute", \
     "" using 3 lc rgb "#1f77b4" title "memory", \
     "" using 4 lc rgb "#d95f02" title "network", \
     "" using 5 lc rgb "#bbbbbb" title "host"
unset multiplot
END
draw "$2"
