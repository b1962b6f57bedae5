"""Times PyTorch's scaled_dot_product_attention(is_causal=True) on the CPU.

Each line of the standard input says what: PASS type:context:heads:width, where PASS is forward or backward and the
type fp32, fp16 or bf16. Prints the median seconds of --rounds runs, after one that is not counted. Two layouts take
turns, and the faster one counts: separate tensors of each head, and views into one array of queries, keys and values
side by side, as they come out of a layer. Run it by benchmarks/peers/pytorch_attention.
"""

import argparse
import statistics
import sys
import time

import torch
from torch.nn.functional import scaled_dot_product_attention

TYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


class Case:
    def __init__(self, text):
        kind, *sizes = text.split(":")
        context, heads, width = map(int, sizes)
        dtype = TYPES[kind]

        def noise(*shape):
            return (4 * torch.rand(*shape) - 2).to(dtype).requires_grad_()

        side_by_side = noise(1, context, 3, heads, width)
        self.inputs = [[side_by_side[:, :, part].transpose(1, 2) for part in range(3)],
                       [noise(1, heads, context, width) for _ in range(3)]]
        self.outputs = [scaled_dot_product_attention(*inputs, is_causal=True) for inputs in self.inputs]
        self.upstream = [torch.rand_like(out) for out in self.outputs]

    def turns(self, which):
        def forward(inputs):
            with torch.no_grad():
                scaled_dot_product_attention(*inputs, is_causal=True)

        def backward(out, inputs, upstream):
            torch.autograd.grad(out, inputs, upstream, retain_graph=True)

        if which == "forward":
            return [lambda inputs=inputs: forward(inputs) for inputs in self.inputs]
        assert which == "backward", which
        return [lambda all=all: backward(*all) for all in zip(self.outputs, self.inputs, self.upstream)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    case, text = None, None
    for line in sys.stdin:
        which, wanted = line.split()
        if wanted != text:
            case, text = Case(wanted), wanted
        turns = case.turns(which)
        seconds = [[] for _ in turns]
        for turn in range(-1, arguments.rounds):
            for each, work in zip(seconds, turns):
                begin = time.perf_counter()
                work()
                if turn >= 0:
                    each.append(time.perf_counter() - begin)
        print(f"{min(map(statistics.median, seconds)):.9f}", flush=True)


if __name__ == "__main__":
    main()
