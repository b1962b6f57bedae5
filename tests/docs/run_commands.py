"""run_commands.py PAGE...: runs the commands of the pages, as tools/docs_commands.py finds them, in blocks and in prose.

Commands of a page run one after the other, in a folder of their own with the files that they read, and what is slow
is made short: SHORTER. Those of mpirun run on two cores, and where the caller is root and there is a user nobody as that
one too. Each flag that a command gives is one of the program's --help. A command that cannot be run here is an error: the
page must say what it needs.
"""

import os
import pathlib
import pwd
import re
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path[:0] = ["tools", "tests/docs"]
import docs_commands
from our_programs import PROGRAMS, inner_of_launch, path_of

RUNFILES = pathlib.Path.cwd()

# Flags that make a program's run short; the last one of a name counts.
SHORTER = {
    "examples/gpt/train": ["--steps=2", "--evaluate_every=0"],
    "tune/tune": ["--model=1x16x2x16", "--ranks=2", "--trials=1", "--rounds=1", "--fixed=grid,bucket,algorithm"],
    "benchmarks/kernels/adam": ["--rounds=1", "--operations=1", "--benchmark_filter=/elements:4096/"],
    "benchmarks/kernels/cast": ["--rounds=1", "--operations=1", "--benchmark_filter=/elements:4096/"],
    "benchmarks/kernels/streams": ["--mib=4", "--rounds=1"],
    "benchmarks/collectives/all_reduce": ["-b", "8", "-e", "4K", "-f", "16", "-n", "1", "--rounds=1"],
    "benchmarks/data/speed": ["--rounds=1", "--vocabulary=300"],
    "benchmarks/zero/step": ["--units=2", "--unit_elements=4096", "--rounds=1", "--steps=1", "--overlap=false"],
    "benchmarks/checkpoint/save_load": ["--units=3", "--unit_elements=12288", "--rounds=1"],
    "benchmarks/offload/file_store": ["--chunks=3", "--chunk_bytes=98304", "--block_bytes=16384",
                                      "--rounds=2"],
    "benchmarks/offload/update": ["--elements=65536", "--chunk_elements=4096", "--rounds=2"],
    "benchmarks/offload/link": ["--elements=65536", "--rounds=2"],
    "benchmarks/nn/attention": ["--cases=bf16:32:2:16", "--rounds=1"],
    "benchmarks/nn/products": ["--widths=16", "--rows=32", "--rounds=1"],
    "benchmarks/parallel/tensor_block": ["--context=16", "--width=32", "--heads=4", "--rounds=1", "--runs=1"],
    "benchmarks/parallel/overlap": ["--rows=64", "--width=32", "--rounds=1", "--pieces=2"],
    "benchmarks/parallel/pipeline": ["--pass_ms=1", "--micro_batches=4", "--stages=2", "--rounds=1"],
    "benchmarks/parallel/ring": ["--context=64", "--head_width=8", "--rounds=1"],
}

# What runs only once, by CI itself.
RUN_BY_CI = {"tools/setup"}

# The machine that docs/choosing_a_collective.md describes.
MACHINE = """{"inside": {"latency_us": 1, "gigabytes_per_s": 1}, "between": {"latency_us": 1, "gigabytes_per_s": 1},
 "ranks_of_node": [4]}"""

# As programs above DeepSpeed write it, who leave to flags what is "auto".
CONFIG = """{"train_batch_size": "auto", "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 2},
 "optimizer": {"type": "AdamW", "params": {"lr": "auto"}}}"""


