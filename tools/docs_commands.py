"""The commands of the documents, and the files that they show, for tools/check_docs and tests/docs.

A command is a line of a block ```sh. The line before the block may say why no test of the documents runs it:

    <!-- needs: a GPU -->                                  something that not every machine has
    <!-- run by: //tests/tools:plot_test -->               a test, or a script that CI runs, which names the program

Bazel's `build` and `test` are not run either: CI builds and tests everything. A block after the line

    <!-- the file examples/one_kernel.cc -->

holds that file, whole.
"""

import pathlib
import re
import shlex

COPY = re.compile(r"^<!-- the file (.+) -->$")
MARK = re.compile(r"^<!-- (needs|run by): (.+) -->$")
LABEL = re.compile(r"(?<![\w:/@.])//(?:\.\.\.|[a-z][\w-]*(?:/[\w-]+)*(?:/\.\.\.)?)(?::[\w.+*-]*\w)?")


def last_name(program):
    """train of //examples/gpt:train, of //examples/train and of bazel-bin/examples/gpt/train; plot of tools/plot.sh."""
    return re.split("[/:]", program)[-1].removesuffix(".sh")


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


def blocks(page, text):
    """The blocks of shell commands of a page."""
    fence = previous = ""
    begin, lines, mark = 0, [], None
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith("```"):
            lines.append(line)
            previous = line if not fence else previous
            continue
        if fence == "```sh":
            yield Block(page, begin, mark, lines)
        fence = "" if fence else line
        begin, lines, mark = number, [], MARK.match(previous)


def copies(text):
    """The blocks that the line before calls a file: its path, the block's first line, and what is in the block."""
    path, begin, lines = None, None, []
    previous = ""
    for number, line in enumerate(text.splitlines(), 1):
        if begin is not None and line == "```":
            yield path, begin, "".join(each + "\n" for each in lines)
            begin, lines = None, []
        elif begin is not None:
            lines.append(line)
        elif line.startswith("```") and COPY.match(previous):
            path, begin = COPY.match(previous).group(1), number
        previous = line


def prose(text):
    """The lines outside of all blocks, with their numbers."""
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            inside = not inside
        elif not inside:
            yield number, line


def quoted(text):
    """What stands between backticks outside of all blocks, with line numbers."""
    for number, line in prose(text):
        for words in re.findall(r"`([^`]+)`", line):
            yield number, words


def read(path):
    return pathlib.Path(path).read_text(encoding="utf-8")
