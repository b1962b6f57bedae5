#!/bin/bash
# CMake's lists, which are committed, are what the BUILD files of this checkout give. The tool asks a
# Bazel of its own, whose answer no cache of this one knows of: so the test runs each time, and in
# the checkout that the links of its runfiles lead to.
set -u
tool=$(readlink -f tools/generate_cmake)
[ -f "${tool%/*}/../MODULE.bazel" ] || {
  echo "$tool is in no checkout"
  exit 1
}
exec "$tool" --check
