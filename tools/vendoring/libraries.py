"""Libraries of others that vendored code needs, and how CMake finds them."""

import re

import externals

# What every system has; the label of no target.
THREADS = externals.Library(
    name="threads",
    title="threads",
    includes="",
    header="thread",
    link=["pthread"],
    debian="libc6-dev",
    cmake_package="Threads",
    cmake_target="Threads::Threads",
)

_THREAD_HEADERS = r"thread|mutex|shared_mutex|condition_variable|future|pthread\.h"
_CUDA_HEADERS = r"cuda.*\.h|cub/.*|thrust/.*|nvtx3/.*|cublas_v2\.h|nccl\.h"


def title(library):
    """What PROVENANCE calls it."""
    return library.title + " (optional)" * bool(library.define)


def needed(root, external_labels, included):
    """[(Library, its CMake targets)] of those in the graph whose headers code includes.

    One that CMake has no package for has no targets: it is found by header, and library if there
    is one to link.
    """
    table = externals.Table(root)
    labels = set(external_labels)
    for library in table.libraries.values():
        if library.label in labels:
            labels.update("@system//" + dep for dep in library.deps)
    found = {}
    for header in sorted(included):
        library = table.owner(header)
        if re.fullmatch(_THREAD_HEADERS, header):
            library, target = THREADS, THREADS.cmake_target
        elif library is not None and library.label in labels:
            target = table.cmake_target(header)
        else:
            continue
        # What has one package is one library: Abseil's flags are Abseil.
        key = library.cmake_package or library.name
        found.setdefault(key, (library, set()))[1].update({target} - {""})
    ordered = sorted(found.values(), key=lambda pair: pair[0].title.lower())
    return [(library, sorted(targets)) for library, targets in ordered]


def includes_cuda(included):
    """Whether one of the headers is CUDA's."""
    return any(re.fullmatch(_CUDA_HEADERS, header) for header in included)
