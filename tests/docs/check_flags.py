"""check_flags.py PAGE...: each flag that the pages name between backticks, or behind one of our programs in a block of
commands that "needs" something or is "run by" another test, is one that its program has, and a word that it is set to is one
that --help names.

Behind a program of ours, which may be called by its last name alone, it must be that one's; by itself, one of a program
that the page names. What programs have says their --help.
"""

import collections
import re
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path[:0] = ["tools", "tests/docs"]
import docs_commands
from our_programs import FREE, PROGRAMS, inner_of_launch, path_of, programs

# Flags of Bazel, of CMake, of compilers, of libFuzzer and of other programs that the pages name.
OTHERS = {
    "DBRIGADE_COMPONENTS", "L", "f", "logdir", "r", "DBRIGADE_CUDA", "DBUILD_SHARED_LIBS", "config", "cxxopt", "disk_cache", "enable_workspace",
    "Wall", "Werror", "Wextra", "Wno", "build_tests_only", "jobs", "local_cpu_resources",
    "fassociative", "ffast", "ffinite", "ffp", "fmad", "fno", "freciprocal", "ftz", "funsafe", "fuse", "help", "hex", "lineinfo", "merge",
    "noenable_bzlmod", "nosandbox_debug", "platform_suffix", "repo_env", "std", "test_env", "tool", "use_counters", "use_fast_math",
}

# What is built with a CUDA toolkit alone, and what has its flags.
SAME_FLAGS = {"benchmarks/kernels/cub": "benchmarks/kernels/adam"}


def parts(command, ours):
    """What runs with its arguments; behind a -- those are of what stands before it, as in `run train -- --steps=2`. What a
    launcher starts, ours or another's, is told apart from it."""
    program, arguments = command.program()
    if program is None:  # Bazel's own build and test
        arguments = command.words
    elif path_of(program) == PROGRAMS["//launch"]:
        inner = inner_of_launch(arguments)
        yield program, arguments[:inner]
        program, arguments = (arguments + [program])[inner], arguments[inner + 1:]
    elif ours.flags(program) is None:
        inner = next((i for i, word in enumerate(arguments) if word.startswith("bazel-bin/")), None)
        if inner is not None:
            program, arguments = arguments[inner], arguments[inner + 1:]
    inner = arguments.index("--") if "--" in arguments else len(arguments)
    yield program, arguments[:inner]
    if 0 < inner < len(arguments):
        yield arguments[inner - 1], arguments[inner + 1:]


def flags_of(words):
    """Of each flag the name and, if it is a word, what it is set to."""
    for word in words:
        flag = re.match(r"--?([a-zA-Z]\w*)(?:=([a-z][\w-]*))?", word)
        if flag:
            yield flag[1], flag[2]


class Programs:
    """Their flags, by path and by last name."""

    def __init__(self):
        self.by_path, self.by_name = {}, collections.defaultdict(set)
        # What is said of a flag, by all programs that have it.
        self.said = collections.defaultdict(str)
        for path in programs():
            done = subprocess.run([path, "--help"], capture_output=True, text=True, check=False,
                                  stdin=subprocess.DEVNULL)
            flags = set(re.findall(r"(?<![\w-])--?([a-zA-Z]\w*)", done.stdout)) | {"help"}
            for name, text in re.findall(r"^ *--([a-z]\w*)\b(.*\n(?:      .*\n)*)", done.stdout, re.MULTILINE):
                self.said[name] += text
            self.by_path[path] = flags
            self.by_name[docs_commands.last_name(path)] |= flags

    def flags(self, program):
        """Of a path, a label or a last name; None for what is none of ours."""
        path = path_of(program)
        path = SAME_FLAGS.get(path, path)
        if path in self.by_path:
            return self.by_path[path]
        return self.by_name.get(docs_commands.last_name(program))

    def offers(self, flag, value):
        """Whether the help of a flag names what it is set to, as far as that is a choice."""
        return value in (None, "true", "false") or flag in FREE | OTHERS or re.search(
            rf"(?<!\w){re.escape(value)}(?!\w)", self.said[flag])

    def named(self, commands):
        """The flags of all that these name as a program, or anywhere."""
        found = set()
        for command in commands:
            words = command.words[2:] if command.words[0] == "bazel" else command.words
            for word in words:
                found |= self.flags(word) or set()
        return found


def main():
    ours = Programs()
    count = len(set().union(*ours.by_path.values()))
    print(f"{len(ours.by_path)} programs and scripts, {count} flags")
    errors = [] if len(ours.by_path) > 30 and count > 100 else ["most programs are missing"]
    for page in sys.argv[1:]:
        text = docs_commands.read(page)
        quoted = [docs_commands.Command(f"{page}:{number}", words.split()) for number, words in docs_commands.quoted(text)]
        quoted = [command for command in quoted if command.words]
        marked, others = [], []
        for block in docs_commands.blocks(page, text):
            (marked if block.kind else others).extend(block.commands())
        named = ours.named(quoted + marked + others)
        # Those of other commands are checked where they run.
        for command in quoted + marked:
            for program, arguments in parts(command, ours):
                flags = ours.flags(program) if program else None
                if command in marked and flags is None:
                    # Bazel's tests, and programs of others.
                    if program and program.startswith(("//", "bazel-bin/")) and any(flags_of(arguments)):
                        errors.append(f"{command.where}: {program} is not there to be asked; tests/docs/BUILD.bazel names it")
                    continue
                # What stands between backticks may begin with a flag.
                words = arguments if flags is not None else [program or "", *arguments]
                for flag, value in flags_of(words):
                    if not ours.offers(flag, value):
                        errors.append(f"{command.where}: no --help offers {value} for --{flag}")
                    if flag in OTHERS or flag in (named if flags is None else flags):
                        continue
                    who = f"no program that {page} names knows" if flags is None else f"{program} --help does not know"
                    errors.append(f"{command.where}: {who} {flag}")
    for error in errors:
        print(error)
    sys.exit(1 if errors else 0)


main()
