#!/bin/bash
# train_digest_test.sh TRAIN FIRST_DIFFERENCE: what --digest writes in two trainings, and where they
# differ first.
. tests/examples/gpt/train_testing.sh
first_difference=$PWD/$2
job=("${tiny[@]}" --precision=bf16 --steps=6 --evaluate_every=0 --digest_every=2)

run() {
  "$train" "${job[@]}" "${@:2}" --digest="$files/$1" >"$files/out" 2>&1 || fail "$(cat "$files/out")"
}
# differs CODE ARGUMENTS...: what first_difference says, and its exit code.
differs() {
  local code=0
  "$first_difference" "${@:2}" >"$files/said" 2>&1 || code=$?
  [ $code -eq "$1" ] || fail "first_difference ${*:2} ends with $code: $(cat "$files/said")"
}
# refuses WORDS COMMAND...
refuses() {
  "${@:2}" >"$files/out" 2>&1 && fail "${*:2} is not refused"
  grep -qF -- "$1" "$files/out" || fail "${*:2} does not say \"$1\": $(cat "$files/out")"
}

run a --ranks=2 --stage=0
run b --ranks=2 --stage=3
differs 0 "$files/a" "$files/b"
expect_line "$files/said" 'Alike in all 3 steps that both have.'
expect_json "$files/a" '.[0].brigade_digests == 1 and ([.[1:][].step] | unique) == [2, 4, 6]'
expect_json "$files/a" '[.[1:][] | select(.step == 2) | .unit] | length > 2'

# Of a step that one file lacks between others nothing is known.
grep -v '"step":4,' "$files/a" >"$files/gap"
cmp -s "$files/a" "$files/gap" && fail 'no gap'
differs 3 "$files/gap" "$files/b"
expect_line "$files/said" 'Alike in all 2 steps that both have.'
expect_line "$files/said" '1 step is between them in one file alone: .*'

# As processes, over Gloo.
if command -v mpirun >/dev/null; then
  with_mpirun 2 "$train" "${job[@]}" --stage=1 --digest="$files/processes" >"$files/out" 2>&1 ||
    fail "$(cat "$files/out")"
  differs 0 "$files/a" "$files/processes"
fi

# Other weights and texts.
run c --ranks=2 --seed=2
differs 2 "$files/a" "$files/c"
expect_line "$files/said" 'Step 2, unit ".*", tensor .*: other gradients.'
expect_line "$files/said" 'They may differ since step 1: run both with --digest_every=1 to know.'
run a1 --ranks=2 --digest_every=1 --digest_dump="$files/dump_a" --digest_dump_step=1
run c1 --ranks=2 --digest_every=1 --stage=3 --seed=2 --digest_dump="$files/dump_c" \
  --digest_dump_step=1
differs 2 "$files/a1" "$files/c1"
expect_line "$files/said" 'Step 1, unit ".*", tensor .*: other gradients.'
differs 2 "$files/a1" "$files/c1" --dump_a="$files/dump_a" --dump_b="$files/dump_c" --most=3
expect_line "$files/said" '[0-9]+ of its [0-9]+ elements differ, by .* at most:'
[ "$(grep -c ' against ' "$files/said")" -eq 3 ] || fail "$(cat "$files/said")"
cp "$files/said" "$files/said_before"
differs 2 --dump_a "$files/dump_a" "$files/a1" --dump_b "$files/dump_c" "$files/c1" -most 3
cmp "$files/said" "$files/said_before" || fail 'flags with blanks are other ones'

# A file that goes on with its training is that of the whole.
run resumed --ranks=2 --save="$files/checkpoints" --save_every=4
rm -r "$files/checkpoints/step-00000006"
run resumed --ranks=2 --save="$files/checkpoints" --resume
differs 0 "$files/a" "$files/resumed"
expect_json "$files/resumed" '([.[1:][].step] | unique) == [2, 4, 6]'
refuses '--digest_dump_step is 2, but the training that is resumed goes on behind step 6' \
  "$train" "${job[@]}" --ranks=2 --save="$files/checkpoints" --resume \
  --digest_dump="$files/dump_late" --digest_dump_step=2

"$train" "${job[@]}" --ranks=3 --batch=3 --verify_replicas=2 >"$files/out" 2>&1 ||
  fail "$(cat "$files/out")"
expect_line "$files/out" 'Every 2 steps ranks compare digests: 100 % of their weights have a copy on another rank.'

# A disk that is full costs digests, and no step; what there is is whole.
job_of_many=("${tiny[@]}" --precision=bf16 --ranks=2 --steps=40 --evaluate_every=0 --digest_every=1)
on_full_disk 16 "$train" "${job_of_many[@]}" --digest="$files/disk/full" --save="$files/saved" \
  >"$files/out" 2>"$files/error"
code=$?
if [ $code -eq 77 ]; then
  echo 'no file system may be mounted'
else
  [ $code -eq 1 ] || fail "exit code $code of a training whose digests fill the disk"
  why="cannot write $files/disk/full: No space left on device"
  expect_line "$files/error" "train: $why; the training goes on"
  expect_line "$files/error" "train: the digests of [0-9]+ steps are missing: $why"
  [ "$(wc -l <"$files/error")" = 2 ] || fail "it says \"$(cat "$files/error")\""
  expect_line "$files/out" 'Report: 40 of 40 steps .*'
  [ -d "$files/saved/step-00000040" ] || fail 'there is no checkpoint of the end'
  "$train" "${job_of_many[@]}" --digest="$files/whole" >"$files/out" || fail "exit code $?"
  differs 0 "$files/of_disk/full" "$files/whole"
  expect_line "$files/said" 'Alike in all [1-9][0-9]* steps that both have.'
fi

refuses '--digest_every is 0; it must be at least 1' "$train" "${job[@]}" --digest_every=0
refuses '--verify_replicas is -1' "$train" "${job[@]}" --verify_replicas=-1
refuses '--digest_dump and --digest_dump_step go together' "$train" "${job[@]}" --digest_dump_step=1
refuses '--digest_dump_step is 7; it must be 1 to --steps, 6' "$train" "${job[@]}" \
  --digest_dump="$files/new" --digest_dump_step=7
refuses "$files/dump_a is there, and no empty folder" "$train" "${job[@]}" \
  --digest_dump="$files/dump_a" --digest_dump_step=1
refuses "--digest and --metrics name the same file, $files/x" "$train" "${job[@]}" \
  --digest="$files/x" --metrics="$files/x"
refuses 'stage 3 keeps one copy' "$train" "${job[@]}" --ranks=2 --stage=3 --verify_replicas=1
differs 1 "$files/a"
differs 1 "$files/a" "$files/none"
differs 1 "$files/a" "$train"
differs 1 "$files/a1" "$files/c1" --dump_a="$files/dump_a"
differs 1 "$files/a1" "$files/c1" --dump_a
# A folder that cannot be looked at.
differs 1 "$files/a1" "$files/c1" --dump_a="$files/a" --dump_b="$files/dump_c"
differs 1 "$files/a1" "$files/c1" --dump_a="/$(printf 'x%.0s' {1..5000})" --dump_b="$files/dump_c"
"$first_difference" --help | grep -q 'Names the first step' || fail 'no help'
echo 'all as wanted'
