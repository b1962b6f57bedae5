"""What the tests of brigade_adamw share."""

import os
import pathlib
import struct
import subprocess
import tempfile

import torch

NARROW = (torch.bfloat16, torch.float16)
# Empty, single, odd, more than a vector, more than a piece of a thread; also of two dimensions.
SIZES = [(0,), (1,), (33,), (7, 9), (16385,), (3, 12000)]


def noise(shape, seed):
    """Magnitudes between 1/2 and 2, of either sign."""
    generator = torch.Generator().manual_seed(seed)
    magnitude = torch.rand(shape, generator=generator) * 1.5 + 0.5
    sign = torch.randint(0, 2, shape, generator=generator) * 2 - 1
    return magnitude * sign


def bits(tensor):
    """The tensor's bytes, which tell 0 from -0."""
    return tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def rounding_bound(steps, lr):
    """How far two correct fp32 AdamWs may be apart after some steps, for what `noise` gives.

    Each step rounds the parameter (below 4 here) twice, in each of the two: 4 half units of 2^-23 * 4.
    The moments are sums of at most `steps` products with three roundings each, of gradients up to 2,
    and their quotient is divided by a root of at least 1/2: 3 * steps * 2 / (1/2) units of 2^-23 of
    what lr moves, in each of the two.
    """
    unit = 2.0**-23
    return steps * unit * (2 * 4 + lr * 2 * 12 * steps)


def _golden(kind, data):
    with tempfile.TemporaryDirectory() as folder:
        given, made = pathlib.Path(folder, "in"), pathlib.Path(folder, "out")
        given.write_bytes(data)
        subprocess.run([os.environ["GOLDEN"], kind, given, made], check=True)
        return made.read_bytes()


def golden_adamw(rule, param, steps):
    """The specification's parameter, exp_avg and exp_avg_sq after steps, each (multiplier, gradient)."""
    values = (rule["lr"], *rule["betas"], rule["eps"], rule["weight_decay"])
    data = struct.pack("<5d2q", *values, param.numel(), len(steps)) + bits(param)
    for multiplier, grad in steps:
        data += struct.pack("<f", multiplier) + bits(grad)
    made = _golden("adamw", data)
    size = 4 * param.numel()
    parts = [bytearray(made[i * size : (i + 1) * size]) for i in range(3)]
    return [torch.frombuffer(p, dtype=torch.float32) if p else torch.zeros(0) for p in parts]


def golden_norm(tensors):
    """The specification's (sum of squares, whether all are finite)."""
    sizes = [t.numel() for t in tensors]
    data = struct.pack(f"<{len(sizes) + 1}q", len(sizes), *sizes)
    made = _golden("norm", data + b"".join(bits(t.float()) for t in tensors))
    total, finite = struct.unpack("<2d", made)
    return total, finite == 1.0
