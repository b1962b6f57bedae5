#!/bin/bash
# tools/lint names each kind of problem by file and line, and is silent on a clean checkout.
set -u
repo=$TEST_TMPDIR/repo
mkdir -p "$repo"/{tools,device,kernels} && cp -L tools/lint tools/externals.py "$repo/tools" || exit 1
cd "$repo" && git init -q . || exit 1

status=0
# expect STATUS TEXT...: what tools/lint exits with and prints somewhere ("" for nothing at all).
expect() {
  local output code text
  git add -A . || exit 1
  output=$(tools/lint 2>&1)
  code=$?
  for text in "${@:2}"; do
    if [ $code -ne "$1" ] || { [ -z "$text" ] && [ -n "$output" ]; } || [[ $output != *"$text"* ]]; then
      printf 'expected %s and "%s", got %d and:\n%s\n\n' "$1" "$text" $code "$output"
      status=1
    fi
  done
}

# abseil HEADER: the only one that the table of libraries has.
abseil() {
  printf '%s\n' "ABSL_HEADERS = {\"$1\": (\"bazel\", \"cmake\")}" 'LIBRARIES = {}' >bazel/libraries.bzl
}

mkdir bazel && abseil absl/strings/str_cat.h
printf '#include "brigade/device/stream.h"\n#include "absl/strings/str_cat.h"\n' >device/stream.cc
touch device/stream.h
expect 0 ""
echo 'ABSL_HEADERS = (' >bazel/libraries.bzl
expect 1 'bazel/libraries.bzl cannot be read'
abseil absl/strings/str_cat.h

printf '\n#include "device/stream.h"\n' >kernels/adam.cc
expect 1 'kernels/adam.cc:2: project header "device/stream.h" without the prefix'
printf '#include "stream.h"\n' >kernels/adam.cc
expect 0 ""
git mv kernels/adam.cc device/adam.cc
expect 1 'device/adam.cc:1: project header "stream.h" without the prefix'
printf '#include <brigade/device/stream.h>\n' >device/adam.cc
expect 1 'device/adam.cc:1: write "brigade/..." with quotes'

mkdir -p device/cpu device/internal tests/device && touch device/internal/task.h
printf '#include "brigade/device/internal/task.h"\n' >device/adam.cc
cp device/adam.cc device/cpu/queue.cc && cp device/adam.cc tests/device/queue_test.cc
expect 0 ""
cp device/adam.cc kernels/adam.cc
expect 1 'kernels/adam.cc:1: device/internal/ is for device/ and its tests'
rm kernels/adam.cc
mkdir -p collectives/bootstrap && git mv tests/device/queue_test.cc collectives/bootstrap/tcp_store.cc
expect 1 'collectives/bootstrap/tcp_store.cc:1: device/internal/ is for device/ and its tests'
rm -r collectives tests

printf '// absl::Mutex is not used here\nabsl::Mutex mutex;\n' >device/adam.cc
expect 1 'device/adam.cc:2: use device::Mutex'
printf '// absl::Mutex is not used here\n' >device/adam.cc
expect 0 ""

printf 'void F() { std::lock_guard lock(mutex); }  // std::mutex\n' >device/adam.cc
expect 1 'device/adam.cc:1: use Mutex, MutexLock and CondVar of device/threads/mutex.h'
mkdir -p kernels && git mv device/adam.cc kernels/adam.cc
expect 1 'kernels/adam.cc:1: use Mutex, MutexLock and CondVar of device/threads/mutex.h'
mkdir device/threads && git mv kernels/adam.cc device/threads/mutex.h
expect 0 ""
mkdir -p tests && git mv device/threads/mutex.h tests/adam.cc
expect 0 ""

printf 'const auto deadline = absl::Now() + timeout;  // absl::Now\n' >tests/adam.cc
expect 0 ""
git mv tests/adam.cc kernels/adam.cc
expect 1 'kernels/adam.cc:1: use device::SteadyTime'
git mv kernels/adam.cc tests/adam.cc

printf 'cc_library(\n    name = "a",\n)\n' >device/BUILD.bazel
expect 1 'device/BUILD.bazel:1: use the macros'
printf 'brigade_cc_library(\n    name = "a",\n)\n' >device/BUILD.bazel
expect 0 ""

