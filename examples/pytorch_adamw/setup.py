"""Builds the ops of brigade_adamw: `pip install --no-build-isolation .`, after ./vendor.

The CUDA half is built where PyTorch has CUDA and a toolkit is found; BRIGADE_ADAMW_CUDA=0 leaves it
out, and =1 builds it without a GPU as well (TORCH_CUDA_ARCH_LIST says for which).
"""

import os
import pathlib
import sys

import torch
from setuptools import setup
from torch.utils.cpp_extension import CUDA_HOME, BuildExtension, CppExtension, CUDAExtension

HERE = pathlib.Path(__file__).resolve().parent
KERNELS = ["third_party/adam", "third_party/grad_check"]


def provenance(folder):
    """What tools/vendor says of a folder: {name: words}."""
    try:
        lines = (HERE / folder / "PROVENANCE").read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        sys.exit(f"{HERE / folder} is missing: run {HERE / 'vendor'} first")
    said = dict(line.partition(": ")[::2] for line in lines)
    # A dash is nothing.
    return {
        name: [word for word in said[name].split() if word != "-"] for name in ("flags", "cuda flags")
    }


def sources(folder, ends):
    """The files of a folder with one of these ends, by their paths from here."""
    return sorted(str(path.relative_to(HERE)) for end in ends for path in (HERE / folder).rglob(end))


def with_cuda(said):
    """Whether the CUDA half is built, of kernels whose folders say this."""
    wanted = os.environ.get("BRIGADE_ADAMW_CUDA")
    if wanted == "1" and (torch.version.cuda is None or CUDA_HOME is None):
        sys.exit("BRIGADE_ADAMW_CUDA=1 needs a PyTorch with CUDA and a CUDA toolkit (CUDA_HOME)")
    vendored = all(one["cuda flags"] for one in said)
    if wanted == "1" and not vendored:
        sys.exit(f"BRIGADE_ADAMW_CUDA=1 needs the kernels' CUDA half: run {HERE / 'vendor'} without --cpu")
    if wanted is not None:
        return wanted == "1"
    return vendored and torch.cuda.is_available() and CUDA_HOME is not None


def extension():
    """The shared library with all ops."""
    said = [provenance(folder) for folder in KERNELS]
    cuda = with_cuda(said)
    # What bits and speed need is what the folders were vendored with.
    flags = list(dict.fromkeys(flag for one in said for flag in one["flags"]))
    cuda_flags = list(dict.fromkeys(flag for one in said for flag in one["cuda flags"]))
    host = ",".join(flag for flag in flags if not flag.startswith("-O"))
    ends = ["*.cc", "*.cu"] if cuda else ["*.cc"]
    files = [path for folder in [*KERNELS, "csrc"] for path in sources(folder, ends)]
    if not cuda:
        files = [path for path in files if not path.endswith("_cuda.cc")]
    return (CUDAExtension if cuda else CppExtension)(
        name="brigade_adamw._ops",
        sources=files,
        include_dirs=[str(HERE), *(str(HERE / folder) for folder in KERNELS)],
        # Highway: the loop of grad_check is written with it.
        libraries=["hwy"],
        extra_compile_args={
            # ATen starts its threads in code that is compiled here.
            "cxx": ["-fvisibility=hidden", "-fopenmp", *flags],
            "nvcc": [*cuda_flags, f"-Xcompiler={host}"],
        },
    )


setup(ext_modules=[extension()], cmdclass={"build_ext": BuildExtension})
