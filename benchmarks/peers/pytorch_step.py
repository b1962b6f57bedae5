"""PyTorch's optimizer steps beside Brigade's: same sizes, same threads or GPU, taking turns.

adamw   torch.optim.AdamW(fused=True) on fp32 parameters and gradients
        against //benchmarks/kernels:adam, grad fp32, no copy
foreach the same by torch.optim.AdamW(foreach=True)
step    the whole mixed-precision step with bf16 gradients and parameters, by PyTorch's public interface:
        gradients to fp32, GradScaler.unscale_ (which checks for infinities), clip_grad_norm_, fused AdamW
        on the fp32 master, GradScaler.update, copy to the bf16 parameters
        against //benchmarks/optim:mixed_precision_step, which does the same
reuse   the same, but the fp32 gradients' memory is kept from step to step, and the loss scale is fixed:
        the best that we know how to make of PyTorch's own operators
host    the update alone, as the host does it for a GPU: bf16 gradients to fp32, fused AdamW, bf16 parameters
        against //benchmarks/kernels:adam, grad bf16, copy bf16, which is the host's kernel
cpuadam the same by DeepSpeed's DeepSpeedCPUAdam, compiled from its source for this processor when it is
        first used (benchmarks/peers/deepspeed_update installs it)

On a GPU (--device=cuda) each is measured on one tensor and on the 1,000 tensors of a GPT. Each round times
PyTorch in this process and then runs Brigade's binary; the medians over the rounds are printed, and the median
of the rounds' ratios. A round during which other processes took more than --others of a core is repeated, up to
--tries times; the last column says how busy they were. Run it by benchmarks/peers/pytorch_step.
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


def gpt_sizes(elements):
    """The 1,000 tensors of TensorList::Gpt in //benchmarks/common:tensor_list."""
    layers, context = 83, 1024

    def rest(width):
        return elements - layers * (12 * width * width + 13 * width) - (context + 2) * width

    w = 8
    while rest(w + 8) > elements // 20:
        w += 8
    layer = [w, w, 3 * w * w, 3 * w, w * w, w, w, w, 4 * w * w, 4 * w, 4 * w * w, w]
    return [rest(w), context * w] + layers * layer + [w, w]


def noise(sizes, device, dtype=torch.float32):
    return [torch.empty(size, device=device).uniform_(-1, 1).to(dtype) for size in sizes]


def adamw(parameters, **kind):
    return torch.optim.AdamW(parameters, lr=LR, betas=BETAS, eps=EPS, weight_decay=WEIGHT_DECAY,
                             **kind)


def adamw_step(sizes, device, **kind):
    parameters = [torch.nn.Parameter(values) for values in noise(sizes, device)]
    for parameter, grad in zip(parameters, noise(sizes, device)):
        parameter.grad = grad
    return adamw(parameters, **(kind or {"fused": True})).step


def foreach_step(sizes, device):
    return adamw_step(sizes, device, foreach=True)


def mixed_precision(sizes, device, narrow=torch.bfloat16):
    """fp32 masters, 16-bit weights and gradients."""
    masters = [torch.nn.Parameter(values) for values in noise(sizes, device)]
    weights = [torch.zeros(size, dtype=narrow, device=device) for size in sizes]
    return masters, weights, noise(sizes, device, narrow)


def wide_gradients(masters):
    """In fp32, in memory that stays."""
    for master in masters:
        master.grad = torch.empty_like(master)
    return [master.grad for master in masters]


def mixed_precision_step(sizes, device, narrow=torch.bfloat16):
    masters, weights, grads = mixed_precision(sizes, device, narrow)
    optimizer = adamw(masters, fused=True)
    scaler = torch.amp.GradScaler(device, init_scale=LOSS_SCALE)
    scaler.scale(torch.zeros(1, device=device))  # the loss: makes the scaler's state

    def step():
        for master, grad in zip(masters, grads):
            master.grad = grad.float()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(masters, MAX_NORM, foreach=True)
        scaler.step(optimizer)
        scaler.update()
        with torch.no_grad():
            for weight, master in zip(weights, masters):
                weight.copy_(master)

    return step


def reusing_mixed_precision_step(sizes, device):
    masters, weights, grads = mixed_precision(sizes, device)
    wide = wide_gradients(masters)
    optimizer = adamw(masters, fused=True)
    found_inf = torch.zeros((), device=device)
    inv_scale = torch.full((), 1.0 / LOSS_SCALE, device=device)
    if device == "cuda":  # as GradScaler says it: the kernel looks, the host need not
        optimizer.grad_scale, optimizer.found_inf = None, found_inf

    def step():
        torch._foreach_copy_(wide, grads)
        found_inf.zero_()
        torch._amp_foreach_non_finite_check_and_unscale_(wide, found_inf, inv_scale)
        torch.nn.utils.clip_grad_norm_(masters, MAX_NORM, foreach=True)
        if device == "cuda" or found_inf.item() == 0:
            optimizer.step()
        with torch.no_grad():
            torch._foreach_copy_(weights, masters)

    return step


