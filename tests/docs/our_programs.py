"""The programs and scripts of this repository that stand in the runfiles of a test."""

import os
import re

# Flags that are set to words of the user's.
FREE = {"adapter", "benchmark_filter", "checkpoint", "data", "exclude", "fixed", "hosts", "include", "may_differ", "metrics", "model", "out", "save", "svg", "trace", "tune"}

FOLDERS = (".ci", "benchmarks", "checkpoint", "collectives", "data", "digests", "examples", "launch", "models", "parallel", "tools", "train", "tune", "zero")


def programs():
    for folder in FOLDERS:
        for path, _, files in os.walk(folder):
            # A binary's own runfiles hold it once more.
            if ".runfiles" in path:
                continue
            for file in files:
                full = os.path.join(path, file)
                if os.access(full, os.X_OK) and not re.search(r"\.(py|json|md|h|so[.\d]*)$|^figure\.sh$", file):
                    yield full


def binaries():
    """Those of them that are compiled, whose flags are Abseil's."""
    for path in programs():
        with open(path, "rb") as file:
            if file.read(4) == b"\x7fELF":
                yield path
