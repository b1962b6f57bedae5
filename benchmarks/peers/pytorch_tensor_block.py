"""Times a transformer's block on tensor ranks by PyTorch: processes over Gloo, one thread each.

The block is that of //benchmarks/parallel:tensor_block: layer norm before attention and before the MLP, biases
everywhere, GELU by tanh, residuals; forward and backward, in fp32.

--operators
public  parallelize_module, with queries, keys and values as three columnwise products, because it cuts a matrix into
        one part for each rank
best    the sums over ranks by hand, as Megatron has them, and the operators of pytorch_gpt.py's `best`

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

from pytorch_gpt import Best


class SumGradients(torch.autograd.Function):
    """What column-parallel products begin with."""

    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous()
        dist.all_reduce(grad)
        return grad


class SumOverRanks(torch.autograd.Function):
    """What row-parallel products end with."""

    @staticmethod
    def forward(ctx, x):
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad


class BestBlock(nn.Module):
    """A rank's part of the matrices."""

    def __init__(self, width, heads, ranks):
        super().__init__()
        self.local_heads = heads // ranks
        cut = width // ranks
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.expand = nn.Linear(width, 3 * cut), nn.Linear(width, 4 * cut)
        self.projection, self.contract = (nn.Linear(inputs, width, bias=False) for inputs in (cut, 4 * cut))
        self.projection_bias, self.contract_bias = (nn.Parameter(torch.zeros(width)) for _ in range(2))

    @staticmethod
    def linear(layer, x):
        return Best.linear(x, layer.weight, layer.bias)

    def attention(self, x):
        batch, context, _ = x.shape
        q, k, v = self.linear(self.qkv, x).view(batch, context, 3, self.local_heads, -1).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.linear(self.projection, mixed.transpose(1, 2).flatten(2))

    def forward(self, x):
        x = x + SumOverRanks.apply(self.attention(SumGradients.apply(self.norm1(x)))) + self.projection_bias
        mlp = Best.gelu(self.linear(self.expand, SumGradients.apply(self.norm2(x))))
        return x + SumOverRanks.apply(self.linear(self.contract, mlp)) + self.contract_bias


class PublicBlock(nn.Module):
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

    def parallelize(self, ranks):
        columns, rows = ("query", "key", "value", "expand"), ("projection", "contract")
        parallelize_module(self, init_device_mesh("cpu", (ranks,)),
                           {**{name: ColwiseParallel() for name in columns}, **{name: RowwiseParallel() for name in rows}})


def run_rank(rank, arguments, store, turns, results):
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=arguments.ranks)
    if arguments.operators == "best":
        block = BestBlock(arguments.width, arguments.heads, arguments.ranks)
    else:
        block = PublicBlock(arguments.width, arguments.heads, arguments.ranks)
        block.parallelize(arguments.ranks)
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
    parser.add_argument("--operators", choices=["public", "best"], default="public")
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