class Runner:
    def __init__(self, page, folder):
        self.page, self.folder = page, folder
        self.errors = []
        self.helps = {}
        (folder / "book.txt").write_text("All work and no play makes Jack a dull boy.\n" * 250)
        (folder / "machine.json").write_text(MACHINE)
        (folder / "ds_config.json").write_text(CONFIG)
        (folder / "disk").mkdir()
        (folder / "docs/images").mkdir(parents=True)
        (folder / "bazel-bin").symlink_to(RUNFILES)
        (folder / "examples").symlink_to(RUNFILES / "examples")

    def path(self, program):
        """Of a label or a path, in the runfiles; None for what is not there."""
        program = path_of(program)
        return program if os.access(RUNFILES / program, os.X_OK) and (RUNFILES / program).is_file() else None

    def help(self, path):
        if path not in self.helps:
            done = subprocess.run([RUNFILES / path, "--help"], capture_output=True, text=True, check=False)
            self.helps[path] = done.stdout
        return self.helps[path]

    def check_flags(self, where, path, arguments):
        for argument in arguments:
            name = re.match(r"--?([a-zA-Z]\w*)", argument)
            if name and not re.search(rf"(?<![\w-])--?{name[1]}\b", self.help(path)):
                self.errors.append(f"{where}: {path} --help does not know {name[0]}")

    def run(self, command):
        program, arguments = command.program()
        if program is None or program in RUN_BY_CI:
            return
        path = self.path(program)
        if path is None:
            self.errors.append(f"{command}: {program} is not there to be run; tests/docs/BUILD.bazel names the programs")
            return
        if path == PROGRAMS["//launch"]:
            # What follows the program that it starts is that one's.
            inner = inner_of_launch(arguments)
            self.check_flags(command.where, path, arguments[:inner])
            path_of_flags, flags = self.path((arguments + [path])[inner]), arguments[inner + 1:]
        else:
            path_of_flags, flags = path, arguments
        self.check_flags(command.where, path_of_flags, flags)
        shorter = SHORTER.get(path_of_flags, [])
        if path_of_flags == "examples/gpt/train" and self.page != "README.md":
            # A text that takes less time than the default one.
            shorter = shorter + ["--data=book.txt"]
            # What a step takes grows with the context.
            if any(argument.startswith("--context=") for argument in arguments):
                shorter = shorter + ["--layers=1"]
        arguments = [self.here(argument) for argument in arguments] + shorter
        environment = dict(os.environ, **command.environment)
        if command.words[0] == "bazel":
            # `bazel run` starts a program in its runfiles.
            environment["BUILD_WORKING_DIRECTORY"] = str(self.folder)
            words, folder = [str(RUNFILES / path)] + arguments, RUNFILES
        elif command.words[0] == "mpirun":
            if not shutil.which("mpirun"):
                self.errors.append(f"{command}: there is no mpirun; tools/setup installs it")
                return
            # On two cores, as this user and, where that is root, as another one.
            words, folder = [self.here(word) for word in command.words] + shorter, self.folder
            cores = {"preexec_fn": lambda: os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])}
            self.start(command, words, folder, environment, **cores)
            self.start_as_nobody(command, path, words, environment, **cores)
            return
        else:
            words, folder = [str(RUNFILES / path)] + arguments, self.folder
        self.start(command, words, folder, environment)

    def start(self, command, words, folder, environment, **options):
        done = subprocess.run(words, cwd=folder, env=environment, stdin=subprocess.DEVNULL, text=True, errors="replace",
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, **options)
        who = f" as user {options['user']}" if "user" in options else ""
        print(f"{command}{who}: {done.returncode}", flush=True)
        if done.returncode != 0:
            self.errors.append(f"{command}, run{who} as {words}, ended with {done.returncode}:\n{done.stdout[-3000:]}")

    def start_as_nobody(self, command, path, words, environment, **options):
        """From copies in a folder of that user's, who sees nothing of the caller's files."""
        try:
            user = pwd.getpwnam("nobody")
        except KeyError:
            user = None
        if user is None or os.geteuid() != 0:
            why = "the caller is not root" if user else "there is none"
            # What .ci/run looks for.
            print(f"[  SKIPPED ] as user nobody: {command} ({why})", flush=True)
            return
        with tempfile.TemporaryDirectory(dir="/tmp") as name:
            folder = pathlib.Path(name)
            os.makedirs(folder / "bazel-bin" / os.path.dirname(path))
            shutil.copy(RUNFILES / path, folder / "bazel-bin" / path)
            for file in self.folder.iterdir():
                if file.is_file():
                    shutil.copy(file, folder)
            for place in [folder, *folder.rglob("*")]:
                os.chown(place, user.pw_uid, user.pw_gid)
            environment = dict(environment, HOME=name, TMPDIR=name, USER="nobody", LOGNAME="nobody")
            self.start(command, words, folder, environment, user=user.pw_uid, group=user.pw_gid, extra_groups=[], **options)

    def here(self, word):
        # Where the pages have a disk, and the steps that a short training ends after.
        return word.replace("/mnt/disk", str(self.folder / "disk")).replace("step-00000800", "step-00000002")

    def run_page(self):
        text = docs_commands.read(self.page)
        count = 0
        # A script that is not in the runfiles is an error, as in a block.
        in_prose = docs_commands.quoted_commands(
            self.page, text, lambda word: word.startswith((".ci/", "tools/", "benchmarks/", "examples/")) or
            self.path(word) is not None)
        for block in sorted([*docs_commands.blocks(self.page, text), *in_prose], key=lambda each: each.line):
            if block.kind:
                continue
            for command in block.commands():
                self.run(command)
                count += 1
        if count == 0:
            self.errors.append(f"{self.page}: no commands")


def main():
    errors = []
    for page in sys.argv[1:]:
        folder = pathlib.Path(tempfile.mkdtemp(dir=os.environ["TEST_TMPDIR"]))
        runner = Runner(page, folder)
        runner.run_page()
        errors += runner.errors
    for error in errors:
        print(error)
    sys.exit(1 if errors else 0)


main()
