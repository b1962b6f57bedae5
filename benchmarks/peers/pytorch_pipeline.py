"""Times a step of torch.distributed.pipelining on stages that wait: processes over Gloo, one thread each.

The step is that of //benchmarks/parallel:pipeline, with its flags and its names of schedules. A part of the model
waits in its forward pass, in its backward pass for the gradient of its input, and then for that of its weight. The
last two are nodes of their own in autograd's graph, so PyTorch can put the second one off; on the model's first part
it puts both off and runs them together, which makes no step longer. Beside the waits a part computes one addition,
and the last one a sum as the loss.

Each line of the standard input names a schedule and asks for one step of it; printed are the seconds, from when the
first rank begins until all have ended. Run it by benchmarks/peers/pytorch_pipeline.
"""

import argparse
import os
import queue
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import nn
from torch.distributed.pipelining import (PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B,
                                          ScheduleInterleavedZeroBubble, ScheduleZBVZeroBubble)
from torch.distributed.pipelining.schedules import PipelineScheduleSingle

# With the parts of the model that each rank has.
SCHEDULES = {
    "gpipe": (ScheduleGPipe, 1),
    "1f1b": (Schedule1F1B, 1),
    "interleaved:2": (ScheduleInterleaved1F1B, 2),
    "zb-h1": (ScheduleInterleavedZeroBubble, 1),
    "zb-v": (ScheduleZBVZeroBubble, 2),
}


class Wait(torch.autograd.Function):
    """The identity, which takes `forward` and `backward` seconds."""

    @staticmethod
    def forward(ctx, x, forward, backward):
        ctx.seconds = backward
        if forward > 0:
            time.sleep(forward)
        return x

    @staticmethod
    def backward(ctx, grad):
        time.sleep(ctx.seconds)
        # A sum's gradient is one number that is repeated without copies, and Gloo does not send it so.
        return grad.contiguous(), None, None


class WaitingPart(nn.Module):
    def __init__(self, seconds):
        super().__init__()
        self.seconds = seconds
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return Wait.apply(x, self.seconds, self.seconds) + Wait.apply(self.weight, 0, self.seconds)


def create_schedule(name, rank, arguments):
    schedule, chunks = SCHEDULES[name]
    parts = chunks * arguments.stages
    own = range(rank, parts, arguments.stages) if name != "zb-v" else (rank, parts - 1 - rank)
    # For the shape alone.
    passed = torch.zeros(arguments.elements, requires_grad=True)
    stages = [PipelineStage(WaitingPart(arguments.pass_ms * 1e-3 / chunks), part, parts, torch.device("cpu"),
                            input_args=passed, output_args=passed) for part in own]
    return schedule(stages[0] if issubclass(schedule, PipelineScheduleSingle) else stages, arguments.micro_batches,
                    loss_fn=lambda output, _: output.sum(), scale_grads=False)


def run_rank(rank, arguments, store, turns, results):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=arguments.stages)
    schedules = {name: create_schedule(name, rank, arguments) for name in arguments.schedules}
    # Leaves: the first part computes the gradient of its input, as all others do.
    inputs = [(torch.rand(arguments.elements, requires_grad=True),) for _ in range(arguments.micro_batches)]
    targets = [None] * arguments.micro_batches

    def step(name):
        schedules[name].step(arg_mbs=inputs if rank == 0 else None, target_mbs=targets, return_outputs=False)

    for name in schedules:
        step(name)
    while name := turns[rank].get():
        dist.barrier()
        # Of the clock that all processes share.
        begin = time.perf_counter()
        step(name)
        results.put((begin, time.perf_counter()))
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stages", type=int, default=4)
    parser.add_argument("--micro_batches", type=int, default=8)
    parser.add_argument("--pass_ms", type=float, default=12)
    parser.add_argument("--elements", type=int, default=1 << 16)
    parser.add_argument("--schedules", nargs="+", choices=SCHEDULES, default=list(SCHEDULES))
    arguments = parser.parse_args()
    context = torch.multiprocessing.get_context("spawn")
    turns, results = [context.Queue() for _ in range(arguments.stages)], context.Queue()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        ranks = [context.Process(target=run_rank, args=(rank, arguments, f"{folder}/store", turns, results), daemon=True)
                 for rank in range(arguments.stages)]
        for process in ranks:
            process.start()
        for line in sys.stdin:
            name = line.strip()
            if name not in arguments.schedules:
                sys.exit(f"no schedule {name}")
            for turn in turns:
                turn.put(name)
            times = []
            while len(times) < arguments.stages:
                try:
                    times.append(results.get(timeout=1))
                except queue.Empty:
                    if not all(process.is_alive() for process in ranks):
                        sys.exit("a rank has ended")
            begins, ends = zip(*times)
            print(f"{max(ends) - min(begins):.9f}", flush=True)
        for turn in turns:
            turn.put("")
        for process in ranks:
            process.join()


if __name__ == "__main__":
    main()