def host_update(sizes, device, create=lambda masters: adamw(masters, fused=True)):
    masters, weights, grads = mixed_precision(sizes, device)
    wide = wide_gradients(masters)
    optimizer = create(masters)

    def step():
        torch._foreach_copy_(wide, grads)
        optimizer.step()
        with torch.no_grad():
            torch._foreach_copy_(weights, masters)

    return step


def deepspeed_host_update(sizes, device):
    from deepspeed.ops.adam import DeepSpeedCPUAdam
    return host_update(sizes, device, lambda masters: DeepSpeedCPUAdam(
        masters, lr=LR, betas=BETAS, eps=EPS, weight_decay=WEIGHT_DECAY, adamw_mode=True))


FP32, BF16 = torch.float32.itemsize, torch.bfloat16.itemsize
# Parameter, m and v are read and written.
UPDATE_BYTES = 2 * 3 * FP32
# Of GPU memory an element, by both together: PyTorch has five arrays in fp32 and two in bf16, we have the same and
# what the CPU's ceiling would work on.
GPU_BYTES = 2 * (5 * FP32 + 2 * BF16) + 3 * FP32
GPU_RESERVE = 4 << 30

# name: (PyTorch's step, bytes an element needs at least, our binary, our benchmark)
WORKLOADS = {
    "adamw": (adamw_step, UPDATE_BYTES + FP32, "kernels/adam", "adam/grad:fp32/copy:none"),
    "foreach": (foreach_step, UPDATE_BYTES + FP32, "kernels/adam", "adam/grad:fp32/copy:none"),
    "step": (mixed_precision_step, UPDATE_BYTES + 3 * BF16, "optim/mixed_precision_step",
             "mixed_precision_step"),
    "reuse": (reusing_mixed_precision_step, UPDATE_BYTES + 3 * BF16, "optim/mixed_precision_step",
              "mixed_precision_step"),
    "host": (host_update, UPDATE_BYTES + 2 * BF16, "kernels/adam", "adam/grad:bf16/copy:bf16"),
    "cpuadam": (deepspeed_host_update, UPDATE_BYTES + 2 * BF16, "kernels/adam", "adam/grad:bf16/copy:bf16"),
}
GPU_WORKLOADS = ["adamw", "foreach", "step", "reuse"]


