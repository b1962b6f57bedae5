# figure_test.sh TOOL: what the tests of the tools share that draw a figure of docs/images. Sourced
# from the repository's root.
set -u
tool=$1
drawn=$TEST_TMPDIR/drawn.svg
status=0
wrong() {
  printf '%s\n' "$*"
  status=1
}

# draws ARGUMENT...: the figure that the calls below look at.
draws() {
  local program=$1
  shift
  "tools/$tool.sh" "$program" "$drawn" "$@" || wrong "tools/$tool fails"
}

# is_figure FILE: the file is what was drawn, if it comes from the same release of gnuplot: every one
# has its own way with numbers.
is_figure() {
  version() { grep -o 'Produced by GNUPLOT.*' "$1"; }
  [ "$(version "$drawn")" != "$(version "$1")" ] || cmp "$drawn" "$1" ||
    wrong "bazel run //tools:$tool -- $1"
}

# has TEXT...
has() {
  local text
  for text in "$@" '</svg>'; do
    grep -q "$text" "$drawn" || wrong "the figure has no '$text'"
  done
}

# fails TEXT ARGUMENT...: with this text, and without a figure.
fails() {
  local expected="tools/$tool: $1" said
  shift
  said=$("tools/$tool.sh" "$@" 2>&1 >/dev/null) && wrong "$* succeeds"
  [[ $said == *"$expected" ]] || wrong "expected '$expected', got '$said'"
}

# fails_alike PROGRAM: in the ways that all of them have.
fails_alike() {
  fails "usage: bazel run //tools:$tool -- OUT.svg" "$1"
  fails "/bin/false failed" /bin/false "$TEST_TMPDIR/none.svg"
  fails "/nowhere/figure.svg: cannot be written" "$1" /nowhere/figure.svg
}
