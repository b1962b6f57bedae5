#!/usr/bin/env python3
"""The build graph as data: which files make a library, and what it needs.

  build_graph.py LABEL...    prints these libraries and all that they need

For tools that write it down for those who build without Bazel. A library is what a BUILD file
declares: the helpers that the macros of bazel/ add to it (<name>_hdrs, <name>_private_hdrs,
<name>_cu) are part of it again.

  graph = build_graph.read(workspace)
  graph.closure(["//kernels/adam"])        {label: Library}, what is depended on first
  graph.public(["//kernels", "//optim"])   the labels of all public libraries below these folders

The answer is the same on every machine, with a CUDA toolkit and without: Bazel is asked twice, as
if there were a toolkit and as if there were none, which takes about 10 s. It is asked in an output
base of its own, so that the build's server keeps what it knows, and a test may ask as well.
"""

import dataclasses
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

CUDA_HEADERS = "@local_cuda//:headers"
CUDART = "@local_cuda//:cudart"

# An alias for the runtime of the toolkit or of the emulator.
_CUDART_ALIAS = "//bazel:cudart"

# //bazel, and Bazel's links to what it made.
_NO_LIBRARIES = ("//bazel", "//docs", "//tests")

_CLASSES = ("cc_library", "nvcc_compile")

# Just enough for bazel/cuda_configure.bzl; nothing is compiled.
_TOOLKIT = {
    "bin/nvcc": "#!/bin/sh\necho release 13.0\n",
    "include/cuda_runtime.h": "",
    "lib64/libcudart_static.a": "",
}


class Error(Exception):
    """The graph cannot be read; the text says why, for whoever started the tool."""


@dataclasses.dataclass
class Library:
    """A cc_library or cuda_library. Files are paths from the root of the workspace.

    Lists are in the order of the BUILD file, or of the macro that the BUILD file calls.
    """

    label: str  # //kernels/adam:adam, always with the part behind the colon
    public: bool = False  # //visibility:public
    testonly: bool = False
    cuda_only: bool = False  # exists only where there is a toolkit
    hdrs: list = dataclasses.field(default_factory=list)  # included as brigade/<path>
    private_hdrs: list = dataclasses.field(default_factory=list)  # included in the same way
    textual_hdrs: list = dataclasses.field(default_factory=list)  # found through `includes`
    srcs: list = dataclasses.field(default_factory=list)  # .cc
    cuda_srcs: list = dataclasses.field(default_factory=list)  # .cu, and .cc only with a toolkit
    deps: list = dataclasses.field(default_factory=list)  # labels of libraries
    external: list = dataclasses.field(default_factory=list)  # @system//:absl, ...
    cuda_deps: list = dataclasses.field(default_factory=list)  # as deps, only with a toolkit
    cuda_external: list = dataclasses.field(default_factory=list)  # as external, only with one
    copts: list = dataclasses.field(default_factory=list)  # for .cc, those of bazel/cc.bzl first
    nvcc_copts: list = dataclasses.field(default_factory=list)  # for .cu, besides bazel/nvcc.bzl's
    includes: list = dataclasses.field(default_factory=list)  # folders, paths as of files
    linkopts: list = dataclasses.field(default_factory=list)

    @property
    def package(self):
        return self.label[2:].partition(":")[0]

    @property
    def name(self):
        return self.label.partition(":")[2]


class Graph:
    """All libraries below the folders that were read."""

    def __init__(self, libraries):
        self._libraries = libraries

    def __getitem__(self, label):
        label = canonical(label)
        if label not in self._libraries:
            raise Error(f"{label} is no library of the build graph")
        return self._libraries[label]

    def __contains__(self, label):
        return canonical(label) in self._libraries

    def closure(self, labels, cuda=True):
        """{label: Library} of the labels and all that they need, what is needed first.

        Without `cuda` only what a build without a toolkit takes.
        """
        done = {}

        def visit(label):
            library = self[label]
            if label in done or (library.cuda_only and not cuda):
                return
            for dep in library.deps + (library.cuda_deps if cuda else []):
                visit(dep)
            done[label] = library

        for label in labels:
            visit(canonical(label))
        return done

    def public(self, folders=None):
        """The labels of the public libraries in and below the folders (//kernels), sorted; of all
        folders by default."""
        libraries = self._libraries.items()
        labels = [label for label, each in libraries if each.public and not each.testonly]
        if folders is not None:
            below = tuple("//" + folder.strip("/") + end for folder in folders for end in ":/")
            labels = [label for label in labels if label.startswith(below)]
        return sorted(labels)


