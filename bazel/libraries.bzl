"""The libraries of others: the one table that Bazel and the tools read.

Bazel finds them by it (system_libraries.bzl); tools/externals.py reads it for tools/lint,
tools/vendor, tools/generate_cmake (and so for CMake) and tools/bazel7_chroot. Hence constants
alone. Adding a library: an entry in LIBRARIES, and its Debian package in tools/setup.
"""

# Every header of Abseil that the code includes: the target that holds it in Abseil's Bazel module,
# and the one of its CMake package. tools/lint says which are missing.
ABSL_HEADERS = {
    "absl/algorithm/container.h": ("absl/algorithm:container", "absl::algorithm_container"),
    "absl/base/thread_annotations.h": ("absl/base:core_headers", "absl::core_headers"),
    "absl/cleanup/cleanup.h": ("absl/cleanup", "absl::cleanup"),
    "absl/container/flat_hash_map.h": ("absl/container:flat_hash_map", "absl::flat_hash_map"),
    "absl/container/inlined_vector.h": ("absl/container:inlined_vector", "absl::inlined_vector"),
    "absl/container/node_hash_set.h": ("absl/container:node_hash_set", "absl::node_hash_set"),
    "absl/flags/commandlineflag.h": ("absl/flags:commandlineflag", "absl::flags_commandlineflag"),
    "absl/flags/declare.h": ("absl/flags:flag", "absl::flags"),
    "absl/flags/flag.h": ("absl/flags:flag", "absl::flags"),
    "absl/flags/parse.h": ("absl/flags:parse", "absl::flags_parse"),
    "absl/flags/reflection.h": ("absl/flags:reflection", "absl::flags_reflection"),
    "absl/flags/usage.h": ("absl/flags:usage", "absl::flags_usage"),
    "absl/functional/function_ref.h": ("absl/functional:function_ref", "absl::function_ref"),
    "absl/memory/memory.h": ("absl/memory", "absl::memory"),
    "absl/status/status.h": ("absl/status", "absl::status"),
    "absl/status/statusor.h": ("absl/status:statusor", "absl::statusor"),
    "absl/strings/ascii.h": ("absl/strings", "absl::strings"),
    "absl/strings/escaping.h": ("absl/strings", "absl::strings"),
    "absl/strings/match.h": ("absl/strings", "absl::strings"),
    "absl/strings/numbers.h": ("absl/strings", "absl::strings"),
    "absl/strings/str_cat.h": ("absl/strings", "absl::strings"),
    "absl/strings/str_format.h": ("absl/strings:str_format", "absl::str_format"),
    "absl/strings/str_join.h": ("absl/strings", "absl::strings"),
    "absl/strings/str_replace.h": ("absl/strings", "absl::strings"),
    "absl/strings/str_split.h": ("absl/strings", "absl::strings"),
    # The older CMake packages have no target of its own for it.
    "absl/strings/string_view.h": ("absl/strings:string_view", "absl::strings"),
    "absl/strings/strip.h": ("absl/strings", "absl::strings"),
    "absl/time/clock.h": ("absl/time", "absl::time"),
    "absl/time/time.h": ("absl/time", "absl::time"),
    "absl/types/span.h": ("absl/types:span", "absl::span"),
}

