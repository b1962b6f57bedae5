#!/bin/bash
# plot_memory_test.sh MEMORY_MODEL: the figure in docs/images is what tools/plot_memory draws today.
model=$PWD/$1
. tests/tools/figure_test.sh plot_memory

draws "$model"
is_figure docs/images/zero_memory.svg
has 'stage 0' 'stage 3' 'GB per rank' 'the ZeRO paper'
fails_alike "$model"

exit $status
