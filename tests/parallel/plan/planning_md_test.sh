#!/bin/bash
# planning_md_test.sh BINARY: the commands of docs/planning.md print what stands under them, and its
# picture is what the planner draws.
set -u -o pipefail
export LC_ALL=C.UTF-8
plan=$1
page=docs/planning.md
status=0
wrong() {
  printf '%s\n' "$*"
  status=1
}

# block TEXT: the page's block of output that holds the text.
block() {
  awk -v text="$1" '
    /^```/ {
      if (inside && output && index(code, text)) printf "%s", code
      inside = !inside; output = $0 == "```"; code = ""
      next
    }
    inside { code = code $0 "\n" }' "$page"
}

# prints TEXT FLAG...: what the page has in the block with this text.
prints() {
  local text=$1
  shift
  BUILD_WORKING_DIRECTORY=$TEST_TMPDIR "$plan" "$@" >"$TEST_TMPDIR/out" || wrong "$* fails"
  [ -z "$text" ] || diff <(block "$text") "$TEST_TMPDIR/out" || wrong "$* prints something else"
}

commands=$(sed -n 's/^bazel run \/\/parallel:plan -- \([^#]*\).*/\1/p' "$page")
[ "$(wc -l <<<"$commands")" = 4 ] || wrong "the page has not 4 commands"
while read -r -a flags; do
  case ${flags[*]} in
    --published) prints 'published in' "${flags[@]}" ;;
    *--svg=docs/images/*) prints ' are left out' "${flags[@]/docs\/images\//}" ;;
    *) prints '' "${flags[@]}" ;;
  esac
done <<<"$commands"
cmp "$TEST_TMPDIR/frontier.svg" docs/images/frontier.svg ||
  wrong "bazel run //parallel:plan -- --params=175e9 --ranks=1024 --svg=docs/images/frontier.svg"

exit $status
