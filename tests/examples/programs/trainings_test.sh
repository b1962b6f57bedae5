#!/bin/bash
# The trainings of examples/ in every stage of ZeRO, alone and as two processes: they learn, and all
# stages print the same; images and chats of this test's own.
set -u
fail() {
  printf '%s\n' "$*" >&2
  exit 1
}
cd "${TEST_SRCDIR:?}/${TEST_WORKSPACE:?}" || exit 1
dir=$TEST_TMPDIR

# processes COUNT PROGRAM...: so many of it, what rank 0 says in $output.
processes() {
  local count=$1 attempt rank
  shift
  for attempt in 1 2 3 4 5; do
    local pids=() failed=
    export WORLD_SIZE=$count MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + (RANDOM % 10000)))
    for ((rank = 0; rank < count; ++rank)); do
      RANK=$rank LOCAL_RANK=$rank "$@" >"$dir/rank$rank" 2>&1 &
      pids+=($!)
    done
    for pid in "${pids[@]}"; do wait "$pid" || failed=yes; done
    unset WORLD_SIZE MASTER_ADDR MASTER_PORT
    output=$(cat "$dir/rank0")
    [ -n "$failed" ] || return 0
    grep -q 'in use' "$dir"/rank? || fail "$*: $(cat "$dir"/rank?)"
  done
  fail "no port is free: $output"
}

# Of $output, without the lines of progress, which have times.
last_line() { output=$(tail -n 1 <<<"$output"); }

# falls FIRST LAST SHARE: the last number is below that share of the first.
falls() {
  awk -v a="$1" -v b="$2" -v s="$3" 'BEGIN { exit !(b < s * a) }' || fail "not learned: $output"
}

# Ten epochs of 1000 points, 16 steps each, the last one of 40.
for ranks in 1 2; do
  first=
  for stage in 0 1 2 3; do
    processes $ranks examples/train_mlp --stage=$stage
    [[ $output =~ ^'160 steps; held-out error '([0-9.]+)' before, '([0-9.]+)' after ten epochs'$ ]] ||
      fail "train_mlp says: $output"
    falls "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}" 0.2
    [ "$output" = "${first:=$output}" ] || fail "stage $stage is another: $output, not $first"
  done
done

# Images of 6 x 6: a bar whose column is the class, with noise.
python3 - "$dir" <<'PY' || fail "no images"
import os, random, struct, sys
random.seed(1)
folder = sys.argv[1] + "/images"
os.mkdir(folder)
for part, size in (("train", 300), ("t10k", 60)):
    labels = [random.randrange(6) for _ in range(size)]
    pixels = bytearray()
    for label in labels:
        for at in range(36):
            pixels.append(random.randrange(100) + (120 if at % 6 == label else 0))
    with open(f"{folder}/{part}-images-idx3-ubyte", "wb") as f:
        f.write(struct.pack(">HBBIII", 0, 8, 3, size, 6, 6) + pixels)
    with open(f"{folder}/{part}-labels-idx1-ubyte", "wb") as f:
        f.write(struct.pack(">HBBI", 0, 8, 1, size) + bytes(labels))
PY
for ranks in 1 2; do
  first=
  for stage in 0 1 2 3; do
    cat >"$dir/ds.json" <<JSON
{"train_batch_size": 32, "optimizer": {"type": "AdamW", "params": {"lr": 3e-3}},
 "zero_optimization": {"stage": $stage}}
JSON
    processes $ranks examples/image_classifier --data="$dir/images" --config="$dir/ds.json" --epochs=6
    last_line
    [[ $output =~ ^'300 images, 60 steps: held-out cross entropy '([0-9.]+)' before, '([0-9.]+)' after'$ ]] ||
      fail "image_classifier says: $output"
    falls "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}" 0.5
    [ "$output" = "${first:=$output}" ] || fail "stage $stage is another: $output, not $first"
  done
done
# Paths are those of the folder where the user is, also under `bazel run`, which starts it elsewhere.
output=$(BUILD_WORKING_DIRECTORY=$dir examples/image_classifier --data=images --config=ds.json \
  --epochs=1 --save=images_run 2>&1) || fail "image_classifier says: $output"
