"""The optimizer of examples/pytorch_adamw beside PyTorch's, in one process, in turns.

adamw   torch.optim.AdamW(fused=True) on fp32 parameters and gradients
        against BrigadeAdamW
bf16    the whole mixed-precision step with parameters and gradients in bf16, by PyTorch's public interface:
        gradients to fp32, GradScaler.unscale_ (which checks for infinities), clip_grad_norm_, fused AdamW
        on the fp32 masters, GradScaler.update, copy to the 16-bit parameters
        against BrigadeAdamW(max_norm=...) with brigade_adamw.GradScaler
fp16    the same with parameters and gradients in fp16
reuse   bf16 against the best that we know how to make of PyTorch's own operators (pytorch_step.py)
scaler  bf16, but BrigadeAdamW has PyTorch's GradScaler, which reads and writes all gradients
norm    torch.nn.utils.get_total_norm of bf16 gradients
        against grad_check, which also says whether they are finite

Each round times one after the other, and the next round in the other order; the medians over the rounds are
printed, and the median of the rounds' ratios with its quartiles. GB/s are of the bytes that the step moves
at least; `ceiling` is what copying one array to another reaches in the same rounds. Run it by
benchmarks/peers/pytorch_op.
"""

import argparse
import os
import statistics
import sys
import time

import torch

import pytorch_step as peer

import quiet  # in benchmarks/common, where pytorch_step looks

import brigade_adamw

RULE = {"lr": peer.LR, "betas": peer.BETAS, "eps": peer.EPS, "weight_decay": peer.WEIGHT_DECAY}


def plain_steps(sizes):
    """Both steps, of the same memory: where its pages lie can be a third of the time."""
    parameters = [torch.nn.Parameter(values) for values in peer.noise(sizes, "cpu")]
    for parameter, grad in zip(parameters, peer.noise(sizes, "cpu")):
        parameter.grad = grad
    theirs = peer.adamw(parameters, fused=True)
    ours = brigade_adamw.BrigadeAdamW(parameters, **RULE)
    theirs.step()
    for parameter in parameters:
        ours.state[parameter] = theirs.state[parameter]
    return theirs.step, ours.step


def ours_mixed(sizes, narrow=torch.bfloat16, scaler_class=brigade_adamw.GradScaler):
    parameters = [torch.nn.Parameter(values) for values in peer.noise(sizes, "cpu", narrow)]
    for parameter, grad in zip(parameters, peer.noise(sizes, "cpu", narrow)):
        parameter.grad = grad
    optimizer = brigade_adamw.BrigadeAdamW(parameters, max_norm=peer.MAX_NORM, **RULE)
    scaler = scaler_class("cpu", init_scale=peer.LOSS_SCALE)
    scaler.scale(torch.zeros(1))

    def step():
        scaler.step(optimizer)
        scaler.update()

    return step


def mixed_steps(sizes, narrow=torch.bfloat16, scaler_class=brigade_adamw.GradScaler):
    return peer.mixed_precision_step(sizes, "cpu", narrow), ours_mixed(sizes, narrow, scaler_class)


def reusing_steps(sizes):
    return peer.reusing_mixed_precision_step(sizes, "cpu"), ours_mixed(sizes)


def norms(sizes):
    grads = peer.noise(sizes, "cpu", torch.bfloat16)
    return lambda: torch.nn.utils.get_total_norm(grads), lambda: brigade_adamw.grad_check(grads)


PLAIN = peer.UPDATE_BYTES + peer.FP32
MIXED = peer.UPDATE_BYTES + 3 * peer.BF16
# name: (PyTorch's step and ours, bytes an element needs at least)
WORKLOADS = {
    "adamw": (plain_steps, PLAIN),
    "bf16": (mixed_steps, MIXED),
    "fp16": (lambda sizes: mixed_steps(sizes, torch.float16), MIXED),
    "reuse": (reusing_steps, MIXED),
    "scaler": (lambda sizes: mixed_steps(sizes, scaler_class=torch.amp.GradScaler), MIXED),
    "norm": (norms, peer.BF16),
}


def seconds(step):
    begin = time.perf_counter()
    step()
    return time.perf_counter() - begin


def measure(name, sizes, arguments):
    """Prints a row of the table."""
    make_steps, bytes_per_element = WORKLOADS[name]
    elements = sum(sizes)
    source, target = torch.ones(elements), torch.ones(elements)
    steps = [*make_steps(sizes), lambda: target.copy_(source)]
    for step in steps:
        step()
    rows, others = [], []

    def round_in_turns():
        order = steps if len(rows) % 2 == 0 else steps[::-1]
        times = {step: seconds(step) for step in order}
        return [times[step] for step in steps]

    for _ in range(arguments.rounds):
        row, busy = quiet.measure_quietly(round_in_turns, arguments.others, arguments.tries)
        rows.append(row)
        others.append(busy)
    theirs, ours, copy = (statistics.median(column) for column in zip(*rows))
    low, ratio, high = statistics.quantiles([row[0] / row[1] for row in rows], n=4, method="inclusive")
    rate = 1e-9 * bytes_per_element * elements
    ceiling = 1e-9 * 2 * peer.FP32 * elements / copy
    print(f"{name:8} {elements:11} {len(sizes):7} {torch.get_num_threads():7} | "
          f"{theirs * 1e3:10.2f} {rate / theirs:6.1f} | "
          f"{ours * 1e3:10.2f} {rate / ours:6.1f} | {ceiling:7.1f} | {ratio:6.2f} ({low:.2f} to {high:.2f}) "
          f"{statistics.median(others):6.2f}", flush=True)
    return ratio


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", nargs="+", choices=list(WORKLOADS), default=list(WORKLOADS))
    parser.add_argument("--elements", type=int, default=32 << 20, help="default: 32 Mi; larger than the caches")
    parser.add_argument("--tensors", type=int, choices=[1, 1000], nargs="+", default=[1],
                        help="one, or the 1,000 of a GPT")
    parser.add_argument("--threads", type=int, nargs="+", default=sorted({1, os.cpu_count() or 1}))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--others", type=float, default=0.1, help="cores that others may use in a round")
    parser.add_argument("--tries", type=int, default=1, help="of a round that others disturb")
    parser.add_argument("--check", action="store_true",
                        help="fails unless adamw is 1.0 and bf16 and fp16 are 2.5 times as fast as PyTorch's")
    arguments = parser.parse_args()
    if arguments.rounds < 2:
        parser.error("--rounds: at least 2")
    return arguments


BARS = {"adamw": 1.0, "bf16": 2.5, "fp16": 2.5}


def main():
    arguments = parse_arguments()
    print(f"PyTorch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}; "
          f"medians of {arguments.rounds} rounds", flush=True)
    print(f"{'workload':8} {'elements':>11} {'tensors':>7} {'threads':>7} | {'PyTorch ms':>10} {'GB/s':>6} | "
          f"{'op ms':>10} {'GB/s':>6} | {'ceiling':>7} | times as fast (quartiles) others", flush=True)
    failed = []
    for name in arguments.workloads:
        for tensors in arguments.tensors:
            sizes = [arguments.elements] if tensors == 1 else peer.gpt_sizes(arguments.elements)
            for threads in arguments.threads:
                torch.set_num_threads(threads)
                ratio = measure(name, sizes, arguments)
                if ratio < BARS.get(name, 0.0):
                    failed.append(f"{name} with {threads} threads: {ratio:.2f}, the bar is {BARS[name]}")
    if arguments.check and failed:
        sys.exit("\n".join(["too slow:", *failed]))


if __name__ == "__main__":
    main()
