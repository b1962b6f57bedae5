"""Trains a GPT-2-style transformer over bytes with PyTorch, in fp32 on one thread, and says how fast.

The model is that of examples/gpt: layer norm before attention and before the MLP, one matrix for query, key and
value, biases everywhere, GELU by tanh, learned positions, the embedding tied to the output, no dropout. A
step draws a batch, and runs forward, backward, clipping to norm 1 and AdamW.

--operators
public    the fastest of PyTorch's public interface: scaled_dot_product_attention, gelu, fused AdamW
compiled  the same by torch.compile, which needs a C++ compiler
best      matrix products by PyTorch's internal operator for oneDNN, 215 GFLOP/s where MKL, which linear() calls,
          reached 95 on an AMD EPYC (Zen 5); GELU by the sigmoid, which PyTorch computes faster than the tanh:
          the best that we know how to make of PyTorch

Prints one JSON object; tokens_per_second is that of the median step. Run it by benchmarks/peers/pytorch_gpt.
"""

import argparse
import json
import math
import pathlib
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional

VOCABULARY = 256
INITIAL_DEVIATION = 0.02
LR, BETAS, EPS, WEIGHT_DECAY, MAX_NORM = 1e-3, (0.9, 0.95), 1e-8, 0.1, 1.0


class Public:
    linear = staticmethod(functional.linear)

    @staticmethod
    def gelu(x):
        return functional.gelu(x, approximate="tanh")


class OneDnnLinear(torch.autograd.Function):
    @staticmethod
    def product(x, weight, bias=None):
        return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")

    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight)
        ctx.has_bias = bias is not None
        return OneDnnLinear.product(x, weight, bias)

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        rows = grad.reshape(-1, grad.shape[-1])
        return (OneDnnLinear.product(grad, weight.t()),
                OneDnnLinear.product(rows.t(), x.reshape(-1, x.shape[-1]).t()),
                rows.sum(0) if ctx.has_bias else None)


class SigmoidGelu(torch.autograd.Function):
    """x sigmoid(2u), which is x (1 + tanh(u)) / 2, where 2u = A x + B x^3."""

    A = 2 * math.sqrt(2 / math.pi)
    B = A * 0.044715

    @staticmethod
    def forward(ctx, x):
        sigmoid = torch.addcmul(x.new_tensor(SigmoidGelu.A), x, x, value=SigmoidGelu.B).mul_(x).sigmoid_()
        ctx.save_for_backward(x, sigmoid)
        return x * sigmoid

    @staticmethod
    def backward(ctx, grad):
        x, sigmoid = ctx.saved_tensors
        slope = torch.addcmul(x.new_tensor(SigmoidGelu.A), x, x, value=3 * SigmoidGelu.B).mul_(x)
        slope.addcmul_(slope, sigmoid, value=-1)
        return slope.add_(1).mul_(sigmoid).mul_(grad)


class Best:
    gelu = staticmethod(SigmoidGelu.apply)

    @staticmethod
    def linear(x, weight, bias=None):
        return OneDnnLinear.apply(x, weight, bias)


class Block(nn.Module):
    def __init__(self, width, heads, operators):
        super().__init__()
        self.heads = heads
        self.operators = operators
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def linear(self, layer, x):
        return self.operators.linear(x, layer.weight, layer.bias)

    def attention(self, x):
        batch, context, width = x.shape
        qkv = self.linear(self.qkv, x)
        q, k, v = qkv.view(batch, context, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.linear(self.projection, mixed.transpose(1, 2).reshape(batch, context, width))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.linear(self.down, self.operators.gelu(self.linear(self.up, self.norm2(x))))


class Gpt(nn.Module):
    def __init__(self, layers, width, heads, context, operators):
        super().__init__()
        self.operators = operators
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.positions = nn.Parameter(torch.empty(context, width))
        self.blocks = nn.Sequential(*(Block(width, heads, operators) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=INITIAL_DEVIATION)
        for block in self.blocks:
            for linear in (block.projection, block.down):  # they add up along the residual stream
                nn.init.normal_(linear.weight, std=INITIAL_DEVIATION / math.sqrt(2 * layers))
            for linear in (block.qkv, block.projection, block.up, block.down):
                nn.init.zeros_(linear.bias)

    def forward(self, tokens, targets):
        x = self.norm(self.blocks(self.embedding(tokens) + self.positions))
        logits = self.operators.linear(x, self.embedding.weight)
        return functional.cross_entropy(logits.view(-1, VOCABULARY), targets.reshape(-1))


def read_bytes(path, generator):
    if path is None:
        return torch.randint(VOCABULARY, (1 << 20,), dtype=torch.uint8, generator=generator)
    try:
        return torch.tensor(list(path.read_bytes()), dtype=torch.uint8)
    except OSError as error:
        sys.exit(f"pytorch_gpt: {error}")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--batch", type=int, default=8, help="sequences in a step")
    parser.add_argument("--steps", type=int, default=50, help="steps that are timed")
    parser.add_argument("--warmup", type=int, default=5, help="steps before that")
    parser.add_argument("--data", type=pathlib.Path, help="any file (default: random bytes)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--operators", choices=["public", "compiled", "best"], default="public")
    arguments = parser.parse_args()
    if arguments.width % arguments.heads != 0:
        parser.error(f"--width={arguments.width} is no multiple of --heads={arguments.heads}")
    return arguments


def main():
    arguments = parse_arguments()
    torch.set_num_threads(1)
    torch.manual_seed(arguments.seed)
    generator = torch.Generator().manual_seed(arguments.seed)
    data = read_bytes(arguments.data, generator)
    if len(data) <= arguments.context:
        sys.exit(f"pytorch_gpt: {arguments.data} has {len(data)} bytes, and --context={arguments.context} needs more")
    windows = data.unfold(0, arguments.context + 1, 1)

    model = Gpt(arguments.layers, arguments.width, arguments.heads, arguments.context,
                Best if arguments.operators == "best" else Public)
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=LR, betas=BETAS, eps=EPS, weight_decay=WEIGHT_DECAY, fused=True)
    loss_of = torch.compile(model) if arguments.operators == "compiled" else model

    def step():
        batch = windows[torch.randint(len(windows), (arguments.batch,), generator=generator)].long()
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(batch[:, :-1], batch[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, MAX_NORM, foreach=True)
        optimizer.step()
        return loss.item()

    losses, seconds = [], []
    for _ in range(arguments.warmup + arguments.steps):
        begin = time.perf_counter()
        losses.append(step())
        seconds.append(time.perf_counter() - begin)
    tokens = arguments.batch * arguments.context
    median = statistics.median(seconds[arguments.warmup:])
    print(json.dumps({
        "tokens_per_second": tokens / median,
        "fastest_tokens_per_second": tokens / min(seconds[arguments.warmup:]),
        "step_ms": median * 1e3,
        "first_loss": losses[0],
        "loss": losses[-1],
        "parameters": sum(parameter.numel() for parameter in parameters),
        "operators": arguments.operators,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "cpu": torch.backends.cpu.get_cpu_capability(),
    }))


if __name__ == "__main__":
    main()