[ -e "$dir"/images_run/step-* ] || fail "no checkpoint beside the images: $output"
# Flags say what "auto" means; what has no effect is told once; steps_per_print and --metrics count.
cat >"$dir/auto.json" <<'JSON'
{"train_batch_size": "auto", "bf16": {"enabled": "auto"}, "steps_per_print": 2,
 "optimizer": {"type": "AdamW", "params": {"lr": "auto"}}, "dump_state": true,
 "scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": "auto", "warmup_num_steps": 2,
                                                   "warmup_max_lr": "auto"}}}
JSON
# by_flags PRECISION PROGRAM...: without the flags they are named, with them it trains six steps.
by_flags() {
  local flag precision=$1
  shift
  output=$("$@" 2>&1) && fail "auto is taken without flags: $*"
  for flag in batch lr precision steps; do
    [[ $output == *"--$flag"* ]] || fail "--$flag is not asked for: $output"
  done
  processes 2 "$@" --batch=12 --lr=1e-3 --precision=$precision --steps=6 --metrics="$dir/metrics"
  [ "$(grep -c '^Without effect: dump_state is true' "$dir/rank0")" = 1 ] || fail "not told: $output"
  ! grep -q 'Without effect' "$dir/rank1" || fail "rank 1 tells it too"
  [ "$(grep -o '^step [0-9]*/6' <<<"$output" | tr '\n' ' ')" = 'step 2/6 step 4/6 step 6/6 ' ] ||
    fail "other steps than 2, 4 and 6: $output"
  [ "$(grep -c '"loss"' "$dir/metrics")" = 6 ] || fail "other metrics: $(cat "$dir/metrics")"
  rm "$dir/metrics"
}
by_flags fp32 examples/image_classifier --data="$dir/images" --config="$dir/auto.json"
# What is no image file is told by name.
refused() {
  local text=$1
  shift
  output=$(examples/image_classifier "$@" 2>&1) && fail "not refused: $*"
  [[ $output == *"$text"* ]] || fail "not '$text' but: $output"
}
head -c 100 "$dir/images/train-images-idx3-ubyte" >"$dir/short"
mkdir "$dir/bad" && cp "$dir"/images/* "$dir/bad" && cp "$dir/short" "$dir/bad/train-images-idx3-ubyte"
refused "train-images-idx3-ubyte: 84 values where its header says 10800" --data="$dir/bad"
printf '\0\0\10\3\377\377\377\377\377\377\377\377\377\377\377\377' >"$dir/bad/train-images-idx3-ubyte"
refused "0 values where its header says" --data="$dir/bad"
refused "cannot be read" --data="$dir/none"
refused "--data is not given"
refused "10 classes" --data="$(cp "$dir"/images/* "$dir/bad" &&
  printf '\0\0\10\1\0\0\1\54%300s' '' | tr ' ' '\14' >"$dir/bad/train-labels-idx1-ubyte" &&
  echo "$dir/bad")"

# A Llama of bytes: first texts, then 200 pairs of a question and its answer.
mkdir "$dir/llama"
cat >"$dir/llama/config.json" <<'JSON'
{"model_type": "llama", "vocab_size": 256, "hidden_size": 32, "intermediate_size": 64,
 "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
 "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "tie_word_embeddings": true}
JSON
python3 - "$dir" <<'PY' || fail "no chats"
import json, random, sys
random.seed(2)
folder = sys.argv[1]
words = "river stone cloud grass amber lemon tiger maple ocean torch".split()
def pair():
    word = random.choice(words)
    return {"prompt": f"Say {word} in capitals.", "answer": word.upper()}
for name, size in (("chats", 200), ("held_out", 40)):
    with open(f"{folder}/{name}.jsonl", "w") as f:
        for _ in range(size):
            f.write(json.dumps(pair()) + "\n")
with open(f"{folder}/text.txt", "w") as f:
    f.write(" ".join(random.choice((word, word.upper())) for word in random.choices(words, k=600)))
PY
# losses: of all evaluations in $output.
losses() { grep -Eo 'loss [0-9.]+' <<<"$output"; }
by_flags bf16 examples/language_model --model="$dir/llama" --new --data="$dir/text.txt" --context=48 \
  --config="$dir/auto.json"
grep -q 'text.txt' "$dir/rank0" || fail "what is read is not told: $output"
! grep -q 'text.txt' "$dir/rank1" || fail "rank 1 tells it too"
# What is wrong with the config, or with the adapters, is found before the data are read.
echo '{"train_batch_size": 0}' >"$dir/wrong.json"
output=$(examples/language_model --model="$dir/llama" --new --data="$dir/none" \
  --config="$dir/wrong.json" 2>&1) && fail "a config of nothing"
[[ $output == *"train_batch_size is 0"* ]] || fail "language_model says: $output"
output=$(examples/language_model --model="$dir/llama" --new --data="$dir/none" \
  --config="$dir/ds.json" --adapter="$dir" 2>&1) && fail "adapters without a rank"
[[ $output == *"give --lora_rank"* ]] || fail "language_model says: $output"
first=
for stage in 0 1 2 3; do
  cat >"$dir/ds.json" <<JSON
{"train_batch_size": 8, "bf16": {"enabled": true}, "steps_per_print": 20,
 "optimizer": {"type": "AdamW", "params": {"lr": 3e-3}}, "zero_optimization": {"stage": $stage}}
JSON
  processes 2 examples/language_model --model="$dir/llama" --new --data="$dir/text.txt" --context=48 \
    --config="$dir/ds.json" --epochs=20 --save="$dir/run$stage" --metrics="$dir/metrics$stage" \
    --trace="$dir/trace$stage.json" --dashboard=0
  [ -n "$(losses)" ] || fail "language_model says: $output"
  [ "$(losses)" = "${first:=$(losses)}" ] || fail "stage $stage is another: $output, not $first"
  [[ $output == *"Dashboard: http://"* ]] || fail "no page: $output"
  [ "$(grep -c '"loss"' "$dir/metrics$stage")" -gt 20 ] || fail "no metrics of stage $stage"
  for trace in "$dir/trace$stage.json" "$dir/trace$stage.rank1.json"; do
    python3 -m json.tool "$trace" /dev/null || fail "no trace: $trace"
  done
done
for file in "$dir"/run0/step-*/*; do
  cmp "$file" "$dir/run3/${file#"$dir/run0/"}" || fail "stages 0 and 3 save other bytes"
