"""What is copied: the files of a target and of all that it depends on.

The build graph decides, and the includes check it: each header of the project that a file includes
has to be among the files.
"""

import dataclasses
import pathlib

import externals
from vendoring import libraries, rewrite

# What may be taken of a kernel instead of the public call: how its target ends, and what it is.
PARTS = {"cpu": "CPU loop", "cuda": "CUDA launcher"}

# What helps to call either, taken with them where it exists.
_HELPERS = ["_parameters"]


class Error(Exception):
    """The target cannot be taken; the text says why."""


@dataclasses.dataclass
class Selection:
    """A target's files, by their paths in the tree, and what they need."""

    target: str
    parts: list  # of PARTS; none for the whole target
    texts: dict  # {path: text}
    cuda_files: set  # those of texts that only exist with CUDA
    cuda: str  # "none", "optional" (cuda_files can be left out) or "required"
    externals: list  # as libraries.needed returns
    copts: list  # for C++, those of all files
    bit_copts: list  # those of them that formulas in headers need
    cuda_copts: list  # for CUDA
    cuda_bit_copts: list  # the same of these
    own_copts: dict  # {path: [option]}, for C++ files that need others besides
    includes: list  # folders to search besides
    linkopts: list
    macros: set  # names of the project's macros in the code

    @property
    def sources(self):
        """What is compiled, sorted."""
        return sorted(path for path in self.texts if path.endswith((".cc", ".cu")))


def labels(graph, target, parts):
    """The labels that are taken for a target and its parts. Raises Error with the reason."""
    library = graph[target]
    if library.testonly:
        raise Error(f"{library.label} is for tests alone (testonly)")
    if not library.public:
        raise Error(f"{library.label} is not public: what it does may change without notice")
    found = [f"{library.label}_{part}" for part in parts]
    for part, label in zip(parts, found):
        if label not in graph:
            raise Error(f"{library.label} has no {PARTS[part]}: there is no target {label}")
    if found:
        helpers = [library.label + end for end in _HELPERS]
        found += [helper for helper in helpers if helper in graph]
    return found or [library.label]


def parts_of(graph, target):
    """Those of PARTS that the target has."""
    return [part for part in PARTS if f"{graph[target].label}_{part}" in graph]


def _headers(library):
    return library.hdrs + library.private_hdrs + library.textual_hdrs


def _read(root, label, path):
    try:
        return pathlib.Path(root, path).read_text(encoding="utf-8")
    except OSError as error:
        raise Error(f"{path} of {label} cannot be read: {error.strerror}") from error


def _included(root, closure, taken):
    """{label: {path: text}} of the libraries that the taken ones need, in the closure's order.

    A macro of bazel/ gives all of its kind the same deps: what no file includes is left out. A
    library without files of its own stands for its deps.
    """
    owners = {path: label for label, library in closure.items() for path in _headers(library)}
    found, waiting = {}, list(taken)
    while waiting:
        label = waiting.pop()
        if label in found:
            continue
        library = closure[label]
        paths = _headers(library) + library.srcs + library.cuda_srcs
        found[label] = {path: _read(root, label, path) for path in paths}
        for path, text in found[label].items():
            for header in rewrite.included(text)[0]:
                inner = header.removeprefix(rewrite.PREFIX + "/")
                if inner == header:
                    continue
                if inner not in owners:
                    raise Error(
                        f'{path} includes "{header}", which no dependency of {label} brings'
                    )
                waiting.append(owners[inner])
        deps = library.deps + library.cuda_deps
        waiting += [dep for dep in deps if not paths or not _headers(closure[dep])]
    return {label: found[label] for label in closure if label in found}


def select(root, graph, target, parts):
    """Returns the Selection of a target of the graph, its files read from the tree at `root`."""
    taken = labels(graph, target, parts)
    closure = graph.closure(taken)
    plain = graph.closure([label for label in taken if not graph[label].cuda_only], cuda=False)
    bits = externals.constant(root, "bazel/cc.bzl", "BIT_COPTS")
    copts = bits + externals.constant(root, "bazel/cc.bzl", "FLOAT_COPTS")
    optimized = externals.constant(root, "bazel/cc.bzl", "OPTIMIZED_COPTS")
    cuda_bits = externals.constant(root, "bazel/nvcc.bzl", "CUDA_BIT_COPTS")
    common = {"-Wall", "-Wextra", "-Werror", "-fPIC", *copts, *optimized}
    result = Selection(
        target=graph[target].label,
        parts=parts,
        texts={},
        cuda_files=set(),
        cuda="none",
        externals=[],
        copts=optimized + copts,
        bit_copts=bits,
        cuda_copts=cuda_bits + externals.constant(root, "bazel/nvcc.bzl", "CUDA_COPTS"),
        cuda_bit_copts=cuda_bits,
        own_copts={},
        includes=[],
        linkopts=[],
        macros=set(),
    )
    external_labels, outside = set(), set()
    for label, texts in _included(root, closure, taken).items():
        library = closure[label]
        own = [c for c in library.copts if c not in common and not c.startswith("-std=")]
        for path, text in texts.items():
            result.texts[path] = text
            result.macros |= rewrite.macros(text)
            quoted, angled = rewrite.included(text)
            outside |= {h for h in quoted + angled if not h.startswith(rewrite.PREFIX + "/")}
            if label not in plain or path in library.cuda_srcs:
                result.cuda_files.add(path)
            if own and path in library.srcs + library.cuda_srcs:
                result.own_copts[path] = own
        result.includes += [folder for folder in library.includes if folder not in result.includes]
        result.linkopts += [o for o in library.linkopts if o not in result.linkopts]
        external_labels |= {*library.external, *library.cuda_external}
    if not result.texts:
        raise Error(f"{result.target} has no files, and needs nothing that has some")
    result.externals = libraries.needed(root, external_labels, outside)
    if libraries.includes_cuda(outside):
        # Optional where something is compiled without. In a graph that tells nothing of toolkits
        # the .cu files of deps seem to be there without, too.
        host = [path for path in result.sources if path not in result.cuda_files]
        optional = host and not any(path.endswith(".cu") for path in host)
        result.cuda = "optional" if optional else "required"
    return result