def canonical(label):
    """//a/b:c of //a/b:c, of //a/c, and of @//a/b:c; @system//:x of Bazel's longer forms."""
    label = re.sub(r"^@+(?:[^/]*[~+])?([A-Za-z0-9_.-]*)//", r"@\1//", label)
    label = re.sub(r"^@(brigade)?//", "//", label)
    if ":" not in label:
        label += ":" + label.rpartition("/")[2]
    return label


def read(workspace=None, folders=None):
    """Asks Bazel for the libraries below the folders (all of the workspace) and their closures."""
    if workspace is None:
        workspace = pathlib.Path(__file__).resolve().parent.parent
    if folders is None:
        folders = ["//" + f.parent.name for f in pathlib.Path(workspace).glob("[a-z]*/BUILD.bazel")]
        folders = [f for f in sorted(folders) if not f.startswith(_NO_LIBRARIES)]
    with tempfile.TemporaryDirectory(prefix="brigade_build_graph_") as temporary:
        toolkit = pathlib.Path(temporary, "toolkit")
        for name, text in _TOOLKIT.items():
            path = toolkit / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(0o755)
        base = pathlib.Path(temporary, "base")
        try:
            with_cuda = _libraries(_query(workspace, base, folders, str(toolkit)))
            without = _libraries(_query(workspace, base, folders, "none"))
        finally:
            _bazel(workspace, base, ["shutdown"], {})
            # Bazel leaves folders behind that only it may write to.
            subprocess.run(["chmod", "-R", "u+w", temporary], check=False)
    for label, library in with_cuda.items():
        _mark_cuda(library, without.get(label))
    return Graph(with_cuda)


def parse(text):
    """The graph in one answer of Bazel's, for those who cannot ask: a genquery's, with the options
    of _query. What needs a toolkit is then there like the rest, or missing."""
    return Graph(_libraries(text))


def _mark_cuda(library, without):
    """`without` is the same library of a build without a toolkit; None where nothing needs it."""
    library.cuda_only = without is None or without.cuda_only
    if library.cuda_only:
        return
    for plain, cuda in (("deps", "cuda_deps"), ("external", "cuda_external"), ("srcs", "cuda_srcs")):
        always = getattr(without, plain)
        setattr(library, cuda, [each for each in getattr(library, plain) if each not in always])
        setattr(library, plain, always)


