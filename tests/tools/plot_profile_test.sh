#!/bin/bash
# plot_profile_test.sh: tools/plot_profile draws a profile that the trainer has written; the figure in
# docs/images is that of the profile beside this test.
. tests/tools/figure_test.sh plot_profile
profile=$PWD/tests/tools/profile.txt

draws "$profile"
is_figure docs/images/profile.svg
has 'roofline of the measured ceilings' 'operations a byte' 'compute' 'memory' 'network' 'host' \
  'attention, forward' 'gemm, backward' 'h.0' 'head' 'between'
fails "cannot read missing" missing "$TEST_TMPDIR/none.svg"
printf 'nothing\n' >"$TEST_TMPDIR/other"
fails "$TEST_TMPDIR/other is no profile" "$TEST_TMPDIR/other" "$TEST_TMPDIR/none.svg"
sed '/^Units/,$d' "$profile" >"$TEST_TMPDIR/brief"
fails "$TEST_TMPDIR/brief has no table of units: it was written without \"detailed\"" \
  "$TEST_TMPDIR/brief" "$TEST_TMPDIR/none.svg"
fails "$TEST_TMPDIR/missing/none.svg: cannot be written" "$profile" "$TEST_TMPDIR/missing/none.svg"

exit $status
