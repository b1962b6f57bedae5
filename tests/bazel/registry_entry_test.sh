#!/bin/bash
# What the entry for the module registry (.bcr/) and the pages say of the module is what MODULE.bazel
# and the build graph say: names, versions, the oldest Bazel; and what the registry's CI builds needs
# no library that only a machine has.
set -u -o pipefail
export LC_ALL=C

status=0
# expect_equal WHAT EXPECTED GOT
expect_equal() {
  [ -n "$2" ] && [ "$2" = "$3" ] && return
  printf '%s: expected "%s", got "%s"\n' "$@"
  status=1
}

# The value of an attribute of module(), and the version of the bazel_dep of a module.
of_module() { sed -nE '/^module\(/,/^\)/s/^ *'"$1"' = \[?"([^"]*)"\]?,$/\1/p' MODULE.bazel; }
of_dependency() { sed -nE 's/^bazel_dep\(name = "'"$1"'", version = "([^"]*)"\)$/\1/p' MODULE.bazel; }

name=$(of_module name)
version=$(of_module version)
yaml=.bcr/presubmit.yml

for file in metadata source; do
  jq -e 'type == "object"' .bcr/$file.template.json >/dev/null || status=1
done
# What the registry asks of an entry.
jq -e 'has("homepage") and ([.maintainers, .repository, .versions | type] == ["array", "array", "array"])
  and (.yanked_versions | type == "object")' .bcr/metadata.template.json >/dev/null ||
  expect_equal "keys of metadata.template.json" "homepage, maintainers, repository, versions, yanked_versions" "$(jq -c keys .bcr/metadata.template.json)"
# The archive's folder is its file's name, as far as the version goes.
expect_equal "folder in the archive" "$(jq -r .strip_prefix .bcr/source.template.json)" \
  "$(jq -r .url .bcr/source.template.json | sed -E 's|.*/||; s/\.tar\.gz$//; s/\{TAG\}/{VERSION}/')"

# The oldest Bazel of the matrix is the oldest that the module takes.
expect_equal "oldest Bazel of $yaml" "$(of_module bazel_compatibility | sed -nE 's/^>=([0-9]+)\..*/\1/p')" \
  "$(sed -n 's/^  bazel: //p' $yaml | grep -o '[0-9]*\.x' | sort -n | sed -n '1s/\.x//p')"

# The target is one of this module's, and one that the build graph has.
target=$(sed -n '/^    build_targets:/,/^    [a-z]/s/^      - "\(.*\)"$/\1/p' $yaml)
expect_equal "module of $target" "@$name" "${target%%//*}"
package=${target#*//}
grep -qxE "(@@?)?//$package:${package##*/}" tests/bazel/published_target ||
  expect_equal "label in the build graph" "//$package:${package##*/}" ""

# Of the machine's libraries it needs those that modules bring, which are dependencies of this one.
needed=$(sed -n 's/^.*system\/\/:\([a-z_]*\)$/\1/p' tests/bazel/published_target | sort -u)
[ -n "$needed" ] || expect_equal "libraries of $target" "some" ""
for library in $needed; do
  module=$(tools/externals.py modules | sed -n "s/^\([^ ]*\) [^ ]* $library\( .*\|\)$/\1/p" | sort -u)
  [ -n "$(of_dependency "$module")" ] ||
    expect_equal "module of $library, which $target needs" "a dependency" "$module"
done

for page in README.md docs/using_one_target.md; do
  for module in "$name=$version" "rules_cc=$(of_dependency rules_cc)"; do
    expect_equal "version of ${module%=*} in $page" "${module#*=}" \
      "$(sed -nE 's/^bazel_dep\(name = "'"${module%=*}"'", version = "(.*)"\)$/\1/p' $page | sort -u)"
  done
done
expect_equal "version in CMakeLists.txt" "$version" \
  "$(sed -nE 's/^project\(.* VERSION ([0-9.]*) .*/\1/p' CMakeLists.txt)"
exit $status
