"""What the check_* scripts share: running a benchmark, and printing bars."""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def count(text):
    """A flag's number of rounds or runs, for argparse."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text}; must be at least 1")
    return number


def parse(parser, *binaries, parts=None):
    """The arguments of a script which runs these binaries of bazel-bin, and for each choice of --only those that `parts`
    has for it; ends it if one is not built."""
    arguments = parser.parse_args()
    if parts is not None:
        binaries += tuple(dict.fromkeys(binary for part in arguments.only for binary in parts[part]))
    missing = [binary for binary in binaries if not os.access(ROOT / "bazel-bin" / binary, os.X_OK)]
    if missing:
        parser.error("build first: bazel build " + " ".join("//" + ":".join(binary.rsplit("/", 1)) for binary in missing))
    return arguments


def run(*command):
    """The standard output of a command; ends the script if it fails."""
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stderr}")
    sys.stderr.write(done.stderr)
    return done.stdout


def run_json(binary, *flags):
    """What a benchmark prints, and what it writes with --json."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        out = run(binary, *flags, f"--json={file.name}")
        return out, json.load(file)


class Bars:
    """Prints bars beside measured figures, and counts those that are missed."""

    def __init__(self):
        self.checked = 0
        self.missed = 0

    def check(self, name, figure, comparison, limit):
        holds = figure >= limit if comparison == ">=" else figure <= limit
        self.checked += 1
        self.missed += not holds
        print(f"{name:64} {figure:8.3f} {comparison} {limit:5.3f} {'PASS' if holds else 'FAIL'}", flush=True)

    def miss(self, name, why):
        """A bar whose figure is not to be had."""
        self.checked += 1
        self.missed += 1
        print(f"{name:64} {why} FAIL", flush=True)

    def exit_code(self):
        """0 if bars were checked and none was missed: nothing measured is no pass."""
        print(f"{self.missed} of {self.checked} bars missed")
        return 1 if self.missed or not self.checked else 0
