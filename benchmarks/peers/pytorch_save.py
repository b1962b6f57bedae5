"""Saves as many bytes as a training's fp32 master and two moments with PyTorch, and says how long it takes.

torch.save         as it is: nothing waits for the disk
torch.save, fsync  the same, and fsync of the file and of its folder
dcp.save           torch.distributed.checkpoint, one process on gloo; it syncs its files
dcp.async_save     the same beside the training: it returns when the state is copied

All take turns. Prints one JSON object: of each the stall and the whole time, in seconds, of every round. The stall is by
how much an update by fused AdamW takes longer if the save is called before it, as benchmarks/checkpoint/save_load
has it of ours. Run it by benchmarks/peers/pytorch_save.
"""

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import tempfile
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=pathlib.Path, required=True, help="on the disk to measure")
    parser.add_argument("--units", type=int, default=22)
    parser.add_argument("--unit_elements", type=int, default=1 << 22)
    parser.add_argument("--parameters_per_unit", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    return parser.parse_args()


def sync(path):
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def save(state, path, durable):
    torch.save(state, path)
    if durable:
        sync(path)
        sync(path.parent)


def main():
    arguments = parse_arguments()
    size = arguments.unit_elements // arguments.parameters_per_unit
    masters = {f"unit{unit}.{p}": torch.rand(size) + 0.5
               for unit in range(arguments.units) for p in range(arguments.parameters_per_unit)}
    for master in masters.values():
        master.grad = torch.full_like(master, 1e-3)
    optimizer = torch.optim.AdamW(masters.values(), fused=True)
    optimizer.step()
    state = {f"{array}.{name}": master if array == "master" else optimizer.state[master][array]
             for array in ("master", "exp_avg", "exp_avg_sq") for name, master in masters.items()}
    with tempfile.TemporaryDirectory(dir=arguments.folder) as root, tempfile.TemporaryDirectory() as store:
        root = pathlib.Path(root)
        dist.init_process_group("gloo", init_method=f"file://{store}/store", rank=0, world_size=1)

        def timed(work):
            begin = time.perf_counter()
            work()
            return time.perf_counter() - begin

        def simple(work):
            def turn():
                took = timed(work)
                return took, took
            return turn

        def asynchronous():
            alone = timed(optimizer.step)
            begin = time.perf_counter()
            future = dcp.async_save(state, checkpoint_id=root / "async")
            optimizer.step()
            stall = time.perf_counter() - begin - alone
            future.result()
            return stall, time.perf_counter() - begin

        turns = {
            "torch.save": simple(lambda: save(state, root / "saved.pt", False)),
            "torch.save, fsync": simple(lambda: save(state, root / "synced.pt", True)),
            "dcp.save": simple(lambda: dcp.save(state, checkpoint_id=root / "dcp")),
            "dcp.async_save": asynchronous,
        }
        rows = {name: {"stall": [], "total": []} for name in turns}
        for turn in range(-1, arguments.rounds):
            for name, run in turns.items():
                for each in root.iterdir():
                    shutil.rmtree(each) if each.is_dir() else each.unlink()
                os.sync()
                # What DCP logs is no part of the table.
                with contextlib.redirect_stdout(None):
                    stall, total = run()
                if turn >= 0:
                    rows[name]["stall"].append(stall)
                    rows[name]["total"].append(total)
        dist.destroy_process_group()
    print(json.dumps({"torch": torch.__version__, "threads": torch.get_num_threads(), "rows": rows}))


if __name__ == "__main__":
    main()