done
# Generation from stage 3's checkpoint equals that from stage 0's, from one that lies in pieces, and
# from the exported weights.
cat >"$dir/pieces.json" <<JSON
{"train_batch_size": 8, "bf16": {"enabled": true}, "steps_per_print": 20,
 "optimizer": {"type": "AdamW", "params": {"lr": 3e-3}}, "zero_optimization": {"stage": 2},
 "checkpoint": {"use_node_local_storage": true}}
JSON
processes 2 examples/language_model --model="$dir/llama" --new --data="$dir/text.txt" --context=48 \
  --config="$dir/pieces.json" --epochs=20 --save="$dir/pieces"
[ -e "$dir"/pieces/step-*/master-00001-of-00001.safetensors ] && fail "a checkpoint of no pieces"
generated=
generate() {
  output=$(models/generate --model="$dir/llama" --ids=114,105,118 --max_new_tokens=30 --seed=3 "$@" \
    2>&1) || fail "generate $*: $output"
  [ "$output" = "${generated:=$output}" ] || fail "$* writes '$output', not '$generated'"
}
for run in run0 run1 run2 run3 pieces; do generate --checkpoint="$dir/$run"; done
generate --checkpoint="$(echo "$dir"/run3/step-*)"
[ "$(wc -l <<<"$generated")" -eq 30 ] || fail "generate writes '$generated'"
mkdir "$dir/empty"
output=$(models/generate --model="$dir/llama" --ids=1 --max_new_tokens=1 \
  --checkpoint="$dir/empty" 2>&1) &&
  fail "generates from an empty folder"
[[ $output == *"no checkpoint"* ]] || fail "generate says: $output"

mkdir "$dir/trained" && cp "$dir/llama/config.json" "$dir/trained"
checkpoint/export "$dir"/run3/step-* "$dir/trained/model.safetensors" --dtype=fp32 >/dev/null ||
  fail "no export"
generate --model="$dir/trained"
processes 1 examples/language_model --model="$dir/trained" --data="$dir/chats.jsonl" \
  --held_out="$dir/held_out.jsonl" --context=48 --config="$dir/ds.json" --epochs=4
evaluations=$(sed -n 's/^held out after [0-9]* steps: \([0-9.]*\) nats per token$/\1/p' <<<"$output")
before=$(head -1 <<<"$evaluations") after=$(tail -1 <<<"$evaluations")
[ -n "$before" ] || fail "language_model says: $output"
falls "$before" "$after" 0.3

