# figure.sh: what the scripts share that draw a figure of docs/images, PROGRAM OUT.svg. Sourced from
# the repository's root, it checks their arguments and leaves a folder $work; `draw` carries out the
# gnuplot script in $work/script, whose output is called svg.
set -u -o pipefail
export LC_ALL=C.UTF-8
name=$(basename "$0" .sh)

fail() {
  printf 'tools/%s: %s\n' "$name" "$*" >&2
  exit 1
}

draw() {
  (cd "$work" && gnuplot script) 2>"$work/error" || fail "gnuplot failed: $(cat "$work/error")"
  cd "${BUILD_WORKING_DIRECTORY:-.}" || exit 1
  cat "$work/svg" 2>/dev/null >"$1" || fail "$1: cannot be written"
  echo "$1"
}

if [ $# != 2 ] || [[ $2 == -* ]]; then
  echo "tools/$name: usage: bazel run //tools:$name -- OUT.svg" >&2
  exit 2
fi
command -v gnuplot >/dev/null ||
  fail "gnuplot is not installed; run tools/setup, or apt-get install gnuplot-nox"
work=$(mktemp -d) || fail "cannot make a temporary folder"
trap 'rm -rf "$work"' EXIT
