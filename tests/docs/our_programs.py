"""The programs and scripts of this repository that stand in the runfiles of a test."""

import os
import re

# Flags that are set to words of the user's.
FREE = {
    "adapter", "benchmark_filter", "checkpoint", "data", "exclude", "fixed", "hostfile", "hosts",
    "include", "may_differ", "metrics", "model", "out", "output", "save", "save_adapter", "svg", "text", "trace", "tune",
}

# By label, where a program is, if it has another name.
PROGRAMS = {"//launch": "launch/brigade_launch", "//parallel:plan": "parallel/plan/plan",
            "//tools:plot": "tools/plot.sh", "//tools:first_difference": "digests/first_difference"}

FOLDERS = (".ci", "benchmarks", "checkpoint", "collectives", "data", "digests", "examples", "launch", "models", "parallel", "tools", "train", "tune", "zero")


def path_of(program):
    """Of a label or a path in bazel-bin, as it is in the runfiles."""
    if program.startswith("//"):
        package, _, name = program[2:].partition(":")
        return PROGRAMS.get(program, f"{package}/{name or package.rsplit('/', 1)[-1]}")
    return program.removeprefix("bazel-bin/")


def inner_of_launch(arguments):
    """Where the program that brigade_launch starts stands in its arguments, or their number."""
    return next((i for i, word in enumerate(arguments) if not word.startswith("-")), len(arguments))


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
