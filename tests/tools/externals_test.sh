#!/bin/bash
# bazel/libraries.bzl has constants alone, as the tools read them, and what it says is also in
# MODULE.bazel and tools/setup; tools/externals.py finds by it whose a header is, and says what is
# wrong with a table.
set -u
export LC_ALL=C PYTHONDONTWRITEBYTECODE=1
python3 - <<'END' || exit 1
import ast
import sys

sys.path.insert(0, "tools")
import externals

# Bazel loads the file as it is: what Python reads of it must be all that there is.
tree = ast.parse(open(externals.TABLE, encoding="utf-8").read())
names = [s.targets[0].id for s in tree.body if isinstance(s, ast.Assign)]
assert names == ["ABSL_HEADERS", "LIBRARIES"], names
assert len(tree.body) == 3 and ast.get_docstring(tree), "more than a text and two constants"
for statement in tree.body:
    ast.literal_eval(statement.value)

table = externals.Table(".")
assert table.owner("absl/status/status.h").name == "absl"
assert table.owner("absl/flags/flag.h").name == "absl_flags"
assert table.owner("vector") is None
assert table.cmake_target("absl/status/statusor.h") == "absl::statusor"
assert table.cmake_target("hwy/highway.h") == "hwy::hwy"
assert table.cmake_target("cblas.h") == ""
try:
    table.cmake_target("absl/strings/cord.h")
    sys.exit("a header of Abseil that the table lacks is taken")
except externals.Error as error:
    assert "no target for absl/strings/cord.h" in str(error), error
for library in table.libraries.values():
    assert library.header.startswith(library.includes), library
    assert bool(library.cmake_package) == bool(library.cmake_target), library
END

fail() {
  printf '%s\n' "$*"
  exit 1
}
[ "$(tools/externals.py debian | wc -l)" -gt 5 ] || fail "few Debian packages"
for package in $(tools/externals.py debian); do
  grep -qx "  $package" tools/setup || fail "tools/setup does not install $package"
done
[ "$(tools/externals.py modules | wc -l)" -gt 10 ] || fail "few targets of modules"
for module in $(tools/externals.py modules | cut -d' ' -f1 | sort -u); do
  grep -q "^bazel_dep(name = \"$module\"," MODULE.bazel || fail "MODULE.bazel has no $module"
done

# A table with mistakes.
mkdir -p "$TEST_TMPDIR"/{tools,bazel} && cp tools/externals.py "$TEST_TMPDIR/tools" || exit 1
refuses() { # TEXT LINE...
  local text=$1 said
  shift
  printf '%s\n' "$@" >"$TEST_TMPDIR/bazel/libraries.bzl"
  said=$("$TEST_TMPDIR/tools/externals.py" debian 2>&1) && fail "takes $*"
  [[ $said == *"$text"* ]] || fail "refuses $* without '$text': $said"
}
refuses 'assigns no ABSL_HEADERS' 'LIBRARIES = {}'
refuses 'ABSL_HEADERS of bazel/libraries.bzl cannot be read' 'ABSL_HEADERS = f()' 'LIBRARIES = {}'
refuses "unexpected keyword argument 'linked'" 'ABSL_HEADERS = {}' 'LIBRARIES = {"a": {"linked": []}}'
tools/externals.py nothing 2>/dev/null && fail "takes a question that it does not know"
exit 0
