#!/bin/bash
# plot.sh FILE.jsonl [OUT.png]: draws a training run's metrics, by default into FILE.png.
#
# A line of the file is a JSON object: step, and some of loss, held_out_loss, loss_scale, skipped
# and tokens_per_second. Panels are drawn for what there is.
[[ " $* " != *" --help "* ]] || { sed -n '2,/^[^#]/s/^# \?//p' "$0" && exit; }
set -u -o pipefail
export LC_ALL=C.UTF-8

fail() {
  printf 'tools/plot: %s\n' "$*" >&2
  exit 1
}

if { [ $# != 1 ] && [ $# != 2 ]; } || [[ $1 == -* ]]; then
  echo "tools/plot: usage: bazel run //tools:plot -- FILE.jsonl [OUT.png]" >&2
  exit 2
fi
cd "${BUILD_WORKING_DIRECTORY:-.}" || exit 1
file=$1
out=${2:-${file%.jsonl}.png}
for tool in jq:jq gnuplot:gnuplot-nox; do
  command -v "${tool%:*}" >/dev/null ||
    fail "${tool%:*} is not installed; run tools/setup, or apt-get install ${tool#*:}"
done
[ -e "$file" ] || fail "$file: no such file"
[ -f "$file" ] && [ -r "$file" ] || fail "$file: cannot be read"
[ -s "$file" ] || fail "$file: is empty"
work=$(mktemp -d) || fail "cannot make a temporary folder"
trap 'rm -rf "$work"' EXIT

# One row a line: step, loss, held-out loss, loss scale, that of a skipped step, tokens/s; "-" is
# none. Not the line that jq counts: the last one may lack its end.
jq -nRr '
  foreach inputs as $text (0; . + 1;
    . as $line | (try ($text | fromjson) catch null)
    | if type == "object" then . else
        "line \($line) is not a JSON object: \($text[:60])\n" | halt_error(1)
      end
    | ((.loss_scale | numbers | select(. > 0)) // null) as $scale
    | [.step, .loss, .held_out_loss, $scale, (if .skipped == true then $scale else null end),
       .tokens_per_second]
    | map(if type == "number" and (isnan or isinfinite | not) then . else "-" end)
    | select(.[0] != "-") | @tsv)' \
  "$file" >"$work/rows" 2>"$work/error" || fail "$file: $(cat "$work/error")"

has() { awk -v column="$1" '$column != "-" { found = 1 } END { exit !found }' "$work/rows"; }
panels=()
if has 2 || has 3; then panels+=(loss); fi
has 4 && panels+=(scale)
has 6 && panels+=(rate)
[ ${#panels[@]} -gt 0 ] ||
  fail "$file: no line has a step with loss, held_out_loss, loss_scale or tokens_per_second"

{
  cat <<END
set terminal pngcairo size 1200,$((80 + 320 * ${#panels[@]})) font "Sans,12" background "white"
set output "png"
set datafile missing "-"
panels = ${#panels[@]}.0
set multiplot layout panels,1 title system("cat title") noenhanced \
  margins screen 0.07,0.97,0.19/panels,1-0.22/panels spacing screen 0.15/panels
set border 3 lc "#888888"
set grid lc "#dddddd" lt 1
set tics nomirror out textcolor "black"
set key top right
stats "rows" using 1 nooutput
set xrange [STATS_min - 0.5:STATS_max + 0.5]
set format x ""
END
  for panel in "${panels[@]}"; do
    [ "$panel" != "${panels[-1]}" ] || printf 'set format x "%%g"\nset xlabel "step"\n'
    case $panel in
      loss) cat <<'END' ;;
set label 1 "loss" at graph 0,1.06
plot "rows" using 1:2 with lines lw 1.5 lc "#1f77b4" title "training", \
     "" using 1:3 with linespoints pt 7 ps 0.9 lw 2 lc "#d95f02" title "held out"
END
      scale) cat <<'END' ;;
set label 1 "loss scale" at graph 0,1.06
stats "rows" using 4 nooutput
set yrange [STATS_min / 2:STATS_max * 2]
set logscale y 2
set format y "2^{%L}"
plot "rows" using 1:4 with steps lw 2 lc "#1b9e77" notitle, \
     "" using 1:5 with points pt 2 ps 1.3 lw 2 lc "#d62728" title "skipped step"
unset logscale y
set format y "%h"
END
      rate) cat <<'END' ;;
set label 1 "tokens per second" at graph 0,1.06
set yrange [0:*]
plot "rows" using 1:6 with lines lw 1.5 lc "#7570b3" notitle
END
    esac
  done
} >"$work/script"
printf '%s' "${file##*/}" >"$work/title"
(cd "$work" && gnuplot script) 2>"$work/error" || fail "gnuplot failed: $(cat "$work/error")"
cat "$work/png" 2>/dev/null >"$out" || fail "$out: cannot be written"
echo "$out"
