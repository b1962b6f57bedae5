"""What is copied: the files of a target and of all that it depends on.

The build graph decides, and the includes check it: each header of the project that a file includes
has to be among the files.
"""

import ast
import dataclasses
import pathlib

from vendoring import libraries, rewrite

# What may be taken of a kernel instead of the public call: what it is, and the ends of the names of
# its target, of which the first that exists is taken. Where a kernel has no loop for the CPU, its
# formula is all that the CPU runs.
PARTS = {"cpu": ("CPU loop", ["_cpu", "_math"]), "cuda": ("CUDA launcher", ["_cuda"])}

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
    cuda_copts: list  # for CUDA
    own_copts: dict  # {path: [option]}, for C++ files that need others besides
    includes: list  # folders to search besides
    linkopts: list
    macros: set  # names of the project's macros in the code

    @property
    def sources(self):
        """What is compiled, sorted."""
        return sorted(path for path in self.texts if path.endswith((".cc", ".cu")))


def constant(root, path, name):
    """The value of a list or string that a .bzl file assigns at its top."""
    tree = ast.parse(pathlib.Path(root, path).read_text(encoding="utf-8"))
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and statement.targets[0].id == name:
            return ast.literal_eval(statement.value)
    raise Error(f"{path} assigns no {name}")


def labels(graph, target, parts):
    """The labels that are taken for a target and its parts. Raises Error with the reason."""
    library = graph[target]
    if library.testonly:
        raise Error(f"{library.label} is for tests alone (testonly)")
    if not library.public:
        raise Error(f"{library.label} is not public: what it does may change without notice")
    found = []
    for part in parts:
        label = _part(graph, library, part)
        if label is None:
            ends = " or ".join(library.label + end for end in PARTS[part][1])
            raise Error(f"{library.label} has no {PARTS[part][0]}: there is no target {ends}")
        found.append(label)
    if found:
        helpers = [library.label + end for end in _HELPERS]
        found += [helper for helper in helpers if helper in graph]
    return found or [library.label]


def _part(graph, library, part):
    """The label of a part; None where there is none."""
    found = [library.label + end for end in PARTS[part][1] if library.label + end in graph]
    return found[0] if found else None


def parts_of(graph, target):
    """Those of PARTS that the target has."""
    return [part for part in PARTS if _part(graph, graph[target], part)]


def select(root, graph, target, parts):
    """Returns the Selection of a target of the graph, its files read from the tree at `root`."""
    taken = labels(graph, target, parts)
    closure = graph.closure(taken)
    plain = graph.closure([label for label in taken if not graph[label].cuda_only], cuda=False)
    copts = constant(root, "bazel/cc.bzl", "FLOAT_COPTS")
    optimized = constant(root, "bazel/cc.bzl", "OPTIMIZED_COPTS")
    common = {"-Wall", "-Wextra", "-Werror", "-fPIC", *copts, *optimized}
    result = Selection(
        target=graph[target].label,
        parts=parts,
        texts={},
        cuda_files=set(),
        cuda="none",
        externals=[],
        copts=optimized + copts,
        cuda_copts=constant(root, "bazel/nvcc.bzl", "CUDA_COPTS"),
        own_copts={},
        includes=[],
        linkopts=[],
        macros=set(),
    )
    external_labels = set()
    for label, library in closure.items():
        own = [c for c in library.copts if c not in common and not c.startswith("-std=")]
        headers = library.hdrs + library.private_hdrs + library.textual_hdrs
        for path in headers + library.srcs + library.cuda_srcs:
            try:
                text = pathlib.Path(root, path).read_text(encoding="utf-8")
            except OSError as error:
                raise Error(f"{path} of {label} cannot be read: {error.strerror}") from error
            result.texts[path] = text
            result.macros |= rewrite.macros(text)
            if label not in plain:
                result.cuda_files.add(path)
            if own and path in library.srcs:
                result.own_copts[path] = own
        result.includes += [folder for folder in library.includes if folder not in result.includes]
        result.linkopts += [o for o in library.linkopts if o not in result.linkopts]
        external_labels |= {*library.external, *library.cuda_external}
    outside = _check_includes(result)
    result.externals = libraries.needed(external_labels, outside)
    if libraries.includes_cuda(outside):
        # A graph that tells nothing of toolkits has all files in its plain part.
        everything = not plain or any(path.endswith(".cu") for path in result.texts.keys() - result.cuda_files)
        result.cuda = "required" if everything else "optional"
    return result


def _check_includes(selection):
    """Raises Error for a header of the project that is not among the files; returns the others."""
    outside = set()
    for path, text in selection.texts.items():
        quoted, angled = rewrite.included(text)
        for header in quoted:
            inner = header.removeprefix(rewrite.PREFIX + "/")
            if inner != header and inner not in selection.texts:
                raise Error(
                    f'{path} includes "{header}", which no dependency of {selection.target} brings'
                )
        outside |= {h for h in quoted + angled if not h.startswith(rewrite.PREFIX + "/")}
    return outside
