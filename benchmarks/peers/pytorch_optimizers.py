"""Adafactor, Muon and AdamW with moments of 8 bits beside the public ones: same threads, one process, taking turns.

adafactor  torch.optim.Adafactor(foreach=False)
muon       torch.optim.Muon, whose products are bfloat16; ours are fp32
muon_fp32  the same with its products in fp32: what PyTorch's code calls torch.bfloat16 is torch.float32 meanwhile
adam8      bitsandbytes.optim.AdamW8bit with its library for CPUs, if there is one

All update one matrix in fp32. Each round times both; the medians over the rounds are printed, and of the rounds' ratios,
and which share of a ceiling of the same run ours has: what it moves, at the speed at which memory is read, or updated in
place, or (muon) its products, at the speed of torch.mm in fp32. Then --steps steps of both from the same start, on the
gradient of a quadratic with noise that both get: how far parameters are apart, at most and in the mean, as a share of
how far they have moved in the mean. Exits with 1 where that, less the parameters' own rounding, is more than --apart says
of adafactor or muon_fp32. Run it by benchmarks/peers/pytorch_optimizers.
"""

import argparse
import contextlib
import ctypes
import json
import os
import pathlib
import statistics
import sys
import time

import torch

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FP32 = torch.float32.itemsize
LR = 1e-3


class Matrix:
    """A parameter with a gradient, and what a step of ours or theirs needs."""

    def __init__(self, rows, columns, start, grad):
        self.rows, self.columns, self.size = rows, columns, rows * columns
        self.param, self.grad, self.steps = start.clone(), grad, 0
        self.keep = []

    def zeros(self, size, dtype=torch.float32):
        self.keep.append(torch.zeros(size, dtype=dtype))
        return pointer(self.keep[-1])

    def call(self, function, *arguments):
        self.steps += 1
        if function(*arguments, ctypes.c_int64(self.steps), ctypes.c_float(LR), torch.get_num_threads()) != 0:
            sys.exit("the step was refused")


def pointer(tensor):
    return ctypes.c_void_p(tensor.data_ptr())


def ours_adafactor(library, x):
    rows, columns = ctypes.c_int64(x.rows), ctypes.c_int64(x.columns)
    factors, scales = x.zeros(x.rows + x.columns), x.zeros(x.rows + x.columns + 4)
    workspace = x.zeros(library.adafactor_workspace(rows, columns), torch.float64)
    return lambda: x.call(library.adafactor_step, pointer(x.param), pointer(x.grad), factors, scales, workspace, rows,
                          columns)


def ours_muon(library, x):
    rows, columns = ctypes.c_int64(x.rows), ctypes.c_int64(x.columns)
    momentum, update = x.zeros(x.size), x.zeros(x.size)
    workspace = x.zeros(library.muon_workspace(rows, columns))
    return lambda: x.call(library.muon_step, pointer(x.param), momentum, update, workspace, pointer(x.grad), rows, columns)


def ours_adam8(library, x):
    m, v = torch.full((x.size,), 127, dtype=torch.uint8), x.zeros(x.size, torch.uint8)
    x.keep.append(m)
    blocks = (x.size + 255) // 256
    m_scale, v_scale = x.zeros(blocks), x.zeros(blocks)
    return lambda: x.call(library.adam8_step, pointer(x.param), pointer(m), v, m_scale, v_scale, pointer(x.grad),
                          ctypes.c_int64(x.size))


def theirs(create):
    def make(x):
        x.param = torch.nn.Parameter(x.param)
        x.param.grad = x.grad
        return create([x.param]).step
    return make


def bitsandbytes_adamw(parameters):
    import bitsandbytes
    return bitsandbytes.optim.AdamW8bit(parameters, lr=LR, weight_decay=0.01)


@contextlib.contextmanager
def products_in_fp32(wanted):
    bfloat16 = torch.bfloat16
    if wanted:
        torch.bfloat16 = torch.float32
    try:
        yield
    finally:
        torch.bfloat16 = bfloat16


def muon(parameters):
    return torch.optim.Muon(parameters, lr=LR)


# name: (ours, theirs, bytes an element that are read alone, bytes that are updated in place)
OPTIMIZERS = {
    # Updated in place is what is read and written, both counted.
    "adafactor": (ours_adafactor, lambda ps: torch.optim.Adafactor(ps, lr=LR, foreach=False), 4 * FP32, 2 * FP32),
    "muon": (ours_muon, muon, None, None),
    "muon_fp32": (ours_muon, muon, None, None),
    "adam8": (ours_adam8, bitsandbytes_adamw, FP32, 2 * (FP32 + 2) + 1 / 16),
}


def seconds(step):
    begin = time.perf_counter()
    step()
    return time.perf_counter() - begin


def ceiling(name, rows, columns, library):
    """A function whose time is the least that a step of ours could take."""
    threads, size = torch.get_num_threads(), rows * columns
    if name.startswith("muon"):
        tall, wide = max(rows, columns), min(rows, columns)
        matrix, square = torch.rand(tall, wide), torch.rand(wide, wide)

        def products():
            for _ in range(5):
                matrix.T @ matrix
                square @ square
                matrix @ square
        return lambda: seconds(products)
    read, updated = OPTIMIZERS[name][2:]
    x = torch.rand(size)
    count = ctypes.c_int64(size)

    def memory():
        reading = seconds(lambda: library.read_all(pointer(x), count, threads)) / FP32
        updating = seconds(lambda: library.update_all(pointer(x), count, threads)) / (2 * FP32)
        return read * reading + updated * updating
    return memory


