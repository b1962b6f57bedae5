#!/bin/bash
# built_test.sh GRAPH COMPONENT
#
# tools/vendor takes //COMPONENT under other names; CMake builds the folder, with a program that uses
# it, and the program runs.
set -u -o pipefail
export LC_ALL=C
graph=$1 component=$2
# Paths may have blanks.
work="$TEST_TMPDIR/a folder"
mkdir -p "$work"

fail() {
  printf 'FAILED: %s\n' "$*" >&2
  exit 1
}

tools/vendor "//$component" --graph "$graph" --out "$work/app/third_party/bk" \
  --prefix third_party/bk --namespace acme::bk >"$work/log" || fail "tools/vendor: $(cat "$work/log")"
cat "$work/log"
sed -e 's|"brigade/|"third_party/bk/|' -e 's/brigade::/acme::bk::/g' \
  "tests/integration/cmake/consumer/$component.cc" >"$work/app/main.cc"
cat >"$work/app/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.18)
project(app LANGUAGES CXX)
add_subdirectory(third_party/bk)
add_executable(main main.cc)
target_link_libraries(main PRIVATE acme_bk_$component)
END
# Without optimisation: the test looks at what is built, not at how fast it is.
{
  cmake -G Ninja -S "$work/app" -B "$work/build" -DCMAKE_BUILD_TYPE=Debug -DACME_BK_CUDA=OFF \
    -DCMAKE_CXX_FLAGS_DEBUG="-O0 -Wall -Wextra -Werror" -DCMAKE_EXPORT_COMPILE_COMMANDS=ON &&
    cmake --build "$work/build"
} >"$work/log" 2>&1 || fail "CMake: $(tail -n 60 "$work/log")"
"$work/build/main" || fail "the program ended with $?"

# What is optional counts where it is there.
header=/usr/include/oneapi/dnnl/dnnl.h
if [ "$component" = nn ] && [ -f $header ]; then
  grep '"command".*blas_onednn.cc' "$work/build/compile_commands.json" | grep -q -e -DACME_BK_HAS_ONEDNN ||
    fail "oneDNN is there, and the code is compiled without"
fi