# Lines that share samples are fewer samples, and have the loss that they have alone: a mean over
# the same tokens, but for the order of sums, in both numberings of a Llama's positions.
cat >"$dir/fp32.json" <<JSON
{"train_batch_size": 4, "optimizer": {"type": "AdamW", "params": {"lr": 3e-3}},
 "zero_optimization": {"stage": 2}}
JSON
held_out() {
  processes 2 examples/language_model --model="$dir/trained" --data="$dir/chats.jsonl" \
    --held_out="$dir/held_out.jsonl" --context=64 --config="$dir/fp32.json" --steps=1 "$@"
  before=$(sed -n 's/^held out after 0 steps: \([0-9.]*\) nats per token$/\1/p' <<<"$output")
  [ -n "$before" ] || fail "language_model says: $output"
}
held_out && alone=$before
for way in --restart_positions --norestart_positions; do
  held_out --pack $way
  [[ $output =~ held_out.jsonl:' 40 lines, '.*', '([0-9]+)' samples' ]] || fail "no samples: $output"
  ((BASH_REMATCH[1] < 40)) || fail "nothing is packed: $output"
  awk -v a="$alone" -v b="$before" 'BEGIN { d = a - b; exit !(d < 2e-4 && d > -2e-4) }' ||
    fail "packed lines have a loss of $before, alone $alone"
done
# Packed ones are learned from, in two stages with the same bits.
first=
for stage in 1 3; do
  sed "s/\"stage\": 2/\"stage\": $stage/" "$dir/fp32.json" >"$dir/packed.json"
  processes 2 examples/language_model --model="$dir/trained" --data="$dir/chats.jsonl" --pack \
    --held_out="$dir/held_out.jsonl" --context=64 --config="$dir/packed.json" --epochs=3
  evaluations=$(sed -n 's/^held out after [0-9]* steps: \([0-9.]*\) nats per token$/\1/p' <<<"$output")
  falls "$(head -1 <<<"$evaluations")" "$(tail -1 <<<"$evaluations")" 0.3
  [ "$evaluations" = "${first:=$evaluations}" ] || fail "stage $stage is another: $evaluations"
done

# Files that do not see the one before: each has the loss that it has alone.
mkdir "$dir/files" && head -c 40 "$dir/text.txt" >"$dir/files/a.txt" &&
  tail -c 24 "$dir/text.txt" >"$dir/files/b.txt" || fail "no files"
sum=0 losses=0
for files in files/a.txt files/b.txt files; do
  processes 1 examples/language_model --model="$dir/trained" --data="$dir/text.txt" --steps=1 \
    --held_out="$dir/$files" --context=64 --config="$dir/fp32.json" --separate_documents
  loss=$(sed -n 's/^held out after 0 steps: \([0-9.]*\) nats per token$/\1/p' <<<"$output")
  [ -n "$loss" ] || fail "language_model says: $output"
  # Of n bytes n - 1 follow from one before.
  if [ -f "$dir/$files" ]; then
    count=$(($(wc -c <"$dir/$files") - 1))
    sum=$(awk -v s="$sum" -v l="$loss" -v n=$count 'BEGIN { printf "%.6f", s + l * n }')
    losses=$((losses + count))
  else
    awk -v s="$sum" -v n=$losses -v l="$loss" 'BEGIN { d = s / n - l; exit !(d < 2e-4 && d > -2e-4) }' ||
      fail "files apart have a loss of $loss, alone $sum of $losses"
  fi
done

# The same by adapters alone, in two stages with the same bits, the base as int8 blocks; and on from
# what was saved.
tune() {
  processes "$1" examples/language_model --model="$dir/trained" --data="$dir/chats.jsonl" \
    --held_out="$dir/held_out.jsonl" --context=48 --config="$dir/$2.json" --epochs=4 --lora_rank=8 \
    --lora_targets=all-linear --lora_dropout=0.05 "${@:3}"
  evaluations=$(sed -n 's/^held out after [0-9]* steps: \([0-9.]*\) nats per token$/\1/p' <<<"$output")
  before=$(head -1 <<<"$evaluations") after=$(tail -1 <<<"$evaluations")
  [ -n "$before" ] || fail "language_model says: $output"
}
for stage in 1 3; do
  cat >"$dir/lora$stage.json" <<JSON
{"train_batch_size": 8, "bf16": {"enabled": true}, "steps_per_print": 20,
 "optimizer": {"type": "AdamW", "params": {"lr": 1e-2}}, "zero_optimization": {"stage": $stage}}
