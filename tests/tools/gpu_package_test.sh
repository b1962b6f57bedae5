#!/bin/bash
# A small package: it carries what its programs need, asks no host for a newer C library, and says
# so without a GPU.
set -u
program=$1 gpu_info=$2
archive=$TEST_TMPDIR/package.tar.xz
echo '{}' >"$TEST_TMPDIR/package.json"
fail() {
  printf '%s\n' "$*"
  exit 1
}

tools/gpu/pack "$archive" run=tools/gpu/run "package.json=$TEST_TMPDIR/package.json" "bin/gpu_info=$gpu_info" \
  "tests/bazel/axpy_gpu_test=$program" >"$TEST_TMPDIR/log" || fail "pack failed"
cat "$TEST_TMPDIR/log"
tar -C "$TEST_TMPDIR" -xf "$archive" || fail "the archive cannot be read"
cd "$TEST_TMPDIR/brigade_gpu" || exit 1
[ "$(stat -c %s "$archive")" -lt $((8 << 20)) ] || fail "one small program makes a package of $(stat -c %s "$archive") bytes"

# Nothing but the C library and the unwinder comes from the host.
for file in tests/bazel/axpy_gpu_test bin/gpu_info lib/*; do
  from_host=$(LD_LIBRARY_PATH=$PWD/lib ldd "$file" | grep '=>' | grep -vF "$PWD/lib" |
    grep -vE '^\s*(libc|libm|libdl|libpthread|librt|libgcc_s)\.so' || true)
  [ -z "$from_host" ] || fail "$file takes from the host: $from_host"
  newest=$(readelf -V --wide "$file" | grep -o 'Name: GLIBC_[0-9.]*' | sed 's/.*_//' | sort -V | tail -n 1)
  [ "$(printf '%s\n' 2.34 "$newest" | sort -V | tail -n 1)" = 2.34 ] || fail "$file needs glibc $newest"
done
# NCCL asks for a function as it was before GCC 12.
nm -D --with-symbol-versions lib/libstdc++.so.6 | grep -q 'condition_variable4wait.*[^@]@GLIBCXX_3.4.11$' ||
  fail "lib/libstdc++.so.6 has no older versions"
! readelf -S --wide tests/bazel/axpy_gpu_test | grep -q '\.symtab' || fail "not stripped"
LD_LIBRARY_PATH=$PWD/lib tests/bazel/axpy_gpu_test --gtest_list_tests | grep -q '^  ' || fail "the program does not start"

./run tests >"$TEST_TMPDIR/log" 2>&1
code=$?
if LD_LIBRARY_PATH=$PWD/lib bin/gpu_info >/dev/null 2>&1; then wanted=0; else wanted=77; fi
[ $code -eq $wanted ] || fail "run exits with $code, not $wanted: $(cat "$TEST_TMPDIR/log")"
[ $wanted -eq 0 ] || grep -q 'no GPU: cudaError' "$TEST_TMPDIR/log" || fail "no reason: $(cat "$TEST_TMPDIR/log")"

# Debian's own C++ library is too new for the hosts.
cd "$OLDPWD" || exit 1
if tools/gpu/pack "$archive" "bin/other=$(realpath "$(g++ -print-file-name=libstdc++.so.6)")" >"$TEST_TMPDIR/log" 2>&1; then
  fail "pack took a library that needs glibc 2.36"
fi
grep -q 'bin/other needs GLIBC_2.36, newer than 2.34, for: arc4random@GLIBC_2.36' "$TEST_TMPDIR/log" ||
  fail "another reason: $(cat "$TEST_TMPDIR/log")"
