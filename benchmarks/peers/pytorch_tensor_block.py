"""Times a transformer's block on tensor ranks by PyTorch's parallelize_module: processes over Gloo, one thread each.

The block is that of //benchmarks/parallel:tensor_block: layer norm before attention and before the MLP, biases
everywhere, GELU by tanh, residuals; forward and backward, in fp32. Queries, keys and values are three columnwise
products, because PyTorch cuts a matrix into one part for each rank.

Each line of the standard input asks for a turn of `--runs` passes; printed are the seconds of one, from when all ranks
begin until all have ended. Run it by benchmarks/peers/pytorch_tensor_block.
"""

import argparse
import os
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional


class Block(nn.Module):
    def __init__(self, width, heads, ranks):
        super().__init__()
        self.local_heads = heads // ranks
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.projection = nn.Linear(width, width)
        self.expand, self.contract = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def heads_of(self, x):
        batch, context, width = x.shape
        return x.view(batch, context, self.local_heads, width // self.local_heads).transpose(1, 2)

    def attention(self, x):
        q, k, v = (self.heads_of(layer(x)) for layer in (self.query, self.key, self.value))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.projection(mixed.transpose(1, 2).flatten(2))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.contract(functional.gelu(self.expand(self.norm2(x)), approximate="tanh"))


def run_rank(rank, arguments, store, turns, results):
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=arguments.ranks)
    block = Block(arguments.width, arguments.heads, arguments.ranks)
    columns, rows = ("query", "key", "value", "expand"), ("projection", "contract")
    parallelize_module(block, init_device_mesh("cpu", (arguments.ranks,)),
                       {**{name: ColwiseParallel() for name in columns}, **{name: RowwiseParallel() for name in rows}})
    x = torch.rand(arguments.batch, arguments.context, arguments.width).requires_grad_()
    upstream = torch.rand_like(x)

    def turn():
        for _ in range(arguments.runs):
            x.grad = None
            block.zero_grad(set_to_none=True)
            block(x).backward(upstream)

    turn()
    while turns[rank].get():
        dist.barrier()
        begin = time.perf_counter()
        turn()
        dist.barrier()
        if rank == 0:
            results.put((time.perf_counter() - begin) / arguments.runs)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--runs", type=int, default=2)
    arguments = parser.parse_args()
    if arguments.heads % arguments.ranks != 0 or arguments.width % arguments.heads != 0:
        parser.error("the ranks must divide the heads, the heads the width")
    context = torch.multiprocessing.get_context("spawn")
    turns, results = [context.Queue() for _ in range(arguments.ranks)], context.Queue()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        ranks = [context.Process(target=run_rank, args=(rank, arguments, f"{folder}/store", turns, results), daemon=True)
                 for rank in range(arguments.ranks)]
        for process in ranks:
            process.start()
        for _ in sys.stdin:
            for queue in turns:
                queue.put(True)
            while results.empty():
                if not all(process.is_alive() for process in ranks):
                    sys.exit("a rank has ended")
                time.sleep(0.001)
            print(f"{results.get():.9f}", flush=True)
        for queue in turns:
            queue.put(False)
        for process in ranks:
            process.join()


if __name__ == "__main__":
    main()
