#!/bin/bash
# train_errors_test.sh TRAIN: what is wrong is said in one line, the exit code is 1, and nothing
# hangs.
. tests/examples/gpt/train_testing.sh
cd "$files" || exit 1

# refuses TEXT ARGUMENT...: with this error, before anything else is said.
refuses() {
  refuses_later "$@"
  [ -s out ] && fail "$* says \"$(cat out)\" before the error"
  return 0
}

# The same where what is wrong is found when the training begins.
refuses_later() {
  local wanted="train: $1" status
  shift
  timeout 60 "$train" "${tiny[@]}" --steps=4 "$@" >out 2>error
  status=$?
  [ $status -eq 1 ] || fail "exit code $status of $*"
  [ "$(cat error)" = "$wanted" ] || fail "$* says \"$(cat error)\" instead of \"$wanted\""
}

mkdir folder
: >empty
printf 'too short' >short
head -c 169 /dev/zero >short_held_out
refuses 'cannot open missing.txt: No such file or directory' --data=missing.txt
refuses 'empty is empty' --data=empty
refuses 'folder is a folder, not a file' --data=folder
mkfifo pipe
refuses 'pipe is a pipe, not a file' --data=pipe
refuses '/dev/zero is a device, not a file' --data=/dev/zero
truncate --size=8T giant
refuses "giant has 8796093022208 bytes; at most $(($(getconf _PHYS_PAGES) / 4 * $(getconf PAGESIZE))) are read" \
  --data=giant
refuses 'the text is too short: training part has 9 bytes; a context of 16 needs 17' --data=short
refuses 'the text is too short: held-out part has 16 bytes; a context of 16 needs 17' \
  --data=short_held_out

echo '{"train_batch_size": 4, "optimizr": {"type": "Adam"}}' >unknown_key.json
echo '{"train_batch_size": 6, "optimizer": {"type": "Adam"}}' >impossible_batch.json
echo '{"train_batch_size": 4,' >no_json.json
refuses 'unknown_key.json: optimizr is {"type":"Adam"}, an object; there is no such key, the nearest is optimizer' \
  --config=unknown_key.json
refuses 'impossible_batch.json: train_batch_size 6 on 4 ranks: the batch is not micro-batch times accumulation steps times ranks; train_batch_size 4 would do' \
  --config=impossible_batch.json
refuses 'cannot open missing.json: No such file or directory' --config=missing.json
echo '{"train_batch_size": 4, "optimizer": {"type": "Adam"}, "brigade": {"algorithm": "native", "reduction": "rounded_per_hop"}}' >native.json
refuses 'brigade.algorithm is "native", but the backend threads has no collectives of its own; nccl has' \
  --config=native.json
refuses '--context_exchange is "mesh"; it must be ulysses or ring' --context_exchange=mesh
refuses '--pipeline is -1, but it must be 1 to 32768' --pipeline=-1
refuses '--tensor is 0, but it must be 1 to 32768' --tensor=0
refuses '--replicas is 0, but it must be 1 to 32768' --replicas=0
refuses '--replica_wire is "int8"; it must be fp32, fp16 or bf16' --replicas=2 --replica_wire=int8
refuses '2 flags are refused:
  --tensor_shards is 0, but it must be 1 to 32768
  --context_parallel is 0, but it must be 1 to 32768' --tensor_shards=0 --context_parallel=0
refuses '4 ranks cannot be shared out by --tensor 2 x --pipeline 4: 8 does not divide 4' \
  --pipeline=4 --tensor=2
refuses '--schedule: "2f2b" is none of gpipe, 1f1b, interleaved:V with V from 2 on, zb-h1 and zb-v' \
  --pipeline=2 --schedule=2f2b
refuses '--partition: "3,0" is none of parameters, flops, time and ascending boundaries from 0 on, as 0,3,6' \
  --pipeline=2 --partition=3,0
refuses "--schedule is \"zb-v\", but no ranks share the model's layers: --pipeline is not above 1" \
  --schedule=zb-v
refuses "--partition is \"time\", but no ranks share the model's layers: --pipeline is not above 1" \
  --partition=time
refuses 'pipeline.stages (--pipeline) 4 with 1 chunk each (brigade.schedule, --schedule) cut the model into 4 parts, but embedding, 1 block and head are only 3' \
  --pipeline=4
refuses 'brigade.partition (--partition): partition: boundaries 0,1,4; for 2 parts of 3 layers there are 3 ascending ones from 0 to 3' \
  --pipeline=2 --partition=0,1,4
