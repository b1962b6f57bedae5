#!/bin/bash
# plot_recompute_test.sh MEMORY_MODEL: the figure in docs/images is what tools/plot_recompute draws
# today.
model=$PWD/$1
. tests/tools/figure_test.sh plot_recompute

draws "$model"
is_figure docs/images/recompute.svg
has 'none' 'block' 'selective' 'segments:2' 'within each budget'
fails_alike "$model"
fails "/bin/true printed no curve" /bin/true "$TEST_TMPDIR/none.svg"

exit $status
