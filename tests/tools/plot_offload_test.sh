#!/bin/bash
# tools/plot_offload draws what the benchmark prints, with the file and without.
share=$TEST_TMPDIR/share
. tests/tools/figure_test.sh plot_offload
cat >"$share" <<'END'
#!/bin/bash
printf '# 100 elements\nshare device host file "ms a step"\n0.000 16.00 0.00 0.00 80.5\n1.000 4.00 16.00 0.00 92.5\n'
[ $# = 0 ] || printf 'file 4.00 8.00 24.00 400.0\n'
END
chmod +x "$share"

draws "$share"
has 'on the device' 'on the host' 'ms a step'
draws "$share" /mnt/disk
has 'on the device' 'on the host' 'ms a step' '400 ms'
fails_alike "$share"
fails "/bin/true printed no shares" /bin/true "$TEST_TMPDIR/none.svg"

exit $status
