"""The commands of the documents, and the files that they show, for tools/check_docs and tests/docs.

A command is a line of a block ```sh, or stands between backticks in a sentence or a table. A comment may say why no
test of the documents runs it, in the line before the block, or behind the backticks:

    <!-- needs: a GPU -->                                  something that not every machine has
    <!-- run by: //tests/tools:plot_test -->               a test, or a script that CI runs, which names the program

Bazel's `build` and `test` are not run either: CI builds and tests everything. In the line before a block of another
language stands one of these, or what the block shows of the tree:

    <!-- the file examples/one_kernel.cc -->               the file, whole
    <!-- from tests/docs/snippets.cc -->                   lines of a file that is built or run, but for comments and
                                                           for how lines are broken
    <!-- from x/WORKSPACE, but for strings -->             and what is between quotes
"""

import pathlib
import re
import shlex

COPY = re.compile(r"^<!-- the file (.+) -->$")
MARK = re.compile(r"^<!-- (needs|run by): (.+) -->$")
FROM = re.compile(r"^<!-- from (\S+?)(, but for strings)? -->$")
SPAN = re.compile(r"`([^`]+)`(?: ?<!-- (needs|run by): (.+?) -->)?")
# Programs that are not ours, in which a command may begin.
OTHERS = {"apt-get", "bazel", "chroot", "clang++", "cmake", "cp", "ctest", "curl", "deepspeed", "docker", "g++", "git", "make", "mpirun",
          "ninja", "nvcc", "openssl", "pip", "pkg-config", "python3", "srun", "ssh", "sudo", "tensorboard", "torchrun"}
LABEL = re.compile(r"(?<![\w:/@.])//(?:\.\.\.|[a-z][\w-]*(?:/[\w-]+)*(?:/\.\.\.)?)(?::[\w.+*-]*\w)?")


def last_name(program):
    """train of //examples/gpt:train, of //examples/train and of bazel-bin/examples/gpt/train; plot of tools/plot.sh."""
    return re.split("[/:]", program)[-1].removesuffix(".sh")


def folder_of(program):
    """examples/gpt of //examples/gpt:train and of bazel-bin/examples/gpt/train; nothing of what the reader's folder decides."""
    path = program.removeprefix("bazel-bin/").removeprefix("//")
    return "" if path.startswith(".") else path.replace(":", "/").rpartition("/")[0]


class Command:
    """Words as a shell has them, without assignments before them, which are in `environment`."""

    def __init__(self, where, words):
        self.where = where
        self.environment = {}
        while words and re.match(r"^\w+=", words[0]):
            name, _, value = words[0].partition("=")
            self.environment[name] = value
            words = words[1:]
        self.words = words

    def __str__(self):
        return f"{self.where}: {shlex.join(self.words)}"

    def program(self):
        """What runs, as a label or as a path, and its arguments; None for what only builds and tests."""
        words = self.words
        if words[0] == "bazel" and words[1:2] in (["build"], ["test"]):
            return None, []
        if words[0] == "bazel" and words[1:2] == ["run"]:
            label = next(i for i, word in enumerate(words) if word.startswith("//"))
            return words[label], words[label + 2:] if words[label + 1:label + 2] == ["--"] else words[label + 1:]
        if words[0] == "mpirun":
            inner = next((i for i, word in enumerate(words) if "/" in word), 0)
            return words[inner], words[inner + 1:]
        return words[0], words[1:]


class Block:
    def __init__(self, page, line, mark, lines):
        self.page, self.line, self.lines = page, line, lines
        self.kind, self.reason = mark.groups() if mark else (None, None)

    def commands(self):
        joined, begin = "", None
        for number, line in enumerate(self.lines, self.line + 1):
            begin = begin or number
            joined += line.removesuffix("\\")
            if line.endswith("\\"):
                continue
            words = shlex.split(joined, comments=True)
            while words:
                end = words.index("&&") if "&&" in words else len(words)
                command = Command(f"{self.page}:{begin}", words[:end])
                if command.words:
                    yield command
                words = words[end + 1:]
            joined, begin = "", None


class Fence:
    """A block between ``` and ```, which may be indented, as in a list: its language, the number of the line that begins
    it, its lines, and the line before it."""

    def __init__(self, language, line, before):
        self.language, self.line, self.before, self.lines = language, line, before, []


def fences(text):
    """The blocks of a page, and all other lines as (number, line)."""
    fence = None
    before = ""
    for number, line in enumerate(text.splitlines(), 1):
        marker = line.lstrip()
        if fence is None and marker.startswith("```"):
            fence, indent = Fence(marker[3:], number, before), len(line) - len(marker)
        elif fence is None:
            yield number, line
        elif marker.startswith("```"):
            yield fence
            fence = None
        else:
            fence.lines.append(line[indent:] if line[:indent].isspace() else line)
        before = marker


def all_blocks(text):
    return (item for item in fences(text) if isinstance(item, Fence))


def blocks(page, text):
    """The blocks of shell commands of a page."""
    for fence in all_blocks(text):
        if fence.language == "sh":
            yield Block(page, fence.line, MARK.match(fence.before), fence.lines)


def copies(text):
    """The blocks that the line before calls a file: its path, the block's first line, and what is in the block."""
    for fence in all_blocks(text):
        if COPY.match(fence.before):
            yield COPY.match(fence.before).group(1), fence.line, "".join(each + "\n" for each in fence.lines)


def prose(text):
    """The lines outside of all blocks, with their numbers."""
    return (item for item in fences(text) if not isinstance(item, Fence))


def quoted(text):
    """What stands between backticks outside of all blocks, with line numbers."""
    for number, line in prose(text):
        for words in re.findall(r"`([^`]+)`", line):
            yield number, words


def quoted_commands(page, text, programs):
    """The commands between backticks, as blocks of one line; `programs` says of a word whether it is a program of ours.
    One word is a name, however executable, and so is a program's own name without flags."""
    for number, line in prose(text):
        if MARK.match(line):
            continue
        for words, kind, reason in SPAN.findall(line):
            try:
                command = Command(f"{page}:{number}", shlex.split(words))
            except ValueError:
                continue
            first, *rest = command.words or [""]
            # Bazel's subcommand, by its name.
            if first == "bazel" and not any(word.startswith("//") for word in rest):
                continue
            if not rest or not (first in OTHERS or first.startswith("bazel-bin/") or ("/" in first and programs(first))
                                or (rest[0].startswith("-") and programs(first))):
                continue
            block = Block(page, number - 1, None, [words])
            block.kind, block.reason = kind or None, reason or None
            yield block


def skeleton(language, text, strings=True):
    """The text without comments, white space and commas before a bracket; without `strings` nothing is between quotes."""
    text = re.sub(r"//.*" if language in ("cpp", "cuda") else r"#.*", "", text)
    if not strings:
        text = re.sub(r'"[^"\n]*"', '""', text)
    return re.sub(r",(?=[)\]}])", "", re.sub(r"\s+", "", text))


def read(path):
    return pathlib.Path(path).read_text(encoding="utf-8")