refuses '--schedule is "interleaved:9", of 9 chunks on each stage; it must be at most 8' \
  --pipeline=2 --schedule=interleaved:9
echo '{"train_batch_size": 12, "gradient_accumulation_steps": 3, "optimizer": {"type": "Adam"}, "pipeline": {"stages": 4}}' >three.json
refuses 'three.json: --pipeline 2, --schedule interleaved:2, 3 micro-batches on each rank: pipeline: interleaved:2 takes micro-batches in groups of 2, one for each stage: of 3 are 1 left' \
  --config=three.json --pipeline=2 --schedule=interleaved:2
"$train" --help >help
for flag in --ranks --pipeline --schedule --resume; do
  grep -q -e "^ *$flag " help || fail "--help lacks $flag"
done
cat >many.json <<'END'
{"train_batch_size": "auto", "optimizer": {"type": "MuSGD"}, "fp16": {"enabled": "auto"},
 "tensorboard": {"enabled": false}, "wandb": {"enabled": true}, "stage": 2}
END
refuses 'many.json: 5 keys are refused:
  fp16.enabled is "auto", which nothing fills in here: give --precision, leave the key out for false, or write true or false
  optimizer.type is "MuSGD", a string; DeepSpeed knows it, but it is not supported yet; it must be one of Adam, AdamW, SGD, Lion, Muon, Adafactor, AdamW8bit, Adam8bit, OneBitAdam, Lamb, OneBitLamb, ZeroOneAdam
  stage is 2; there is no such key, the nearest is zero_optimization.stage
  train_batch_size is "auto", which nothing fills in here: give --batch, leave the key out for what follows from the others, or write a whole number, 1 or more
  wandb is {"enabled":true}, an object; DeepSpeed knows it, but it is not supported yet: `wandb sync` uploads what tensorboard writes' \
  --config=many.json
echo '{"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 3, "bf16": {"enabled": true}, "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 0.25}}}' >sizes.json
refuses 'sizes.json: --batch 16, train_micro_batch_size_per_gpu 2, gradient_accumulation_steps 3 on 4 ranks: the batch is not micro-batch times accumulation steps times ranks; --batch 24 would do' \
  --config=sizes.json --batch=16 --lr=0.25
refuses 'sizes.json: --lr is 0.5, but the schedule has rates of its own, up to 0.25' \
  --config=sizes.json --lr=0.5
refuses 'sizes.json: --precision is "fp16", but fp16.enabled and bf16.enabled of the file say bf16' \
  --config=sizes.json --lr=0.25 --precision=fp16
refuses '--batch is 0; it must be 1 to 2^53' --batch=0
refuses '--batch 6 on 4 ranks: the batch is not micro-batch times accumulation steps times ranks; --batch 4 would do' \
  --batch=6
refuses '--lr is -1; it must be a number, 0 or more, and finite as a float' --lr=-1
refuses '--lr is nan; it must be a number, 0 or more, and finite as a float' --lr=nan
refuses '2 context ranks cannot share the 1 heads of a tensor shard' --context_parallel=2 --heads=1
refuses '20 positions cannot be cut into two chunks for each of 4 context ranks' \
  --context_parallel=4 --context_exchange=ring --context=20
refuses 'files are to be in /no/folder, which is no folder (--offload_dir, offload_optimizer.nvme_path, brigade.file_directory)' \
  --offload=optimizer --offload_to=file --offload_dir=/no/folder
# Of what keys and flags say together neither is counted.
refuses "2 keys and flags are refused:
  files are to be in /no/folder, which is no folder (--offload_dir, offload_optimizer.nvme_path, brigade.file_directory)
  the model's width is 17; it must be a multiple of its 2 heads" \
  --offload=optimizer --offload_to=file --offload_dir=/no/folder --width=17

# Whatever refuses them: flags by themselves, the file, flags beside it, the model; what has no name hides none.
refuses '2 keys and flags are refused:
  cannot open missing.txt: No such file or directory
  --tensor_overlap is 2, but the model has one tensor shard: nothing is exchanged' --data=missing.txt --tensor_overlap=2
refuses 'no_json.json: 2 keys and flags are refused:
  --stage is in the file that --config names, not beside it
  not valid JSON: parse error at line 2, column 1: syntax error while parsing object key - unexpected end of input; expected string literal' \
  --config=no_json.json --stage=1