# By the name of the target in @system:
#
#   title           what people call it
#   includes        how an #include of it begins; the longest of all counts
#   header          the one by which it is found
#   link            libraries to link; a star means all of that name
#   deps            targets of @system that it needs
#   debian          Debian's package
#   define          it is optional: the macro that is there where the library is
#   module          the module of MODULE.bazel that it may come from instead, and of which
#   module_targets  these targets (Abseil's are in ABSL_HEADERS)
#   cmake_package   its own package for CMake, with the words that find_package takes besides, and
#   cmake_target    the target to link, whose presence says that the package is there; a library
#                   without them is found by header and library
#   pkg_config      what pkg-config calls it, or link flags (Abseil's are in ABSL_HEADERS)
LIBRARIES = {
    "absl": {
        "title": "Abseil",
        "includes": "absl/",
        "header": "absl/status/status.h",
        "link": ["absl_*"],
        "debian": "libabsl-dev",
        "module": "abseil-cpp",
        "cmake_package": "absl",
        "cmake_target": "absl::status",
    },
    # For programs alone: from the registry it would double what a library has to compile.
    "absl_flags": {
        "title": "Abseil",
        "includes": "absl/flags/",
        "header": "absl/flags/flag.h",
        "link": [],
        "deps": [":absl"],
        "debian": "libabsl-dev",
        "module": "abseil-cpp",
        "cmake_package": "absl",
        "cmake_target": "absl::flags",
    },
    "benchmark": {
        "title": "Google Benchmark",
        "includes": "benchmark/",
        "header": "benchmark/benchmark.h",
        "link": ["benchmark"],
        "debian": "libbenchmark-dev",
    },
    "benchmark_main": {
        "title": "Google Benchmark",
        "includes": "benchmark/",
        "header": "benchmark/benchmark.h",
        "link": ["benchmark_main", "benchmark"],
        "debian": "libbenchmark-dev",
    },
    "gloo": {
        "title": "Gloo",
        "includes": "gloo/",
        "header": "gloo/config.h",
        "link": ["gloo"],
        "debian": "libgloo-dev",
        "pkg_config": "-lgloo",
    },
    "gmock": {
        "title": "GoogleMock",
        "includes": "gmock/",
        "header": "gmock/gmock.h",
        "link": ["gmock", "gtest"],
        "debian": "libgmock-dev",
    },
    "gtest": {
        "title": "GoogleTest",
        "includes": "gtest/",
        "header": "gtest/gtest.h",
        "link": ["gtest"],
        "debian": "libgtest-dev",
    },
    "gtest_main": {
        "title": "GoogleTest",
        "includes": "gtest/",
        "header": "gtest/gtest.h",
        "link": ["gtest_main", "gtest"],
        "debian": "libgtest-dev",
    },
    "hwy": {
        "title": "Highway",
        "includes": "hwy/",
        "header": "hwy/highway.h",
        "link": ["hwy"],
        "debian": "libhwy-dev",
        "module": "highway",
        "module_targets": [":hwy"],
        "cmake_package": "hwy",
        "cmake_target": "hwy::hwy",
        "pkg_config": "libhwy",
    },
    "json": {
        "title": "JSON for Modern C++",
        "includes": "nlohmann/",
        "header": "nlohmann/json.hpp",
        "link": [],
        "debian": "nlohmann-json3-dev",
        "module": "nlohmann_json",
        "module_targets": [":json"],
        "cmake_package": "nlohmann_json",
        "cmake_target": "nlohmann_json::nlohmann_json",
        "pkg_config": "nlohmann_json",
    },
    "mpi": {
        "title": "MPI",
        "includes": "mpi",
        "header": "mpi/mpi.h",
        "link": ["mpi"],
        "debian": "libopenmpi-dev",
        "define": "BRIGADE_HAS_MPI",
        "cmake_package": "MPI COMPONENTS CXX",
        "cmake_target": "MPI::MPI_CXX",
    },
    # Loaded as the program runs, by the name that its version has: no program asks for it.
    "onednn": {
        "title": "oneDNN",
        "includes": "oneapi/dnnl/",
        "header": "oneapi/dnnl/dnnl.h",
        "link": [],
        "debian": "libdnnl-dev",
        "define": "BRIGADE_HAS_ONEDNN",
    },
    "openblas": {
        "title": "OpenBLAS",
        "includes": "cblas.h",
        "header": "cblas.h",
        "link": ["openblas"],
        "debian": "libopenblas-dev",
        "pkg_config": "openblas",
    },
    "sodium": {
        "title": "libsodium",
        "includes": "sodium.h",
        "header": "sodium.h",
        "link": ["sodium"],
        "debian": "libsodium-dev",
        "pkg_config": "libsodium",
    },
}
