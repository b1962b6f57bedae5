#!/bin/bash
# tools/vendor on a small checkout with a build graph of the test's own: what it writes, what --check
# tells, what it refuses. tests/kernels/vendoring compiles and runs what it writes of the kernels.
set -u -o pipefail
export LC_ALL=C
# Paths may have blanks.
work="$TEST_TMPDIR/a folder"
mkdir -p "$work"
checkout=$work/checkout out=$work/out graph=$work/graph.xml

fail() {
  printf 'FAILED: %s\n' "$*" >&2
  exit 1
}

# expect STATUS TEXT ARGUMENT...: the tool ends with the status and says the text, a grep -E pattern.
expect() {
  local status=$1 text=$2 got said
  shift 2
  said=$("$checkout/tools/vendor" "$@" 2>&1)
  got=$?
  [ $got -eq "$status" ] || fail "vendor $*: ended with $got, not $status: $said"
  grep -qE -e "$text" <<<"$said" || fail "vendor $*: says not '$text' but: $said"
}

# vendor ARGUMENT...: takes it into $out, with the test's graph.
vendor() {
  "$checkout/tools/vendor" "$@" --out "$out" --graph "$graph" >"$work/log" 2>&1 ||
    fail "vendor $*: ended with $?: $(cat "$work/log")"
}

# holds FILE TEXT: a whole line of the file.
holds() { grep -qxF -e "$2" "$out/$1" || fail "$1 has no line '$2': $(cat "$out/$1")"; }

in_checkout() { git -c safe.directory="$checkout" -c user.name=t -c user.email=t@t -C "$checkout" "$@"; }
commit() { in_checkout add -A && in_checkout commit -q -m "$1" || fail "git commit"; }

# rule NAME ATTRIBUTE=VALUE,VALUE...: a cc_library of the graph. VISIBILITY and TESTONLY are its own.
rule() {
  local name=$1 attribute value
  shift
  printf '<rule class="cc_library" name="%s"><list name="visibility"><label value="%s"/></list>' \
    "$name" "${VISIBILITY-//visibility:public}"
  [ -z "${TESTONLY-}" ] || printf '<boolean name="testonly" value="true"/>'
  for attribute in "$@"; do
    printf '<list name="%s">' "${attribute%%=*}"
    for value in $(tr ',' ' ' <<<"${attribute#*=}"); do printf '<label value="%s"/>' "$value"; done
    printf '</list>'
  done
  printf '</rule>\n'
}