JSON
done
tune 2 lora1 --save_adapter="$dir/adapter1"
falls "$before" "$after" 0.3
tune 2 lora3 --save_adapter="$dir/adapter3"
cmp "$dir/adapter1/adapter_model.safetensors" "$dir/adapter3/adapter_model.safetensors" ||
  fail "stages 1 and 3 give other adapters"
saved=$after
tune 1 lora1 --adapter="$dir/adapter3"
[ "$before" = "$saved" ] || fail "begins with $before, where $saved was saved"
tune 1 lora3 --int8_base
falls "$before" "$after" 0.3
# Flags that all trainings have: a damaged checkpoint names one, which it takes; so are digests and a
# profile.
going_on() {
  examples/language_model --model="$dir/trained" --data="$dir/text.txt" --context=48 \
    --config="$dir/ds.json" --steps=10 --save="$dir/goes_on" --save_every=5 "$@" 2>&1
}
output=$(going_on) || fail "language_model says: $output"
[ -e "$dir/goes_on/step-00000005" ] || fail "no checkpoint behind step 5: $output"
for file in "$dir"/goes_on/step-00000010/*.safetensors; do truncate -s 100 "$file"; done
output=$(going_on --resume) && fail "goes on from a damaged checkpoint"
[[ $output == *"--fall_back resumes from the one before it"* ]] || fail "language_model says: $output"
output=$(going_on --resume --fall_back --digest="$dir/digests" --digest_every=1 \
  --profile="$dir/profile.json" --profile_step=7) || fail "language_model says: $output"
[ -s "$dir/digests" ] || fail "no digests: $output"
[ -s "$dir/profile.json" ] || fail "no profile: $output"
output=$(going_on --resume "$dir/goes_on") || fail "language_model says: $output"
[[ $output == *"Resumed after step 10 from $dir/goes_on"* ]] || fail "language_model says: $output"
output=$(going_on --weights="$dir/trained") && fail "weights of two kinds"
[[ $output == *"--weights are given"* ]] || fail "language_model says: $output"
WORLD_SIZE=1 RANK=0 going_on --rendezvous_folder="$dir/meeting" --resume >"$dir/out" ||
  fail "language_model says: $(cat "$dir/out")"
for flag in --rendezvous_folder="$dir/meeting" --interface=lo; do
  output=$(going_on --resume "$flag") && fail "a meeting of one thread"
  [[ $output == *"${flag%%=*} is for ranks that are processes"* ]] || fail "language_model says: $output"
done
output=$(examples/image_classifier --data="$dir/none" --interface=lo 2>&1) && fail "one thread listens"
[[ $output == *"--interface is for ranks that are processes"* ]] ||
  fail "image_classifier says: $output"
# One file for two flags.
output=$(going_on --resume --digest="$dir/twice" --trace="$dir/./twice") && fail "two files of one name"
[[ $output == *"--digest and --trace name the same file, $dir/twice"* ]] ||
  fail "language_model says: $output"
[ ! -e "$dir/twice" ] || fail "written before it is refused"

# Interrupted it says so, by its code too: adapters are those of a whole training, a checkpoint is
# what goes on.
sed 's/"steps_per_print": 20/"steps_per_print": 1/' "$dir/lora1.json" >"$dir/interrupted.json"
examples/language_model --model="$dir/trained" --data="$dir/chats.jsonl" --context=48 \
  --config="$dir/interrupted.json" --epochs=100000 --lora_rank=8 --save="$dir/interrupted" \
  --save_adapter="$dir/half" >"$dir/out" 2>&1 &
until grep -q '^step ' "$dir/out"; do
  kill -0 $! 2>/dev/null || fail "no step: $(cat "$dir/out")"
  sleep 0.05
done
kill -INT $!
wait $!
status=$?
[ $status -eq 130 ] || fail "exit code $status of an interrupted training: $(cat "$dir/out")"
grep -q '^Interrupted; --save_adapter' "$dir/out" || fail "not told: $(cat "$dir/out")"
[ ! -e "$dir/half" ] || fail "adapters of a training that was interrupted"
steps=$(basename "$dir"/interrupted/step-*)
processes 1 examples/language_model --model="$dir/trained" --data="$dir/chats.jsonl" --context=48 \
  --config="$dir/interrupted.json" --steps=$((10#${steps#step-} + 2)) --epochs=100000 --lora_rank=8 \
  --resume="$dir/interrupted" --save_adapter="$dir/half"
[ -e "$dir/half/adapter_model.safetensors" ] || fail "no adapters: $output"
output=$(examples/language_model --model="$dir/trained" --data="$dir/chats.jsonl" \
  --config="$dir/ds.json" --adapter="$dir/adapter1" 2>&1) && fail "an adapter without a rank"
[[ $output == *"give --lora_rank"* ]] || fail "language_model says: $output"
output=$(examples/language_model --model="$dir/trained" --data="$dir/chats.jsonl" \
  --config="$dir/ds.json" --norestart_positions 2>&1) && fail "positions of nothing"
[[ $output == *"--restart_positions is false"* ]] || fail "language_model says: $output"

# Two stages of a pipeline have the losses of one rank, and save its adapters, which lie on both.
first=
for stages in 1 2; do
  cat >"$dir/pipeline.json" <<JSON
{"train_batch_size": 8, "train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": true},
 "optimizer": {"type": "AdamW", "params": {"lr": 1e-2}}, "zero_optimization": {"stage": 1},
 "steps_per_print": 5, "pipeline": {"stages": $stages}}
JSON
  tune $stages pipeline --max_samples=80 --epochs=1 --save_adapter="$dir/pipeline$stages"
  [ "$evaluations" = "${first:=$evaluations}" ] || fail "$stages stages: $evaluations, not $first"
done
cmp "$dir/pipeline1/adapter_model.safetensors" "$dir/pipeline2/adapter_model.safetensors" ||
  fail "two stages save other adapters"
for stages in 1 2; do
  sed -i "s/\"stages\": ./\"stages\": $stages/" "$dir/pipeline.json"
  sed 's/"bf16": {"enabled": true},//' "$dir/pipeline.json" >"$dir/fp32.json"
  processes $stages examples/image_classifier --data="$dir/images" --epochs=1 \
    --config="$dir/fp32.json"
  last_line
  [ "$output" = "${image:=$output}" ] || fail "$stages stages: $output, not $image"
done

# The commands of the page, in a folder with the files that they name.
mkdir "$dir/page" "$dir/page/llama" && cp -r "$dir/images" "$dir/chats.jsonl" "$dir/page" &&
  cp "$dir/trained/model.safetensors" "$dir/page/llama" &&
  sed 's/"max_position_embeddings": 64/"max_position_embeddings": 128/' "$dir/llama/config.json" \
    >"$dir/page/llama/config.json" && ln -s "$PWD" "$dir/page/bazel-bin" || fail "no files for the page"
# file NAME KEYS: a configuration with these keys too.
file() {
  cat >"$dir/page/$1.json" <<JSON
{"train_batch_size": 20, "bf16": {"enabled": true}, $2
 "optimizer": {"type": "AdamW", "params": {"lr": 3e-3}}, "zero_optimization": {"stage": 1}}
JSON
}
file ds ''
file pipeline '"train_micro_batch_size_per_gpu": 10, "pipeline": {"stages": 2},'
file tensor '"tensor_parallel": {"autotp_size": 2},'
file shared '"sequence_parallel_size": 2,'
python3 -B - "$dir/page" <<'PY' || fail "docs/training.md has commands that do not work"
import pathlib, shutil, subprocess, sys
sys.path.insert(0, "tools")
import docs_commands
page, here, count = "docs/training.md", pathlib.Path.cwd(), 0
for block in docs_commands.blocks(page, docs_commands.read(page)):
    for command in block.commands() if block.reason == "//tests/examples/programs:trainings_test" else ():
        program, arguments = command.program()
        if program is None:
            continue
        program = "launch/brigade_launch" if program == "//launch" else program.strip("/").replace(":", "/")
        done = subprocess.run([here / program, *arguments], cwd=sys.argv[1], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{command}: {done.returncode}\n{done.stdout}{done.stderr}")
        for flag in ("--save=", "--save_adapter="):
            for argument in arguments:
                if argument.startswith(flag):
                    # As if each command were the first one.
                    shutil.rmtree(pathlib.Path(sys.argv[1], argument.removeprefix(flag)))
        count += 1
sys.exit(count < 8 and f"{page} has {count} commands that run")
PY