refuses "unknown_key.json: 3 keys and flags are refused:
  --lr is -1; it must be a number, 0 or more, and finite as a float
  optimizr is {\"type\":\"Adam\"}, an object; there is no such key, the nearest is optimizer
  the model's number of heads is 0; it must be 1 to 1000" \
  --config=unknown_key.json --lr=-1 --heads=0
refuses '2 keys and flags are refused:
  --batch is 0; it must be 1 to 2^53
  cannot open missing.json: No such file or directory' --config=missing.json --batch=0
echo '{"train_batch_size": "auto", "optimizer": {"type": "SGD", "params": {"lr": "auto"}}, "fp16": {"enabled": "auto"}}' >auto.json
refuses '3 flags are refused:
  --batch is 0; it must be 1 to 2^53
  --lr is -1; it must be a number, 0 or more, and finite as a float
  --precision is "fp8"; it must be fp32, fp16 or bf16' \
  --config=auto.json --batch=0 --lr=-1 --precision=fp8
refuses '3 flags are refused:
  --config is given, but empty
  --lr is given, but empty
  --timeout is 0; it must be 1ms to 8760h' --config= --lr '' --timeout=0
refuses '--resume is given, but empty' --resume=
refuses '2 flags are refused:
  --save: cannot make short/a/b: short is no folder
  --weights: cannot open /nonexistent: No such file or directory' --save=short/a/b --weights=/nonexistent
refuses '--save: cannot make short: short is no folder' --save=short
refuses '--weights: folder has neither model.safetensors nor model.safetensors.index.json, and no checkpoint' \
  --weights=folder
refuses '4 keys and flags are refused:
  the backend is "mpi"; it must be auto, threads, gloo or nccl
  --ranks is -1; it must be at least 1
  cannot open missing.txt: No such file or directory
  the model'\''s width is 0; it must be 1 to 65536' \
  --backend=mpi --ranks=-1 --width=0 --data=missing.txt
CUDA_VISIBLE_DEVICES='' timeout 60 "$train" "${tiny[@]}" --steps=1 --device=cuda >out 2>error &&
  fail 'it trains without a GPU'
[ -s out ] && fail "it says \"$(cat out)\" before the error $(cat error)"
expect_line error 'train: cuda.*'
refuses '--may_differ is for --resume' --may_differ=seed
refuses '--evaluate_every is -1; it must be at least 0' --evaluate_every=-1
refuses '2 flags are refused:
  --save_every is -1; it must be at least 0
  --keep is -1; it must be at least 0' --save_every=-1 --keep=-1
refuses '--trace and --metrics name the same file, ./m.jsonl' --trace=./m.jsonl --metrics=m.jsonl
of_processes='is for ranks that are processes, which need a launcher: mpirun, torchrun or srun'
refuses "3 flags are refused:
  --rendezvous_folder $of_processes
  --interface $of_processes
  --keep is -1; it must be at least 0" --rendezvous_folder=meeting --interface=lo --keep=-1

refuses '/dev/full is a device, not a file' --metrics=/dev/full
refuses 'cannot write missing/m.jsonl: No such file or directory' --metrics=missing/m.jsonl
refuses '/dev/full is a device, not a file' --trace=/dev/full
refuses 'cannot write missing/t.json: No such file or directory' --trace=missing/t.json
ln -s short linked
refuses 'linked is a link, not a file' --metrics=linked

refuses '--stage is 7; it must be 0 to 3' --stage=7
refuses '--stage is -1; it must be 0 to 3' --stage=-1
refuses '--steps is 20000000, which scheduler.params.total_num_steps is, being "auto"; it must be a whole number, 1 to 2^24' \
  --steps=20000000
refuses '--precision is "fp8"; it must be fp32, fp16 or bf16' --precision=fp8
refuses '--offload_to is "disk"; it must be host or file' --offload=all --offload_to=disk
refuses '--offload_to is for --offload=optimizer and --offload=all' --offload_to=file
refuses '--offload_to=file needs --offload_dir' --offload=optimizer --offload_to=file
refuses '--offload_dir is for --offload_to=file and --stash=file' --offload=optimizer --offload_dir=folder
refuses '--device_limit is "much"; it must be a number of bytes' --device_limit=much
refuses '--device_link is "slow"; it must be a number of bytes' --device_link=slow
refuses '--dropout is 1; it must be at least 0 and below 1' --dropout=1
refuses '--dropout is nan; it must be at least 0 and below 1' --dropout=nan
refuses '--recompute: "all" is none of none, block, selective, segments:K and budget:BYTES' --recompute=all
refuses '--device is "tpu"; it must be cpu or cuda' --device=tpu
refuses '--recompute_times: "flops" is neither operations nor measured' --recompute=block \
  --recompute_times=flops
refuses '--recompute_times is measured, but no activations are made again' --recompute_times=measured
refuses '--stash: "disk" is none of none, host and file' --stash=disk
refuses '--stash=file needs --offload_dir' --recompute=block --stash=file
refuses '--stash: a stash is for the inputs of recomputation by block or segments:K, not by selective' \
  --stash=host --recompute=selective
refuses '--stash: a stash is for the inputs of recomputation by block or segments:K, not by none' \
  --stash=host
refuses '5 flags are refused:
  --device is "tpu"; it must be cpu or cuda
  --stage is 4; it must be 0 to 3
  --lr is -1; it must be a number, 0 or more, and finite as a float
  --dropout is 1; it must be at least 0 and below 1
  --offload is "some"; it must be none, optimizer or all' \
  --device=tpu --stage=4 --lr=-1 --offload=some --dropout=1
refuses '--steps is 0; it must be at least 1' --steps=0
refuses '--ranks is -1; it must be at least 1' --ranks=-1
refuses '--timeout is 0; it must be 1ms to 8760h' --timeout=0
refuses '--timeout is inf; it must be 1ms to 8760h' --timeout=inf
refuses '--grace_period is -1s; it must be 0 to 24h' --grace_period=-1s
refuses '--grace_period is inf; it must be 0 to 24h' --grace_period=inf
refuses '--ranks is 65; a group of threads has 1 to 64' --ranks=65
refuses "the model's width is 17; it must be a multiple of its 2 heads" --width=17
refuses "the model's width of a head is 512; it must be 1 to 256" --width=1024 --heads=2
refuses '"surplus" is no flag; see --help' surplus
RANK=0 WORLD_SIZE=2 refuses '--ranks is 4, but the launcher has started 2 processes, a rank each' \
  --ranks=4
RANK=0 WORLD_SIZE=1 refuses '--ranks is 4, but the launcher has started 1 process, a rank each' \
  --ranks=4
RANK=0 refuses 'RANK=0 is set, but WORLD_SIZE is not'

"$train" "${tiny[@]}" --steps=1 >/dev/full 2>error && fail 'a report into a full disk is no error'
expect_line error 'train: cannot write the report'

# A disk that becomes full while training, played by a limit of 8 KiB a file. What is written beside
# it is not worth a training: this goes on, and says what is missing, at once and at the end.
fills_up() {
  local status=0
  (
    trap '' XFSZ
    ulimit -f 8
    timeout 60 "$train" "${tiny[@]}" --steps=200 "${@:2}" 2>error | cat >out
    exit "${PIPESTATUS[0]}"
  ) || status=$?
  [ $status -eq "$1" ] || fail "exit code $status of a training with ${*:2} on a full disk"
  expect_line out 'Report: 200 of 200 steps .*'
}
fills_up 0 --metrics=grows
expect_line error 'train: grows: cannot write grows: File too large'
expect_line error 'train: grows: [0-9]+ of [0-9]+ records are missing: cannot write grows: File too large'
[ "$(wc -l <error)" = 2 ] || fail "it says \"$(cat error)\""
# A trace is no use without its end: that is the code.
fills_up 1 --trace=grows
expect_line error 'train: cannot write trace grows: File too large; the training goes on'
expect_line error 'train: cannot write trace grows: File too large'
[ "$(wc -l <error)" = 2 ] || fail "it says \"$(cat error)\""
# The end names all that is missing.
fills_up 1 --trace=grows --digest=digests --digest_every=1
expect_line error 'train: the digests of [0-9]+ steps are missing: cannot write digests: File too large; cannot write trace grows: File too large'
[ "$(wc -l <error)" = 3 ] || fail "it says \"$(cat error)\""

refuses 'the backend is "mpi"; it must be auto, threads, gloo or nccl' --backend=mpi
refuses '--backend is gloo, which needs a launcher: mpirun, torchrun or srun' --backend=gloo
export RANK=0 WORLD_SIZE=2
refuses '--backend is threads, of one process, but the launcher has started 2 processes' \
  --backend=threads
refuses '--backend is nccl, which does not work with --device=cpu' --backend=nccl
