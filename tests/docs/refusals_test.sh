#!/bin/bash
# refusals_test.sh: what the programs refuse, they refuse with what is allowed.
exec python3 tests/docs/check_refusals.py
