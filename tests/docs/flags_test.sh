#!/bin/bash
# flags_test.sh PAGE...: the flags that these pages name are there.
exec python3 tests/docs/check_flags.py "$@"
