"""Trains a GPT-2-style transformer on several processes with PyTorch, in fp32 on one thread each, and says how fast.

A rank of those that RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT tell of, as torchrun sets them; over Gloo. The
model is that of pytorch_gpt.py, the batch of each step that of examples/gpt: same text, same seed, same places.

--sharding
ddp    DistributedDataParallel
fsdp2  fully_shard of each block and of the rest; with --shard_ranks=N in groups of N ranks, which have a whole model
       each (hybrid sharding)

--write_weights=FILE writes the weights of the beginning as examples/gpt reads them (--weights), and trains nothing.

Rank 0 prints one JSON object; tokens_per_second is that of all steps after the warm-up, and bytes are those of the
tensors of this rank. Run it by benchmarks/peers/pytorch_data_parallel.
"""

import argparse
import json
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from pytorch_gpt import BETAS, EPS, LR, MAX_NORM, WEIGHT_DECAY, Best, Gpt, Public

# The parameters of a block, by their names in examples/gpt.
BLOCK_NAMES = {"norm1": "norm1", "qkv": "qkv", "projection": "projection", "norm2": "norm2", "expand": "up",
               "contract": "down"}


def random_numbers(seed, purpose):
    """SplitMix64 as nn/random.h has it: the places of the texts."""
    mask = (1 << 64) - 1

    def mix(z):
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9 & mask
        z = (z ^ (z >> 27)) * 0x94d049bb133111eb & mask
        return z ^ (z >> 31)

    state = mix(seed) ^ mix(~purpose & mask)
    while True:
        state = (state + 0x9e3779b97f4a7c15) & mask
        yield mix(state)


class Batches:
    """This rank's texts of each step of examples/gpt, whose last tenth of the file is held out."""

    def __init__(self, path, seed, batch, context, rank, ranks):
        text = path.read_bytes()
        self.text = torch.frombuffer(bytearray(text), dtype=torch.uint8)[:len(text) - min(len(text) // 10, 64 << 10)]
        self.places = len(self.text) - context
        if self.places < 1:
            sys.exit(f"pytorch_data_parallel: {path} is too short for a context of {context}")
        self.seed, self.context = seed, context
        self.mine = range(rank * batch // ranks, (rank + 1) * batch // ranks)

    def step(self, step):
        begins = [next(random_numbers(self.seed, step << 32 | text)) % self.places for text in self.mine]
        return torch.stack([self.text[begin:begin + self.context + 1] for begin in begins]).long()


def named_parameters(model):
    """The parameters by their names in examples/gpt."""
    yield "tokens", model.embedding.weight
    yield "positions", model.positions
    for index, block in enumerate(model.blocks):
        for name, ours in BLOCK_NAMES.items():
            layer = getattr(block, ours)
            yield f"h.{index}.{name}.weight", layer.weight
            yield f"h.{index}.{name}.bias", layer.bias
    yield "norm.weight", model.norm.weight
    yield "norm.bias", model.norm.bias


def write_weights(model, path):
    header, parts, begin = {}, [], 0
    for name, parameter in named_parameters(model):
        part = parameter.detach().numpy().tobytes()
        header[name] = {"dtype": "F32", "shape": list(parameter.shape), "data_offsets": [begin, begin + len(part)]}
        parts.append(part)
        begin += len(part)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(parts))


def bytes_of(tensors):
    """Of the elements that this rank has of them."""
    tensors = [tensor.to_local() if hasattr(tensor, "to_local") else tensor for tensor in tensors]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sharding", choices=["ddp", "fsdp2"], default="ddp")
    parser.add_argument("--shard_ranks", type=int, default=0, help="of fsdp2; 0: all")
    parser.add_argument("--operators", choices=["public", "best"], default="public", help="as pytorch_gpt.py has them")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--batch", type=int, default=16, help="texts of a step, of all ranks")
    parser.add_argument("--steps", type=int, default=50, help="steps that are timed")
    parser.add_argument("--warmup", type=int, default=5, help="steps before that")
    parser.add_argument("--data", type=pathlib.Path, default=pathlib.Path("/usr/share/common-licenses/GPL-3"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write_weights", type=pathlib.Path)
    arguments = parser.parse_args()
    if arguments.shard_ranks < 0 or (arguments.shard_ranks and arguments.sharding != "fsdp2"):
        parser.error(f"--shard_ranks={arguments.shard_ranks} is not a number of ranks of fsdp2")
    if arguments.width % arguments.heads != 0:
        parser.error(f"--width={arguments.width} is no multiple of --heads={arguments.heads}")
    return arguments


def main():
    arguments = parse_arguments()
    torch.set_num_threads(1)
    torch.manual_seed(arguments.seed)
    model = Gpt(arguments.layers, arguments.width, arguments.heads, arguments.context,
                Best if arguments.operators == "best" else Public)
    if arguments.write_weights:
        return write_weights(model, arguments.write_weights)

    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    if arguments.batch % ranks != 0:
        sys.exit(f"pytorch_data_parallel: {ranks} ranks do not divide --batch={arguments.batch}")
    batches = Batches(arguments.data, arguments.seed, arguments.batch, arguments.context, rank, ranks)
    if arguments.sharding == "ddp":
        loss_of = DistributedDataParallel(model)
    else:
        shard_ranks = arguments.shard_ranks or ranks
        if ranks % shard_ranks != 0:
            sys.exit(f"pytorch_data_parallel: --shard_ranks={shard_ranks} does not divide {ranks} ranks")
        shape, names = ((ranks,), ("shard",)) if shard_ranks == ranks else \
            ((ranks // shard_ranks, shard_ranks), ("replicate", "shard"))
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        loss_of = fully_shard(model, mesh=mesh)
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=LR, betas=BETAS, eps=EPS, weight_decay=WEIGHT_DECAY, fused=True)

    def step(number):
        batch = batches.step(number)
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(batch[:, :-1], batch[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, MAX_NORM, foreach=True)
        optimizer.step()
        return loss.detach()

    losses = [step(number) for number in range(arguments.warmup)]
    dist.barrier()
    begin = time.perf_counter()
    losses += [step(arguments.warmup + number) for number in range(arguments.steps)]
    dist.barrier()
    seconds = time.perf_counter() - begin
    losses = torch.stack(losses)
    dist.all_reduce(losses)
    sizes = {"parameters": bytes_of(parameters), "gradients": bytes_of(parameter.grad for parameter in parameters),
             "optimizer": bytes_of(value for state in optimizer.state.values() for value in state.values())}
    if rank == 0:
        print(json.dumps({
            "tokens_per_second": arguments.steps * arguments.batch * arguments.context / seconds,
            "losses": (losses / ranks).tolist(),
            "bytes": sizes,
            "parameters": sum(parameter.numel() for parameter in parameters),
            "sharding": arguments.sharding,
            "shard_ranks": arguments.shard_ranks,
            "operators": arguments.operators,
            "ranks": ranks,
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
        }), flush=True)
    # Not by way of destroy_process_group and the interpreter's end: after fully_shard PyTorch 2.15 at times ended a process
    # there with "terminate called without an active exception".
    dist.barrier()
    time.sleep(0.2)
    os._exit(0)


if __name__ == "__main__":
    main()
