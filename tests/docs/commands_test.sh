#!/bin/bash
# commands_test.sh PAGE...: the commands of these pages do what a reader wants, on a short run.
exec python3 tests/docs/run_commands.py "$@"
