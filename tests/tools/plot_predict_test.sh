#!/bin/bash
# plot_predict_test.sh PREDICT: the figure in docs/images is what tools/plot_predict draws today.
predict=$PWD/$1
. tests/tools/figure_test.sh plot_predict

draws "$predict"
is_figure docs/images/predicted_all_reduce.svg
has 'double_tree' 'hierarchical' 'bus bandwidth, GB/s' '128 nodes of 8 H100'
fails_alike "$predict"

exit $status
