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
    $0 == "```" && !inside { inside = 1; code = ""; next }
    /^```/ { if (inside && index(code, text)) printf "%s", code; inside = 0; next }
    inside { code = code $0 "\n" }' "$page"
}

commands=$(sed -n 's/^bazel run \/\/parallel:plan -- \([^#]*\).*/\1/p' "$page")
[ "$(wc -l <<<"$commands")" -ge 3 ] || wrong "the page has no commands"
while read -r flags; do
  # shellcheck disable=SC2086
  BUILD_WORKING_DIRECTORY=$TEST_TMPDIR "$plan" ${flags//docs\/images\/frontier.svg/frontier.svg} >"$TEST_TMPDIR/out" || wrong "$flags fails"
done <<<"$commands"
cmp "$TEST_TMPDIR/frontier.svg" docs/images/frontier.svg ||
  wrong "bazel run //parallel:plan -- --params=175e9 --ranks=1024 --svg=docs/images/frontier.svg"

"$plan" --published >"$TEST_TMPDIR/published"
diff <(block 'published in') "$TEST_TMPDIR/published" || wrong "the page's published table is not what is printed"
"$plan" --params=175e9 --ranks=1024 >"$TEST_TMPDIR/search"
diff <(block 'are left out') "$TEST_TMPDIR/search" || wrong "the page's search is not what is printed"

exit $status
