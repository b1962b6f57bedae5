#!/bin/bash
# The entry for the module registry (.bcr/) and the pages that name the module agree with
# MODULE.bazel, and the registry's CI builds a target that there is and that needs no library of the
# machine.
set -u -o pipefail

status=0
# expect_equal WHAT EXPECTED GOT
expect_equal() {
  [ "$2" = "$3" ] && return
  printf '%s: expected "%s", got "%s"\n' "$@"
  status=1
}

# The value of an attribute of module() or of the bazel_dep of a module.
of_module() { sed -nE '/^module\(/,/^\)/s/^ *'"$1"' = \[?"([^"]*)"\]?,$/\1/p' MODULE.bazel; }
of_dependency() { sed -nE 's/^bazel_dep\(name = "'"$1"'", version = "([^"]*)"\)$/\1/p' MODULE.bazel; }

name=$(of_module name)
version=$(of_module version)
expect_equal "name of the module" brigade "$name"
[[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || expect_equal "version of the module" X.Y.Z "$version"

for file in metadata source; do
  jq -e 'type == "object"' .bcr/$file.template.json >/dev/null || status=1
done
expect_equal "keys of metadata.template.json" \
  "homepage maintainers repository versions yanked_versions" \
  "$(jq -r 'keys | join(" ")' .bcr/metadata.template.json)"
expect_equal "keys of source.template.json" "integrity strip_prefix url" \
  "$(jq -r 'keys | join(" ")' .bcr/source.template.json)"
# The values that the registry's publishing app knows.
expect_equal "placeholders of source.template.json" "{OWNER} {REPO} {TAG} {VERSION}" \
  "$(grep -o '{[A-Z]*}' .bcr/source.template.json | sort -u | paste -sd' ')"

# The lines of presubmit.yml: two spaces for each level, keys, and items of lists.
yaml=.bcr/presubmit.yml
wrong=$(grep -nvE '^(#.*|(  )*((- )?"[^"]*"|[a-z_]+:( ("[^"]*"|\[("[^"]*"(, )?)+\]|\$\{\{ [a-z]+ \}\}))?))$' $yaml)
expect_equal "lines of presubmit.yml that are no YAML of this kind" "" "$wrong"
expect_equal "matrix of Bazels" '["7.x", "8.x", "9.x"]' "$(sed -n 's/^  bazel: //p' $yaml)"
expect_equal "oldest Bazel" ">=7.0.0" "$(of_module bazel_compatibility)"
grep -qxF '      - "--repo_env=BRIGADE_CUDA_TOOLKIT=none"' $yaml ||
  expect_equal "a build without a CUDA toolkit" "--repo_env=BRIGADE_CUDA_TOOLKIT=none" ""

# The target, and what of the machine's libraries it needs: those that the registry has.
target=$(sed -n '/^    build_targets:/,/^    [a-z]/s/^      - "\(.*\)"$/\1/p' $yaml)
expect_equal "target of presubmit.yml" @brigade//kernels/adam "$target"
grep -qxE '(@@?)?//kernels/adam:adam' tests/bazel/published_target ||
  expect_equal "label in the build graph" //kernels/adam:adam ""
libraries=$(sed -n 's/^.*system\/\/:\([a-z_]*\)$/\1/p' tests/bazel/published_target | sort)
[[ $libraries == *absl* ]] || expect_equal "libraries of $target" absl "$libraries"
expect_equal "libraries of $target that only the machine has" "" \
  "$(grep -vxE 'absl|absl_flags|hwy|json' <<<"$libraries")"

for page in README.md docs/using_one_target.md; do
  expect_equal "version in $page" "$version" \
    "$(sed -nE 's/^bazel_dep\(name = "brigade", version = "(.*)"\)$/\1/p' $page | sort -u)"
  expect_equal "version of rules_cc in $page" "$(of_dependency rules_cc)" \
    "$(sed -nE 's/^bazel_dep\(name = "rules_cc", version = "(.*)"\)$/\1/p' $page | sort -u)"
done
exit $status
