"""What check_* scripts ask of the processor."""

import pathlib


def multiplies_bf16():
    """Whether the processor says that it does."""
    cpuinfo = pathlib.Path("/proc/cpuinfo")
    words = set(cpuinfo.read_text().split()) if cpuinfo.exists() else set()
    return bool(words & {"avx512_bf16", "amx_bf16"})