# What Bazel 8 and 9 no longer know.
bzl=bazel/rules.bzl
load_library='load("@rules_cc//cc:cc_library.bzl", "cc_library")'
printf '# native.cc_library\nf()  # cc_library(CcInfo)\n' >$bzl
expect 0 ""
printf 'def f():\n    native.cc_library(name = "a")\n' >$bzl
expect 1 "$bzl:2: Bazel 9 has no native rules of this kind"
printf 'f(native.sh_test)\n' >$bzl
expect 1 "$bzl:1: Bazel 9 has no native rules of this kind"
printf 'f(native.glob([]), getattr(native, name))\n' >$bzl
expect 0 ""
printf '%s\ncc_library(name = "a")\ncc_test(name = "b")\n' "$load_library" >$bzl
expect 1 "$bzl:3: cc_test without a load"
printf 'load("@rules_cc//cc:defs.bzl", "cc_library")\ncc_library(name = "a")\n' >$bzl
expect 1 "$bzl:1: write @rules_cc//cc:<rule>.bzl"
printf '%s\n"""A cc_library, and CcInfo."""\ncc_library(name = "a")\n' "$load_library" >$bzl
expect 1 "$bzl:2: CcInfo without a load"
printf '%s\n"""A cc_library."""\ncc_library(name = "a")\n' "$load_library" >$bzl
expect 0 ""
printf 'f(providers = [PyInfo])\nproto_library (name = "a")\nnative.bind(name = "b")\n' >$bzl
expect 1 "$bzl:1: PyInfo without a load"
expect 1 "$bzl:2: proto_library without a load"
expect 1 "$bzl:3: Bazel 9 has no native rules of this kind"
printf 'f(providers = [CcInfo])\n' >$bzl
expect 1 "$bzl:1: CcInfo without a load"
printf 'load("@rules_cc//cc/common:cc_info.bzl", "CcInfo")\nf([CcInfo])\ncc_common.f()\n' >$bzl
expect 1 "$bzl:3: cc_common without a load"
printf 'load(\n    "@rules_cc//cc/common:cc_common.bzl",\n    "cc_common",\n)\ncc_common.f()\n' >$bzl
expect 0 ""
names=(CcToolchainInfo CcToolchainConfigInfo CcSharedLibraryInfo DebugPackageInfo ObjcInfo
  JavaPluginInfo JavaToolchainInfo PyRuntimeInfo PyCcLinkParamsProvider AndroidIdeInfo java_common
  proto_common proto_common_do_not_use apple_common)
printf 'x = dep[%s]\n' "${names[@]}" >$bzl
texts=()
for i in "${!names[@]}"; do texts+=("$bzl:$((i + 1)): ${names[i]} without a load"); done
expect 1 "${texts[@]}"
printf 'load("//a:b.bzl", "%s")\n' "${names[@]}" >bazel/a.bzl
cat bazel/a.bzl $bzl >bazel/b.bzl && rm bazel/a.bzl $bzl
printf 'x = dep[MyCcToolchainInfo], coverage_common.f, cc_common_of_ours\n' >>bazel/b.bzl
printf 'p = Label("@system//:absl") + "@local_cuda//:headers"\n' >>bazel/b.bzl
expect 0 ""
rm bazel/b.bzl
# A function of its own is none of Bazel's, in the file but not in a text of it.
printf 'def f():\n    objc_of_ours()\n\ndef objc_of_ours():\n    pass\n' >$bzl
expect 0 ""
printf '_B = """\nobjc_of_ours()\n"""\ndef f():\n    objc_of_theirs()\n' >>$bzl
expect 1 "$bzl:7: objc_of_ours without a load" "$bzl:10: objc_of_theirs without a load"
rules=(cc_toolchain objc_library android_binary aar_import fdo_profile fdo_prefetch_hints
  memprof_profile propeller_optimize cc_shared_library)
printf '%s(name = "a")\n' "${rules[@]}" >$bzl
printf 'native.%s(name = "a")\n' "${rules[@]}" new_local_repository >>$bzl
texts=()
for i in "${!rules[@]}"; do
  texts+=("$bzl:$((i + 1)): ${rules[i]} without a load")
  texts+=("$bzl:$((i + 1 + ${#rules[@]})): Bazel 9 has no native rules of this kind")