def _bazel(workspace, base, arguments, environment):
    command = ["bazel", f"--output_base={base}", "--max_idle_secs=60", *arguments]
    # An enclosing test's variables make Bazel take it for a call from inside of itself.
    inherited = {k: v for k, v in os.environ.items() if k not in ("TEST_TMPDIR", "RUNFILES_DIR")}
    try:
        return subprocess.run(
            command,
            cwd=workspace,
            env={**inherited, **environment},
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError as error:
        raise Error("bazel is not in PATH; tools/setup installs it") from error


def _query(workspace, base, folders, toolkit):
    every = " + ".join(folder + "/..." for folder in folders)
    result = _bazel(
        workspace,
        base,
        [
            "query",
            "--output=xml",
            "--xml:default_values",  # a package's default visibility
            "--noimplicit_deps",
            "--notool_deps",
            "--noshow_progress",
            f'kind("^({"|".join(_CLASSES)}) rule$", deps({every}))',
        ],
        {"BRIGADE_CUDA_TOOLKIT": toolkit},
    )
    if result.returncode != 0:
        raise Error(f"bazel query failed with {result.returncode}:\n{result.stderr.strip()}")
    return result.stdout


def _rules(text):
    """{label: {attribute: value}} of bazel query's XML; lists of strings, else strings."""
    rules = {}
    for element in xml.etree.ElementTree.fromstring(text):
        if element.tag != "rule" or element.get("class") not in _CLASSES:
            continue
        attributes = {"class": element.get("class")}
        for child in element:
            if child.tag == "list":
                attributes[child.get("name")] = [item.get("value") for item in child]
            elif child.tag not in ("rule-input", "rule-output"):
                attributes[child.get("name")] = child.get("value")
        rules[canonical(element.get("name"))] = attributes
    return {label: rule for label, rule in rules.items() if label.startswith("//")}


def _path(label):
    return canonical(label)[2:].replace(":", "/", 1).lstrip("/")


def _helper(rules, owner, dep):
    """The rule `dep` if a macro made it for `owner` alone, else None."""
    if dep not in (owner + suffix for suffix in ("_hdrs", "_private_hdrs", "_cu")):
        return None
    rule = rules.get(dep)
    private = rule and rule.get("visibility") == ["//visibility:private"]
    return rule if private else None


def _libraries(text):
    rules = _rules(text)
    helpers = {
        label + suffix
        for label in rules
        for suffix in ("_hdrs", "_private_hdrs", "_cu")
        if _helper(rules, label, label + suffix)
    }
    return {
        label: _library(rules, label, rule)
        for label, rule in rules.items()
        if rule["class"] == "cc_library" and label not in helpers
    }


def _add(values, more):
    values += [value for value in more if value not in values]


def _add_deps(rules, library, labels):
    for dep in map(canonical, labels):
        helper = _helper(rules, library.label, dep)
        if helper:
            private = dep.endswith("_private_hdrs")
            headers = library.private_hdrs if private else library.hdrs
            _add(headers, map(_path, helper.get("hdrs", [])))
            _add_deps(rules, library, helper.get("deps", []))
        elif dep == _CUDART_ALIAS:
            _add(library.external, [CUDART])
        elif dep.startswith("@"):
            _add(library.external, [dep])
        else:
            _add(library.deps, [dep])


def _library(rules, label, rule):
    library = Library(
        label=label,
        public="//visibility:public" in rule.get("visibility", []),
        testonly=rule.get("testonly") == "true",
        cuda_only=any("local_cuda" in c for c in rule.get("target_compatible_with", [])),
        hdrs=[_path(file) for file in rule.get("hdrs", [])],
        textual_hdrs=[_path(file) for file in rule.get("textual_hdrs", [])],
        copts=list(rule.get("copts", [])),
        linkopts=list(rule.get("linkopts", [])),
    )
    library.includes = [f"{library.package}/{folder}" for folder in rule.get("includes", [])]
    for source in map(canonical, rule.get("srcs", [])):
        helper = _helper(rules, label, source)
        if helper:
            library.cuda_only = True
            library.cuda_srcs += [_path(file) for file in helper["srcs"]]
            library.nvcc_copts += helper.get("copts", [])
            _add_deps(rules, library, helper.get("deps", []))
        else:
            library.srcs.append(_path(source))
    _add_deps(rules, library, rule.get("deps", []))
    return library


def _print(library):
    print(library.label)
    for field in dataclasses.fields(library):
        value = getattr(library, field.name)
        if field.name not in ("label", "copts") and value:
            print(f"  {field.name}: {' '.join(value) if isinstance(value, list) else value}")


def main(labels):
    if labels == ["--help"]:
        print(__doc__.strip())
        return 0
    if not labels or labels[0].startswith("-"):
        print("usage: tools/build_graph.py LABEL...", file=sys.stderr)
        return 2
    try:
        for library in read().closure(labels).values():
            _print(library)
    except Error as error:
        print(f"build_graph: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
