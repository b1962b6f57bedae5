#!/bin/bash
# docs/configuration.md is what the program prints.
set -u -o pipefail
export LC_ALL=C

train/config/configuration_reference | diff docs/configuration.md - && exit
printf 'bazel run //train/config:configuration_reference > docs/configuration.md\n'
exit 1