def compare_speed(name, library, arguments, threads):
    torch.set_num_threads(threads)
    rows, columns = arguments.muon if name.startswith("muon") else arguments.matrix
    make_ours, create = OPTIMIZERS[name][:2]
    start, grad = torch.rand(rows, columns) - 0.5, torch.rand(rows, columns) - 0.5
    our_step = make_ours(library, Matrix(rows, columns, start, grad))
    their_step = theirs(create)(Matrix(rows, columns, start, grad))
    best = ceiling(name, rows, columns, library)
    times = []
    with products_in_fp32(name == "muon_fp32"):
        for step in (our_step, their_step, best):
            step()
        for _ in range(arguments.rounds):
            times.append((seconds(their_step), seconds(our_step), best()))
    peer, ours, least = (statistics.median(column) for column in zip(*times))
    return {"optimizer": name, "rows": rows, "columns": columns, "threads": threads, "peer_ms": peer * 1e3,
            "brigade_ms": ours * 1e3, "ratio": statistics.median(p / o for p, o, _ in times),
            "of_ceiling": statistics.median(c / o for _, o, c in times)}


def compare_trajectory(name, library, steps):
    rows, columns = 384, 256
    generator = torch.Generator().manual_seed(1)
    start, target = (torch.randn(rows, columns, generator=generator) for _ in range(2))
    noise = [torch.randn(rows, columns, generator=generator) for _ in range(steps)]
    ends = []
    make_ours, create = OPTIMIZERS[name][:2]
    for make in (lambda x: make_ours(library, x), theirs(create)):
        x = Matrix(rows, columns, start, torch.zeros(rows, columns))
        step = make(x)
        with products_in_fp32(name == "muon_fp32"):
            for each in noise:
                torch.sub(x.param.detach(), target, out=x.grad).add_(each)
                step()
        ends.append(x.param.detach().double())
    moved = (ends[1] - start.double()).abs().mean()
    apart = (ends[0] - ends[1]).abs()
    # Two roundings of the largest parameter count for nothing.
    rounding = 2 * torch.finfo(torch.float32).eps * ends[1].abs().max()
    return {"optimizer": name, "steps": steps, "moved": moved.item(), "most": (apart.max() / moved).item(),
            "mean": (apart.mean() / moved).item(), "beyond_rounding": ((apart.max() - rounding) / moved).item()}


def load(path):
    library = ctypes.CDLL(str(path))
    for name in ("adafactor_workspace", "muon_workspace"):
        getattr(library, name).restype = ctypes.c_int64
    library.read_all.restype = ctypes.c_float
    return library


def works(name):
    """Whether the public optimizer takes a step here."""
    try:
        theirs(OPTIMIZERS[name][1])(Matrix(64, 64, torch.rand(64, 64), torch.rand(64, 64)))()
    except Exception as error:  # pylint: disable=broad-exception-caught: what it is depends on the package
        print(f"{name} is left out, its public one does not run here: {type(error).__name__}: {error}", flush=True)
        return False
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--optimizers", nargs="+", choices=list(OPTIMIZERS), default=list(OPTIMIZERS))
    parser.add_argument("--library", type=pathlib.Path, default=ROOT / "build/pytorch_optimizers/optimizers.so")
    parser.add_argument("--matrix", type=int, nargs=2, metavar=("ROWS", "COLUMNS"), default=[16384, 1024])
    parser.add_argument("--muon", type=int, nargs=2, metavar=("ROWS", "COLUMNS"), default=[3072, 768])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--apart", type=float, default=1e-4)
    parser.add_argument("--threads", type=int, nargs="+", default=sorted({1, os.cpu_count() or 1}))
    parser.add_argument("--json", type=pathlib.Path, help="also write the figures to this file")
    arguments = parser.parse_args()
    if min(*arguments.matrix, *arguments.muon, arguments.rounds, arguments.steps, *arguments.threads) < 1:
        parser.error("extents, --rounds, --steps and --threads are 1 at least")
    if not arguments.library.exists():
        parser.error(f"{arguments.library} is missing: benchmarks/peers/pytorch_optimizers builds it")
    library = load(arguments.library)
    names = [name for name in arguments.optimizers if works(name)]
    print(f"PyTorch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}; medians of {arguments.rounds} rounds")
    print(f"{'optimizer':10} {'matrix':>12} {'threads':>7} | {'theirs ms':>9} {'Brigade ms':>10} {'times as fast':>13} "
          f"{'of ceiling':>10}", flush=True)
    speeds, trajectories = [], []
    for name in names:
        for threads in arguments.threads:
            row = compare_speed(name, library, arguments, threads)
            speeds.append(row)
            matrix = f"{row['rows']}x{row['columns']}"
            print(f"{name:10} {matrix:>12} {threads:7} | {row['peer_ms']:9.2f} {row['brigade_ms']:10.2f} "
                  f"{row['ratio']:13.2f} {row['of_ceiling']:10.2f}", flush=True)
    print(f"{'optimizer':10} {'steps':>6} {'moved':>9} | {'most apart':>10} {'mean apart':>10}  of what moved")
    missed = False
    for name in names:
        row = compare_trajectory(name, library, arguments.steps)
        trajectories.append(row)
        far = name in ("adafactor", "muon_fp32") and not row["beyond_rounding"] <= arguments.apart
        missed = missed or far
        print(f"{name:10} {row['steps']:6} {row['moved']:9.2e} | {row['most']:10.1e} {row['mean']:10.1e}"
              f"{'  MISSED' if far else ''}", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps({"speeds": speeds, "trajectories": trajectories}, indent=1) + "\n")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
