#!/bin/bash
# Every script that somebody may start prints help when it is asked to, and does nothing else; a flag
# that it does not have it refuses, saying how it is called, and so it does a stray word; a benchmark's
# script says what it needs built. What is not executable is a part of others.
set -u
scripts=()
for file in .ci/run tools/* tools/gpu/* benchmarks/check_* benchmarks/peers/* benchmarks/slow_memory \
  data/tokenizers/*.py examples/*/vendor; do
  [ ! -f "$file" ] || [ ! -x "$file" ] || scripts+=("$file")
done
printf '%s\n' "${scripts[@]}"
[ ${#scripts[@]} -gt 35 ] || exit 1

status=0
# refuses TEXT SCRIPT ARGUMENT...: that ends with 2 and prints nothing but, on stderr, how it is called
# and a line with the text.
refuses() {
  local text=$1 code
  shift
  "$@" >"$TEST_TMPDIR/out" 2>"$TEST_TMPDIR/err" </dev/null
  code=$?
  if [ $code -ne 2 ] || [ -s "$TEST_TMPDIR/out" ] || ! grep -q -- "$text" "$TEST_TMPDIR/err" ||
    ! grep -q -E '^(.*: |.*; )?usage:|--help says more' "$TEST_TMPDIR/err"; then
    printf '%s ended with %d, and printed:\n' "$*" $code
    cat "$TEST_TMPDIR/out" "$TEST_TMPDIR/err"
    status=1
  fi
}

# Nothing may be installed for a refusal.
export BRIGADE_PEERS_VENV=$TEST_TMPDIR/peers
for script in "${scripts[@]}"; do
  refuses '' "$script" --nonsense
  case $script in
    # A pattern, a folder, a label, a file and a command are words of the user's.
    tools/arm64 | tools/bazel7_chroot | tools/build_graph.py | tools/format | tools/plot.sh | benchmarks/slow_memory) ;;
    *) refuses '' "$script" stray ;;
  esac
done
refuses 'no file stray' data/tokenizers/generate_unicode_ranges.py stray
[ ! -e "$BRIGADE_PEERS_VENV" ] || { printf 'PyTorch is installed for a refusal\n' && status=1; }

# What is no file of its own, but can be read as one.
data/tokenizers/generate_unicode_ranges.py <(printf '0041;A;Lu;\n') | grep -q '{0x41, 0x41},' ||
  { printf 'generate_unicode_ranges.py does not read a pipe\n' && status=1; }

# Help by its short name, where nothing can be installed.
for script in benchmarks/peers/*; do
  [ -x "$script" ] || continue
  BRIGADE_PEERS_VENV=/dev/null/peers "$script" -h >"$TEST_TMPDIR/out" 2>&1 </dev/null
  "$script" --help | cmp - "$TEST_TMPDIR/out" || { printf '%s -h is no help\n' "$script" && status=1; }
done

# Where nothing is built.
copy=$TEST_TMPDIR/copy
mkdir "$copy" && cp -rL benchmarks "$copy" || exit 1
for script in "$copy"/benchmarks/check_*; do
  # It reads a file.
  [[ $script != */check_gpu_figures ]] || continue
  refuses 'bazel build //' "$script"
done
# And only what the parts need that are to run.
refuses 'bazel build //benchmarks/checkpoint:crc32c$' "$copy/benchmarks/check_checkpoint" --only crc32c
refuses 'bazel build //benchmarks/kernels:adam$' "$copy/benchmarks/check_offload" --only rivals kernel
refuses 'bazel build //benchmarks/parallel:ring$' "$copy/benchmarks/check_parallel" --only ring
refuses 'bazel build //examples/gpt:train$' "$copy/benchmarks/check_compression" --only steps
bazel/help_test.sh "${scripts[@]}" || status=1
exit $status