mkdir -p "$checkout"/{lib,tools/vendoring,bazel,cmake}
cp LICENSE "$checkout"
cp bazel/cc.bzl bazel/libraries.bzl bazel/nvcc.bzl "$checkout/bazel"
cp cmake/refuse_fast_math.cmake "$checkout/cmake"
cp tools/vendor tools/build_graph.py tools/externals.py "$checkout/tools"
cp tools/vendoring/*.py "$checkout/tools/vendoring"
cat >"$checkout/lib/names.h" <<'END'
#ifndef BRIGADE_LIB_NAMES_H_
#define BRIGADE_LIB_NAMES_H_
#include "absl/strings/string_view.h"
#include "brigade/lib/spare.h"
// brigade::lib::Twice of "brigade/lib/names.h"; BRIGADE_TWICE, BRIGADE_CHECKS. Brigade's own.
#define BRIGADE_TWICE(x) (2 * (x))
#define HWY_TARGET_INCLUDE "lib/names.cc"
namespace brigade::lib {
inline const char* Text() { return "brigade::lib needs BRIGADE_CHECKS=1, \"brigade/lib\""; }
inline const char* Raw() { return R"(brigade::lib "BRIGADE_TWICE)"; }
inline constexpr int kThousand = 1'000 * ('"' == '"') + 0x1.8p-1 * 0;  // "BRIGADE_TWICE
int Twice(int x);
}  // namespace brigade::lib
#endif  // BRIGADE_LIB_NAMES_H_
END
cat >"$checkout/lib/names.cc" <<'END'
#include "brigade/lib/names.h"
int brigade::lib::Twice(int brigade_x) { return ::brigade::lib::kThousand * 0 + BRIGADE_TWICE(brigade_x); }
END
echo '#include <thread>' >"$checkout/lib/spare.h"
echo 'int OfBrigade(int x);' >"$checkout/lib/held.h"
echo '#include "brigade/lib/spare.h"' >"$checkout/lib/loose.h"
printf '#include <cblas.h>\n#include <sodium.h>\n' >"$checkout/lib/found.h"
echo '#include "brigade/lib/found.h"' >"$checkout/lib/found.cc"
cat >"$checkout/lib/optional.h" <<'END'
#if defined(BRIGADE_HAS_ONEDNN)
#include <oneapi/dnnl/dnnl.h>
#endif
END
{
  echo '<?xml version="1.1"?><query version="2">'
  rule //lib:names hdrs=//lib:names.h srcs=//lib:names.cc \
    deps=//lib:spare,//lib:unused,@system//:absl linkopts=-ldl \
    copts=-std=c++20,-Wall,-Werror,-ffp-contract=off,-ffp-contract=fast
  rule //lib:spare hdrs=//lib:spare.h
  rule //lib:unused hdrs=//lib:held.h deps=@system//:hwy
  rule //lib:held hdrs=//lib:held.h
  rule //lib:loose hdrs=//lib:loose.h
  rule //lib:lost hdrs=//lib:nowhere.h
  rule //lib:found hdrs=//lib:found.h srcs=//lib:found.cc deps=@system//:openblas,@system//:sodium,@system//:gloo
  rule //lib:optional hdrs=//lib:optional.h deps=@system//:onednn
  rule //lib:umbrella deps=//lib:names,//lib:inner
  rule //lib:inner deps=//lib:optional
  rule //lib:empty deps=@system//:absl
  VISIBILITY=//lib:__pkg__ rule //lib:private hdrs=//lib:spare.h
  TESTONLY=yes rule //lib:fake hdrs=//lib:spare.h
  echo '</query>'
} >"$graph"
in_checkout init -q && commit "First"

# Help, and what cannot be understood.
expect 0 'tools/vendor TARGET --out DIR' --help
expect 2 'TARGET and --out DIR are needed' --out "$out"
expect 2 'TARGET and --out DIR are needed' //lib:names
expect 2 'unrecognized arguments: --outt' //lib:names --out "$out" --outt
expect 2 '--all already has' //lib:names --out "$out" --all --cuda
expect 2 '--check DIR stands alone' --check "$out" //lib:names
expect 2 '--check DIR stands alone' --check "$out" --prefix x

# Refusals; none writes.
refuse() {
  local text=$1
  shift
  expect 2 "$text" "$@" --out "$out" --graph "$graph"
  [ ! -e "$out" ] || fail "vendor $*: has written"
}
refuse '^vendor: //lib:nothing is no library of the build graph$' //lib:nothing
refuse '^vendor: //lib:private is not public' //lib:private
refuse '^vendor: //lib:fake is for tests alone' //lib:fake
refuse '//lib:names has no CPU loop: there is no target //lib:names_cpu' //lib:names --cpu
refuse '//lib:names has no CUDA launcher: there is no target //lib:names_cuda' //lib:names --cuda
refuse 'lib/held.h:1: OfBrigade holds the project.s name' //lib:held --namespace x
refuse 'lib/loose.h includes "brigade/lib/spare.h", which no dependency of //lib:loose brings' \
  //lib:loose
refuse 'lib/nowhere.h of //lib:lost cannot be read: No such file' //lib:lost
refuse '^vendor: //lib:empty has no files' //lib:empty
refuse "--prefix '../a' is no folder to include from" //lib:names --prefix ../a
refuse "--namespace 'a::1' is none" //lib:names --namespace a::1
refuse "--namespace 'a::class': class is a keyword" //lib:names --namespace a::class
refuse "--namespace 'a::std': std would hide ::std" //lib:names --namespace a::std
refuse "--namespace 'a::b::a': one name twice" //lib:names --namespace a::b::a
python3 -B - "$checkout/tools" <<'END' || fail "names that are taken, or refused, wrongly"
import sys

sys.path.insert(0, sys.argv[1])
from vendoring import rewrite


def accepts(check, name):
    try:
        check(name)
    except rewrite.Error:
        return False
    return True


bad = ["", "/", "/usr", "a//b", "a/", "a/..", "a/./b", ".", "a b", 'a"b', "-a", "ä"]
assert not [name for name in bad if accepts(rewrite.check_prefix, name)]
assert all(accepts(rewrite.check_prefix, name) for name in ["a", "a/b-c/d.e", "3rd/_x/c++"])
bad = ["", "1a", "a::", "::a", "a:b", "a b", "_a", "a__b", "Ä", "a::int", "hwy"]
assert not [name for name in bad if accepts(rewrite.check_namespace, name)]
assert all(accepts(rewrite.check_namespace, name) for name in ["a", "a::b_c::D9", "kernels"])
END
expect 2 "'lib' is no label of this project" lib --out "$out"
mkdir "$out"
echo mine >"$out/file"
expect 2 "$out exists and is not of this tool: .* has no PROVENANCE" //lib:names --out "$out"
expect 2 'has no PROVENANCE' --check "$out"
expect 2 'exists and is no folder' //lib:names --out "$out/file"
[ "$(ls "$out")" = file ] || fail "a refusal has written: $(ls "$out")"
echo 'Somebody' >"$out/PROVENANCE"
expect 2 'exists and is not of this tool: .*PROVENANCE: it is not of tools/vendor' //lib:names --out "$out"
rm -r "$out"

# Under other names.
vendor //lib:names --prefix third_party/bk --namespace acme::bk
grep -q 'needs: C++20 or newer, Abseil, threads' "$work/log" || fail "$(cat "$work/log")"
grep -qF "CMake: add_subdirectory(\"$out\"), target acme_bk_lib_names" "$work/log" || fail "$(cat "$work/log")"
cat >"$work/names.h" <<'END'
#ifndef ACME_BK_LIB_NAMES_H_
#define ACME_BK_LIB_NAMES_H_
#include "absl/strings/string_view.h"
#include "third_party/bk/lib/spare.h"
// acme::bk::lib::Twice of "third_party/bk/lib/names.h"; ACME_BK_TWICE, BRIGADE_CHECKS. Brigade's own.
#define ACME_BK_TWICE(x) (2 * (x))
#define HWY_TARGET_INCLUDE "third_party/bk/lib/names.cc"
namespace acme::bk::lib {
inline const char* Text() { return "brigade::lib needs BRIGADE_CHECKS=1, \"brigade/lib\""; }
inline const char* Raw() { return R"(brigade::lib "BRIGADE_TWICE)"; }
inline constexpr int kThousand = 1'000 * ('"' == '"') + 0x1.8p-1 * 0;  // "ACME_BK_TWICE
int Twice(int x);
}  // namespace acme::bk::lib
#endif  // ACME_BK_LIB_NAMES_H_
END
diff "$work/names.h" "$out/third_party/bk/lib/names.h" || fail "names.h has other names"
cat >"$work/names.cc" <<'END'
#include "third_party/bk/lib/names.h"
int acme::bk::lib::Twice(int acme_bk_x) { return ::acme::bk::lib::kThousand * 0 + ACME_BK_TWICE(acme_bk_x); }
END
diff "$work/names.cc" "$out/third_party/bk/lib/names.cc" || fail "names.cc has other names"
g++ -std=c++20 -Wall -Wextra -Werror -I"$out" -c "$out/third_party/bk/lib/names.cc" -o "$work/o" ||
  fail "the renamed library does not compile"
cmp LICENSE "$out/LICENSE" || fail "another license"
holds PROVENANCE "commit: $(in_checkout rev-parse HEAD)"
holds PROVENANCE "uncommitted: -"
holds PROVENANCE "target: //lib:names"
holds PROVENANCE "command: tools/vendor //lib:names --out DIR --prefix third_party/bk --namespace acme::bk"
holds PROVENANCE "changed: prefix and namespace"
holds PROVENANCE "include path: ."
# The checkout's own flags, in the words of bazel/cc.bzl.
for flag in $(sed -nE '/^(BIT|FLOAT)_COPTS = /,/^]/s/^ *"(.*)",$/\1/p' bazel/cc.bzl); do
  grep -q "^flags: .*$flag" "$out/PROVENANCE" && grep -q "COMPILE_LANGUAGE:CXX.*$flag" "$out/CMakeLists.txt" ||
    fail "without $flag"
done
holds CMakeLists.txt "add_library(acme_bk_lib_names STATIC)"
holds CMakeLists.txt "  POSITION_INDEPENDENT_CODE ON"
holds CMakeLists.txt "target_compile_features(acme_bk_lib_names PUBLIC cxx_std_20)"
holds CMakeLists.txt '  find_package(absl REQUIRED)'
holds CMakeLists.txt '  absl::strings'
holds CMakeLists.txt '  Threads::Threads'
holds CMakeLists.txt '  dl'
holds CMakeLists.txt 'set_source_files_properties(third_party/bk/lib/names.cc PROPERTIES COMPILE_OPTIONS "-ffp-contract=fast")'
# Every file but PROVENANCE is in it, with its digest and that of its original.
files=$(sed '1,/^files: /d' "$out/PROVENANCE")
[ "$(wc -l <<<"$files")" -eq 5 ] && [ "$(find "$out" -type f | wc -l)" -eq 6 ] || fail "files: $files"
while read -r written original here there; do
  [ "$written" = "$(sha256sum <"$out/$here" | cut -d' ' -f1)" ] || fail "$here has another digest"
  [ "$there" = - ] || [ "$original" = "$(sha256sum <"$checkout/$there" | cut -d' ' -f1)" ] ||
    fail "$there has another digest"
done <<<"$files"

# check STATUS LINE...: --check says these lines and nothing else.
check() {
  local status=$1 said got
  shift
  said=$("$checkout/tools/vendor" --check "$out" --graph "$graph" 2>&1)
  got=$?
  [ $got -eq "$status" ] && [ "$said" = "$(printf '%s\n' "$@")" ] ||
    fail "--check ended with $got, not $status, or says not '$*' but: $said"
}
first=$(in_checkout rev-parse HEAD)
check 0 "$out is as written from $first, and nothing differs today"
cp -r "$out" "$work/copy"
echo >>"$out/third_party/bk/lib/names.h"
echo >>"$out/CMakeLists.txt"
rm "$out/third_party/bk/lib/spare.h"
touch "$out/notes"
check 1 "changed here: CMakeLists.txt" "changed here: third_party/bk/lib/names.h" "extra: notes" \
  "missing: third_party/bk/lib/spare.h"
expect 2 'changes that would be lost' //lib:names --out "$out" --graph "$graph"
rm -r "$out" && cp -r "$work/copy" "$out"

# Uncommitted upstream, then committed.
echo '// Later.' >>"$checkout/lib/names.cc"
check 1 "newer upstream: third_party/bk/lib/names.cc"
vendor //lib:names --prefix third_party/bk --namespace acme::bk
holds PROVENANCE "uncommitted: lib/names.cc"
commit "Second"
check 0 "$out is as written from $first, and nothing differs today"
vendor //lib:names --prefix third_party/bk --namespace acme::bk
holds PROVENANCE "uncommitted: -"
holds PROVENANCE "commit: $(in_checkout rev-parse HEAD)"
in_checkout checkout -q HEAD~1
check 1 "older upstream: third_party/bk/lib/names.cc"
in_checkout checkout -q --orphan other
echo '// Elsewhere.' >>"$checkout/lib/names.cc"
commit "Another line of work"
check 1 "other upstream: third_party/bk/lib/names.cc"

# Files that came and went upstream; what others have put there stays.
touch "$out/notes"
vendor //lib:names --prefix third_party/bk --namespace acme::bk
cp "$checkout/lib/names.h" "$work/with_spare.h"
sed -i '/spare.h/d' "$checkout/lib/names.h"
check 1 "extra: notes" "newer upstream: CMakeLists.txt" "newer upstream: third_party/bk/lib/names.h" \
  "no longer upstream: third_party/bk/lib/spare.h"
vendor //lib:names --prefix third_party/bk --namespace acme::bk
[ -e "$out/notes" ] && [ ! -e "$out/third_party/bk/lib/spare.h" ] || fail "a second run: $(find "$out")"
cp "$work/with_spare.h" "$checkout/lib/names.h"
check 1 "extra: notes" "newer upstream: CMakeLists.txt" "newer upstream: third_party/bk/lib/names.h" \
  "only upstream: third_party/bk/lib/spare.h"
echo mine >"$out/third_party/bk/lib/spare.h"
expect 2 'has files of others where this would write: third_party/bk/lib/spare.h' //lib:names \
  --prefix third_party/bk --namespace acme::bk --out "$out" --graph "$graph"
rm "$out/notes" "$out/third_party/bk/lib/spare.h"

# Under the project's names all is as it was, but for where a file includes itself from; the
# folder's earlier files go.
vendor //lib:names
[ ! -e "$out/third_party" ] || fail "the earlier prefix is still there"
sed -i 's|"lib/names.cc"|"brigade/lib/names.cc"|' "$checkout/lib/names.h"
for file in names.h names.cc spare.h; do
  cmp "$checkout/lib/$file" "$out/brigade/lib/$file" || fail "$file was changed"
done
holds PROVENANCE "changed: the path by which a file includes itself"
vendor //lib:names
holds PROVENANCE "changed: nothing"
rm -r "$out"

# A folder that ends with the prefix holds the files themselves.
out=$work/fw/third_party/bk
vendor //lib:names --prefix third_party/bk --namespace acme::bk
grep -q "include path: $work/fw$" "$work/log" || fail "$(cat "$work/log")"
holds PROVENANCE "include path: ../.."
holds CMakeLists.txt 'target_include_directories(acme_bk_lib_names PUBLIC "${CMAKE_CURRENT_SOURCE_DIR}/../..")'
check 0 "$out is as written from $(in_checkout rev-parse HEAD), and nothing differs today"
g++ -std=c++20 -I"$work/fw" -c "$out/lib/names.cc" -o "$work/o" || fail "does not compile"

# CMake finds libraries without a package of theirs by header and library, and names a missing one.
out=$work/found
vendor //lib:found
holds PROVENANCE "needs: libsodium; OpenBLAS"
cmake() { command cmake -S "$out" -B "$work/build" "$@" >"$work/log" 2>&1; }
cmake || fail "CMake does not find OpenBLAS and libsodium: $(cat "$work/log")"
sed -i 's/;sodium"/;sodium_of_nobody"/' "$out/CMakeLists.txt"
cmake && fail "CMake finds a library that nobody has"
tr -s ' \n' ' ' <"$work/log" | grep -q 'brigade_lib_found needs libsodium (libsodium-dev)' ||
  fail "CMake does not name what is missing: $(cat "$work/log")"

# A library without files of its own brings those of its deps.
rm -r "$work/build"
out=$work/umbrella
vendor //lib:umbrella --namespace acme::bk
[ "$(cd "$out/brigade/lib" && echo *)" = "names.cc names.h optional.h spare.h" ] ||
  fail "//lib:umbrella: $(find "$out")"

# A library that is optional is found by its header, and a macro says so.
out=$work/optional
vendor //lib:optional --namespace acme::bk
holds PROVENANCE "needs: oneDNN (optional)"
mkdir -p "$work/include/oneapi/dnnl"
touch "$work/include/oneapi/dnnl/dnnl.h"
cat >"$work/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.18)
project(user LANGUAGES CXX)
add_subdirectory(optional)
get_target_property(definitions acme_bk_lib_optional INTERFACE_COMPILE_DEFINITIONS)
get_target_property(folders acme_bk_lib_optional INTERFACE_INCLUDE_DIRECTORIES)
message(STATUS "user: ${definitions} ${folders}")
END
# user TEXT ARGUMENT...: what CMake tells the user.
user() {
  local text=$1
  shift
  rm -rf "$work/build"
  command cmake -S "$work" -B "$work/build" "$@" >"$work/log" 2>&1 &&
    grep -qxF -e "-- user: $text" "$work/log" || fail "not '$text': $(cat "$work/log")"
}
user "ACME_BK_HAS_ONEDNN $out;$work/include" -DCMAKE_INCLUDE_PATH="$work/include"
user "definitions-NOTFOUND $out" -DCMAKE_FIND_ROOT_PATH="$work/nowhere" \
  -DCMAKE_FIND_ROOT_PATH_MODE_INCLUDE=ONLY
out=$work/fw/third_party/bk

# A PROVENANCE that leads out of the folder is none.
sed -i 's| lib/names.h lib/names.h$| ../lib/names.h lib/names.h|' "$out/PROVENANCE"
expect 2 'names a file outside of its folder' --check "$out"
# Without git, the commit is unknown.
rm -r "$out" "$checkout/.git"
vendor //lib:names
holds PROVENANCE "commit: unknown"
