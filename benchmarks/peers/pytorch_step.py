"""PyTorch's optimizer steps beside Brigade's: same sizes, same threads, taking turns.

adamw   torch.optim.AdamW(fused=True) on fp32 parameters and gradients
        against //benchmarks/kernels:adam, grad fp32, no copy
step    the whole mixed-precision step with bf16 gradients and parameters, by PyTorch's public interface:
        gradients to fp32, GradScaler.unscale_ (which checks for infinities), clip_grad_norm_, fused AdamW
        on the fp32 master, GradScaler.update, copy to the bf16 parameters
        against //benchmarks/optim:mixed_precision_step, which does the same
reuse   the same, but the fp32 gradients' memory is kept from step to step, and the loss scale is fixed:
        the best that we know how to make of PyTorch's own operators

Each round times PyTorch in this process and then runs Brigade's binary; the medians over the rounds are
printed, and the median of the rounds' ratios. A round during which other processes took more than --others of
a core is repeated, up to --tries times; the last column says how busy they were. Run it by benchmarks/peers/pytorch_step.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import torch

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "benchmarks/common"))
import quiet

LR, BETAS, EPS, WEIGHT_DECAY = 1e-3, (0.9, 0.999), 1e-8, 0.01
LOSS_SCALE, MAX_NORM = 1024.0, 1e-3  # below every norm here, so that clipping is at work


def fused_adamw(parameter):
    return torch.optim.AdamW([parameter], lr=LR, betas=BETAS, eps=EPS, weight_decay=WEIGHT_DECAY,
                             fused=True)


def noise(elements, dtype=torch.float32):
    return torch.empty(elements, dtype=torch.float32).uniform_(-1, 1).to(dtype)


def adamw_step(elements):
    parameter = torch.nn.Parameter(noise(elements))
    parameter.grad = noise(elements)
    return fused_adamw(parameter).step


def mixed_precision_step(elements):
    master = torch.nn.Parameter(noise(elements))
    parameter = torch.nn.Parameter(torch.zeros(elements, dtype=torch.bfloat16))
    parameter.grad = noise(elements, torch.bfloat16)
    optimizer = fused_adamw(master)
    scaler = torch.amp.GradScaler("cpu", init_scale=LOSS_SCALE)
    scaler.scale(torch.zeros(1))  # the loss: makes the scaler's state

    def step():
        master.grad = parameter.grad.float()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_([master], MAX_NORM, foreach=True)
        scaler.step(optimizer)
        scaler.update()
        with torch.no_grad():
            parameter.copy_(master)

    return step


def reusing_mixed_precision_step(elements):
    master = torch.nn.Parameter(noise(elements))
    grad = noise(elements, torch.bfloat16)
    parameter = torch.zeros(elements, dtype=torch.bfloat16)
    master.grad = torch.empty_like(master)
    optimizer = fused_adamw(master)
    found_inf = torch.zeros(1)
    inv_scale = torch.full((1,), 1.0 / LOSS_SCALE)

    def step():
        master.grad.copy_(grad)
        found_inf.zero_()
        torch._amp_foreach_non_finite_check_and_unscale_([master.grad], found_inf, inv_scale)
        torch.nn.utils.clip_grad_norm_([master], MAX_NORM, foreach=True)
        if found_inf.item() == 0:
            optimizer.step()
        parameter.copy_(master.detach())

    return step


FP32, BF16 = torch.float32.itemsize, torch.bfloat16.itemsize
# Parameter, m and v are read and written.
UPDATE_BYTES = 2 * 3 * FP32

# name: (PyTorch's step, bytes an element needs at least, our binary, our benchmark)
WORKLOADS = {
    "adamw": (adamw_step, UPDATE_BYTES + FP32, "kernels/adam", "adam/grad:fp32/copy:none"),
    "step": (mixed_precision_step, UPDATE_BYTES + 3 * BF16, "optim/mixed_precision_step",
             "mixed_precision_step"),
    "reuse": (reusing_mixed_precision_step, UPDATE_BYTES + 3 * BF16, "optim/mixed_precision_step",
              "mixed_precision_step"),
}


def time_peer(step, repetitions):
    """The median of a few steps in a row, in seconds."""
    times = []
    for _ in range(repetitions):
        begin = time.perf_counter()
        step()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def time_ours(binary, benchmark, elements, threads, repetitions):
    name = f"{benchmark}/elements:{elements}/threads:{threads}/"
    command = [str(binary), f"--benchmark_filter=^{name}", "--benchmark_format=json",
               f"--rounds={repetitions}"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr}")
    results = [b for b in json.loads(done.stdout)["benchmarks"] if b["name"].startswith(name)]
    if len(results) != 1 or results[0].get("error_occurred"):
        sys.exit(f"{' '.join(command)} has no figure for {name}\n{done.stdout}{done.stderr}")
    unit = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}[results[0]["time_unit"]]
    return results[0]["real_time"] * unit


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "bazel-bin/benchmarks",
                        help="folder of Brigade's benchmark binaries")
    parser.add_argument("--elements", type=int, nargs="+", default=[64 << 20],
                        help="sizes, of those that the binaries know: 4096 times a power of 4; and keep "
                        "them larger than the caches (default: 64 Mi)")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--repetitions", type=int, default=3, help="steps timed in each round")
    parser.add_argument("--others", type=float, default=0.1)
    parser.add_argument("--tries", type=int, default=1)
    parser.add_argument("--threads", type=int, nargs="+", default=sorted({1, os.cpu_count() or 1}))
    parser.add_argument("--workloads", nargs="+", choices=list(WORKLOADS), default=list(WORKLOADS))
    parser.add_argument("--json", type=pathlib.Path, help="also write the figures to this file")
    arguments = parser.parse_args()
    for name in arguments.workloads:
        binary = arguments.bin / WORKLOADS[name][2]
        if not binary.exists():
            target = "//benchmarks/" + WORKLOADS[name][2].replace("/", ":")
            parser.error(f"{binary} is missing: bazel build {target}, or --bin FOLDER")
    return arguments


def main():
    arguments = parse_arguments()
    print(f"PyTorch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}; "
          f"medians of {arguments.rounds} rounds of {arguments.repetitions} steps", flush=True)
    print(f"{'workload':8} {'elements':>11} {'threads':>7} | {'PyTorch ms':>10} {'GB/s':>6} | "
          f"{'Brigade ms':>10} {'GB/s':>6} | {'times as fast':>13} {'others':>6}", flush=True)
    rows = []
    for name in arguments.workloads:
        make_step, bytes_needed, binary, benchmark = WORKLOADS[name]
        for elements in arguments.elements:
            step = make_step(elements)
            for threads in arguments.threads:
                torch.set_num_threads(threads)
                for _ in range(2):  # warm-up; Brigade's binary has its own
                    step()
                peer, ours, others = [], [], []
                for _ in range(arguments.rounds):
                    (peer_time, our_time), busy = quiet.measure_quietly(
                        lambda: (time_peer(step, arguments.repetitions),
                                 time_ours(arguments.bin / binary, benchmark, elements, threads,
                                           arguments.repetitions)),
                        arguments.others, arguments.tries)
                    peer.append(peer_time)
                    ours.append(our_time)
                    others.append(busy)
                ratio = statistics.median(p / o for p, o in zip(peer, ours))
                row = {"workload": name, "elements": elements, "threads": threads,
                       "peer_ms": statistics.median(peer) * 1e3,
                       "brigade_ms": statistics.median(ours) * 1e3, "ratio": ratio,
                       "others": statistics.median(others), "torch": torch.__version__}
                rows.append(row)
                rate = bytes_needed * elements * 1e-6
                print(f"{name:8} {elements:11} {threads:7} | {row['peer_ms']:10.2f} "
                      f"{rate / row['peer_ms']:6.1f} | {row['brigade_ms']:10.2f} "
                      f"{rate / row['brigade_ms']:6.1f} | {ratio:13.2f} {row['others']:6.2f}", flush=True)
            del step
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