done
expect 1 "${texts[@]}" "$bzl:$((1 + 2 * ${#rules[@]})): Bazel 9 has no native rules of this kind"
cat >$bzl <<'END'
load("//a:b.bzl", "cc_toolchain_suite")
cc_toolchain_suite(name = "a")
attr.label(cfg = "host")
p = "bazel-out/k8-opt/bin/a"
p = Label("@@brigade~~configure~system//:absl")
END
expect 1 "$bzl:2: Bazel 9 has no cc_toolchain_suite" "$bzl:3: write cfg = \"exec\"" \
  "$bzl:4: Bazel 9 names output folders otherwise" \
  "$bzl:5: names of repositories differ between Bazel 7 and 8"
# The text of a BUILD file needs a load of its own, and one in the text is none for the file.
printf '%s\n_BUILD = """\ncc_library(name = "a")\n"""\n' "$load_library" >$bzl
expect 1 "$bzl:3: cc_library without a load"
printf '_HEAD = """# Generated.\n%s\n"""\n_BUILD = """\ncc_library()\n"""\n' "$load_library" >$bzl
expect 0 ""
printf '_HEAD = """\n%s\n"""\ncc_library()\n' "$load_library" >$bzl
expect 1 "$bzl:4: cc_library without a load"
git mv $bzl bazel/stand_ins.bzl
expect 0 ""
printf '%s\n' "$load_library" >bazel/a.bzl
printf 'cc_library()\n' >bazel/b.bzl
expect 1 "bazel/b.bzl:1: cc_library without a load"
rm bazel/*s.bzl bazel/b.bzl && abseil absl/a.h
rm device/stream.cc
printf 'sh_test(\n    name = "a",\n)\n' >device/BUILD.bazel
expect 1 'device/BUILD.bazel:1: sh_test without a load'
printf 'load("@rules_shell//shell:sh_test.bzl", "sh_test")\n\nsh_test(\n)\n' >device/BUILD.bazel
expect 0 ""

# Flags in .bazelrc files, in any folder.
mkdir -p tests/a
printf '%s\n' '# --local_cpu_resources=2' 'build --copt=-O2 --//bazel:werror=true' \
  'test:b --nosandbox_debug --@a//b:c=true --repo_env=CC=clang' 'try-import %workspace%/--d' \
  'common:workspace --noenable_bzlmod --enable_workspace' >tests/a/.bazelrc
expect 0 ""
printf 'build --jobs=3 --local_cpu_resources=3\n' >.bazelrc
printf 'common --noenable_bzlmod\nbuild:a --copt=-g \\\n  --nocopts\n' >tests/a/.bazelrc
expect 1 '.bazelrc:1: --local_cpu_resources is not in tools/lint as a flag of Bazel 4 to 9' \
  'tests/a/.bazelrc:1: --noenable_bzlmod is not' 'tests/a/.bazelrc:3: --nocopts is not'
rm .bazelrc tests/a/.bazelrc

# Abseil's headers and the targets that hold them.
printf '#include "absl/a.h"\n#include "absl/b.h"\n' >device/adam.cc
expect 1 'device/adam.cc:2: bazel/libraries.bzl has no target for absl/b.h'
printf '#include "absl/a.h"\n' >device/adam.cc
expect 0 ""
abseil absl/flags/flag.h
printf '#include "absl/flags/flag.h"\n' >device/adam.cc
expect 1 'device/adam.cc:1: device/BUILD.bazel has no @system//:absl_flags'
printf 'brigade_cc_library(\n    deps = ["@system//:absl_flags"],\n)\n' >device/BUILD.bazel
expect 0 ""
rm device/adam.cc

line=$(printf 'x%.0s' {1..97})
printf '// %s\n' "$line" >kernels/adam.h
printf '# %s\n' "$line" >kernels/BUILD.bazel
printf '%s%s\n' "$line" "$line" >kernels/README.md
expect 0 ""
printf '// A sentence.\n// %sx\n' "$line" >kernels/adam.h
expect 1 'kernels/adam.h:2: more than 100 columns'
printf '// https://%s\n// \xc3\xa9%s\n' "$line" "${line#x}" >kernels/adam.h
expect 0 ""
printf '# %sxx\n' "$line" >kernels/BUILD.bazel
expect 1 'kernels/BUILD.bazel:1: more than 100 columns'

exit $status
