"""Times PyTorch's scaled_dot_product_attention(is_causal=True).

On the CPU each line of the standard input says what: PASS type:context:heads:width, where PASS is forward or backward
and the type fp32, fp16 or bf16. Prints the median seconds of --rounds runs, after one that is not counted. Two layouts
take turns, and the faster one counts: separate tensors of each head, and views into one array of queries, keys and
values side by side, as they come out of a layer. Run it by benchmarks/peers/pytorch_attention.

On a GPU (--device=cuda) a table of all cases of //benchmarks/nn:attention_gpu beside it: each round times PyTorch in
this process and then runs our binary; medians, and the median of the rounds' ratios.
"""

import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys
import time

import torch
from torch.nn.functional import scaled_dot_product_attention

from pytorch_step import ROOT, our_environment, time_on_gpu, time_ours

TYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


class Case:
    def __init__(self, dtype, batch, context, heads, width, device="cpu"):
        def noise(*shape):
            return (4 * torch.rand(*shape, device=device) - 2).to(dtype).requires_grad_()

        side_by_side = noise(batch, context, 3, heads, width)
        self.inputs = [[side_by_side[:, :, part].transpose(1, 2) for part in range(3)],
                       [noise(batch, heads, context, width) for _ in range(3)]]
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


def run_table(arguments):
    """Beside our binary, on a GPU."""
    binary = arguments.bin / "nn/attention_gpu"
    listed = subprocess.run([str(binary), "--device=cuda", "--benchmark_list_tests"], capture_output=True, text=True,
                            check=True, env=our_environment(arguments)).stdout
    print(f"PyTorch {torch.__version__}, {torch.cuda.get_device_name()}; medians of {arguments.rounds} rounds of "
          f"{arguments.repetitions} passes\n{'':74} | PyTorch ms | Brigade ms | times as fast", flush=True)
    rows = []
    for name in listed.split():
        which, kind, *sizes = re.fullmatch(
            r"attention/(\w+)/type:(\w+)/batch:(\d+)/context:(\d+)/heads:(\d+)/width:(\d+)/cuda.*", name).groups()
        turns = Case(getattr(torch, kind), *map(int, sizes), device="cuda").turns(which)
        peer, ours = [], []
        for _ in range(arguments.rounds):
            peer.append(min(time_on_gpu(work, arguments.repetitions) for work in turns))
            ours.append(time_ours(binary, name.partition("/cuda")[0], arguments))
        torch.cuda.empty_cache()  # for our process
        rows.append({"case": name, "torch": torch.__version__, "peer_ms": statistics.median(peer) * 1e3,
                     "brigade_ms": statistics.median(ours) * 1e3,
                     "ratio": statistics.median(p / o for p, o in zip(peer, ours))})
        print(f"{name:74} | {rows[-1]['peer_ms']:10.3f} | {rows[-1]['brigade_ms']:10.3f} | {rows[-1]['ratio']:13.2f}",
              flush=True)
        if arguments.json:
            arguments.json.write_text(json.dumps(rows, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "bazel-bin/benchmarks",
                        help="folder of Brigade's benchmark binaries, for a GPU")
    parser.add_argument("--library_path", help="LD_LIBRARY_PATH of these binaries")
    parser.add_argument("--repetitions", type=int, default=11, help="passes timed in each round on a GPU")
    parser.add_argument("--json", type=pathlib.Path, help="also write the GPU's figures to this file")
    arguments = parser.parse_args()
    if arguments.device == "cuda":
        return run_table(arguments)
    torch.set_num_threads(arguments.threads)
    case, text = None, None
    for line in sys.stdin:
        which, wanted = line.split()
        if wanted != text:
            kind, *sizes = wanted.split(":")
            case, text = Case(TYPES[kind], 1, *map(int, sizes)), wanted
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