def time_on_host(step, repetitions):
    """The median of a few steps in a row, in seconds."""
    times = []
    for _ in range(repetitions):
        begin = time.perf_counter()
        step()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def time_on_gpu(step, repetitions):
    """The mean of a few steps back to back behind an untimed one, in seconds, as our benchmarks do it."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    step()
    begin.record()
    for _ in range(repetitions):
        step()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) * 1e-3 / repetitions


def our_environment(arguments):
    return {**os.environ, "LD_LIBRARY_PATH": arguments.library_path} if arguments.library_path else dict(os.environ)


def time_ours(binary, name, arguments):
    command = [str(binary), f"--benchmark_filter=^{name}/", "--benchmark_format=json",
               f"--rounds={arguments.repetitions}", f"--device={arguments.device}"]
    done = subprocess.run(command, capture_output=True, text=True, env=our_environment(arguments))
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr}")
    results = [b for b in json.loads(done.stdout)["benchmarks"] if b["name"].startswith(name + "/")]
    if len(results) != 1 or results[0].get("error_occurred"):
        sys.exit(f"{' '.join(command)} has no figure for {name}\n{done.stdout}{done.stderr}")
    unit = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}[results[0]["time_unit"]]
    return results[0]["real_time"] * unit


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "bazel-bin/benchmarks",
                        help="folder of Brigade's benchmark binaries")
    parser.add_argument("--library_path", help="LD_LIBRARY_PATH of these binaries")
    parser.add_argument("--elements", type=int, nargs="+",
                        help="sizes, of those that the binaries know: on the CPU 4096 times a power of 4, and keep "
                        "them larger than the caches (default: 64 Mi); on a GPU (default) 10^6, 10^8, 10^9")
    parser.add_argument("--rounds", type=int, help="default: 9, on a GPU 3")
    parser.add_argument("--repetitions", type=int, help="steps timed in each round; default: 3, on a GPU 11")
    parser.add_argument("--others", type=float, default=0.1)
    parser.add_argument("--tries", type=int, default=1)
    parser.add_argument("--threads", type=int, nargs="+", default=sorted({1, os.cpu_count() or 1}),
                        help="of the CPU")
    parser.add_argument("--workloads", nargs="+", choices=list(WORKLOADS),
                        help="default: adamw step reuse, on a GPU all")
    parser.add_argument("--json", type=pathlib.Path, help="also write the figures to this file")
    arguments = parser.parse_args()
    gpu = arguments.device == "cuda"
    arguments.elements = arguments.elements or ([10**6, 10**8, 10**9] if gpu else [64 << 20])
    arguments.rounds = arguments.rounds or (3 if gpu else 9)
    arguments.repetitions = arguments.repetitions or (11 if gpu else 3)
    arguments.workloads = arguments.workloads or (GPU_WORKLOADS if gpu else ["adamw", "step", "reuse"])
    for name in arguments.workloads:
        binary = arguments.bin / WORKLOADS[name][2]
        if not binary.exists():
            target = "//benchmarks/" + WORKLOADS[name][2].replace("/", ":")
            parser.error(f"{binary} is missing: bazel build {target}, or --bin FOLDER")
    return arguments


def cases(arguments):
    """(elements, sizes of PyTorch's tensors, threads, what our benchmarks call it)"""
    for elements in arguments.elements:
        if arguments.device == "cpu":
            for threads in arguments.threads:
                yield elements, [elements], threads, f"elements:{elements}/threads:{threads}"
        elif elements * GPU_BYTES + GPU_RESERVE > torch.cuda.mem_get_info()[0]:
            print(f"{elements} elements are left out: they need "
                  f"{(elements * GPU_BYTES + GPU_RESERVE) / 2**30:.0f} GiB of GPU memory", flush=True)
        else:
            yield elements, [elements], 1, f"elements:{elements}/cuda"
            yield elements, gpt_sizes(elements), 1, f"tensors:1000/elements:{elements}/cuda"


def measure(name, elements, sizes, threads, case, arguments):
    """A row of the table."""
    make_step, _, binary, benchmark = WORKLOADS[name]
    torch.set_num_threads(threads)
    step = make_step(sizes, arguments.device)
    time_peer = time_on_gpu if arguments.device == "cuda" else time_on_host
    for _ in range(2):  # warm-up; Brigade's binary has its own
        step()
    peer, ours, others = [], [], []
    for _ in range(arguments.rounds):
        (peer_time, our_time), busy = quiet.measure_quietly(
            lambda: (time_peer(step, arguments.repetitions),
                     time_ours(arguments.bin / binary, f"{benchmark}/{case}", arguments)),
            arguments.others, arguments.tries)
        peer.append(peer_time)
        ours.append(our_time)
        others.append(busy)
    return {"workload": name, "elements": elements, "tensors": len(sizes), "threads": threads,
            "device": arguments.device, "peer_ms": statistics.median(peer) * 1e3,
            "brigade_ms": statistics.median(ours) * 1e3,
            "ratio": statistics.median(p / o for p, o in zip(peer, ours)),
            "others": statistics.median(others), "torch": torch.__version__}


def main():
    arguments = parse_arguments()
    device = (torch.cuda.get_device_name() if arguments.device == "cuda" else
              torch.backends.cpu.get_cpu_capability())
    print(f"PyTorch {torch.__version__}, {device}; "
          f"medians of {arguments.rounds} rounds of {arguments.repetitions} steps", flush=True)
    print(f"{'workload':8} {'elements':>11} {'tensors':>7} {'threads':>7} | {'PyTorch ms':>10} {'GB/s':>6} | "
          f"{'Brigade ms':>10} {'GB/s':>6} | {'times as fast':>13} {'others':>6}", flush=True)
    rows = []
    for name in arguments.workloads:
        for elements, sizes, threads, case in cases(arguments):
            row = measure(name, elements, sizes, threads, case, arguments)
            rows.append(row)
            rate = WORKLOADS[name][1] * elements * 1e-6
            print(f"{name:8} {elements:11} {len(sizes):7} {threads:7} | {row['peer_ms']:10.2f} "
                  f"{rate / row['peer_ms']:6.1f} | {row['brigade_ms']:10.2f} "
                  f"{rate / row['brigade_ms']:6.1f} | {row['ratio']:13.2f} {row['others']:6.2f}", flush=True)
            if arguments.device == "cuda":
                torch.cuda.empty_cache()  # for our process
            if arguments.json:
                arguments.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
