"""Libraries of others that vendored code needs, and how CMake finds them."""

import dataclasses
import re


@dataclasses.dataclass(frozen=True)
class External:
    """A library outside of the project."""

    label: str  # in the build graph
    title: str
    headers: str  # a pattern of the paths that code includes it by
    find: str = ""  # CMake
    targets: tuple = ()  # of CMake, to link; Abseil's follow from the headers
    define: str = ""  # for an optional one: the macro that is there where the library is


# The label of what every system has.
SYSTEM = ""

EXTERNALS = (
    External(
        label="@system//:absl",
        title="Abseil",
        headers=r"absl/.*",
        find="if(NOT TARGET absl::base)\n  find_package(absl REQUIRED)\nendif()",
    ),
    External(
        label="@system//:gloo",
        title="Gloo",
        headers=r"gloo/.*",
        find="find_package(Gloo REQUIRED)",
        targets=("gloo",),
    ),
    External(
        label="@system//:hwy",
        title="Highway",
        headers=r"hwy/.*",
        find="if(NOT TARGET hwy::hwy)\n  find_package(hwy REQUIRED)\nendif()",
        targets=("hwy::hwy",),
    ),
    External(
        label="@system//:json",
        title="JSON for Modern C++",
        headers=r"nlohmann/.*",
        find="if(NOT TARGET nlohmann_json::nlohmann_json)\n"
        "  find_package(nlohmann_json REQUIRED)\nendif()",
        targets=("nlohmann_json::nlohmann_json",),
    ),
    External(
        label="@system//:mpi",
        title="MPI (without it, what needs it says so when it runs)",
        headers=r"mpi(/mpi)?\.h",
        find="find_package(MPI COMPONENTS CXX)",
        targets=("MPI::MPI_CXX",),
        define="HAS_MPI",
    ),
    External(
        label="@system//:openblas",
        title="OpenBLAS",
        headers=r"cblas\.h",
        find="find_package(PkgConfig REQUIRED)\n"
        "pkg_check_modules(openblas REQUIRED IMPORTED_TARGET openblas)",
        targets=("PkgConfig::openblas",),
    ),
    External(
        label=SYSTEM,
        title="threads",
        headers=r"thread|mutex|shared_mutex|condition_variable|future|pthread\.h",
        find="find_package(Threads REQUIRED)",
        targets=("Threads::Threads",),
    ),
    External(
        label="@system//:sodium",
        title="libsodium",
        headers=r"sodium\.h",
        find="find_package(PkgConfig REQUIRED)\n"
        "pkg_check_modules(sodium REQUIRED IMPORTED_TARGET libsodium)",
        targets=("PkgConfig::sodium",),
    ),
)

_CUDA_HEADERS = r"cuda.*\.h|cub/.*|thrust/.*|nvtx3/.*|cublas_v2\.h|nccl\.h"

# Where the target has another name than the header.
_ABSL_TARGETS = {
    "algorithm/container": "algorithm_container",
    "base/thread_annotations": "core_headers",
    "flags/flag": "flags",
    "flags/parse": "flags_parse",
    "flags/usage": "flags_usage",
    "strings/str_format": "str_format",
}


def absl_target(header):
    """absl::status of absl/status/status.h."""
    path = header[len("absl/") :].removesuffix(".h")
    folder, _, name = path.partition("/")
    return "absl::" + _ABSL_TARGETS.get(path, folder if folder in ("strings", "time") else name)


def needed(external_labels, included):
    """[(External, its CMake targets)] of those in the graph whose headers code includes."""
    result = []
    for external in EXTERNALS:
        headers = [h for h in included if re.fullmatch(external.headers, h)]
        labels = (external.label, external.label + "_")  # absl, absl_flags
        known = any(label == labels[0] or label.startswith(labels[1]) for label in external_labels)
        if not headers or not (external.label == SYSTEM or known):
            continue
        targets = external.targets or sorted({absl_target(h) for h in headers})
        result.append((external, list(targets)))
    return result


def includes_cuda(included):
    """Whether one of the headers is CUDA's."""
    return any(re.fullmatch(_CUDA_HEADERS, header) for header in included)
