"""@system: the libraries that come with the machine's packages, or from the module registry.

Adding one: a line in _LIBRARIES, and its Debian package in tools/setup. The compiler that will
compile the code is asked whether it finds the header and the library. A missing library becomes a
target that is compatible with nothing, named after the advice: `//...` skips its users, and asking
for one of them by name shows the advice. One with a `define` is optional: missing, it is empty, and
its users lack the define. One with a `module` may come from that module of MODULE.bazel instead:
then its target stands for that module's targets, and nothing of it is looked for on the machine.
"""

# Every header of Abseil that the code includes, and the target that holds it. tools/lint compares.
_ABSL_TARGETS = {
    "absl/algorithm/container.h": "absl/algorithm:container",
    "absl/base/thread_annotations.h": "absl/base:core_headers",
    "absl/cleanup/cleanup.h": "absl/cleanup",
    "absl/container/flat_hash_map.h": "absl/container:flat_hash_map",
    "absl/container/inlined_vector.h": "absl/container:inlined_vector",
    "absl/container/node_hash_set.h": "absl/container:node_hash_set",
    "absl/functional/function_ref.h": "absl/functional:function_ref",
    "absl/memory/memory.h": "absl/memory",
    "absl/status/status.h": "absl/status",
    "absl/status/statusor.h": "absl/status:statusor",
    "absl/strings/ascii.h": "absl/strings",
    "absl/strings/escaping.h": "absl/strings",
    "absl/strings/match.h": "absl/strings",
    "absl/strings/numbers.h": "absl/strings",
    "absl/strings/str_cat.h": "absl/strings",
    "absl/strings/str_format.h": "absl/strings:str_format",
    "absl/strings/str_join.h": "absl/strings",
    "absl/strings/str_replace.h": "absl/strings",
    "absl/strings/str_split.h": "absl/strings",
    "absl/strings/string_view.h": "absl/strings:string_view",
    "absl/strings/strip.h": "absl/strings",
    "absl/time/clock.h": "absl/time",
    "absl/time/time.h": "absl/time",
    "absl/types/span.h": "absl/types:span",
}

# Of programs alone: from the registry they would double what a library has to compile.
_ABSL_FLAGS_TARGETS = {
    "absl/flags/flag.h": "absl/flags:flag",
    "absl/flags/parse.h": "absl/flags:parse",
    "absl/flags/usage.h": "absl/flags:usage",
    "absl/flags/usage_config.h": "absl/flags:usage_config",
}

def _values(dictionary):
    return sorted({value: True for value in dictionary.values()})

_LIBRARIES = {
    # name: header, libraries to link (a star means all of that name), Debian package
    "absl": struct(
        header = "absl/status/status.h",
        libs = ["absl_*"],
        package = "libabsl-dev",
        module = "abseil-cpp",
        targets = _values(_ABSL_TARGETS),
    ),
    "absl_flags": struct(
        header = "absl/flags/flag.h",
        libs = [],
        deps = [":absl"],
        package = "libabsl-dev",
        module = "abseil-cpp",
        targets = _values(_ABSL_FLAGS_TARGETS),
    ),
    "benchmark": struct(
        header = "benchmark/benchmark.h",
        libs = ["benchmark"],
        package = "libbenchmark-dev",
    ),
    "benchmark_main": struct(
        header = "benchmark/benchmark.h",
        libs = ["benchmark_main", "benchmark"],
        package = "libbenchmark-dev",
    ),
    "gloo": struct(
        header = "gloo/config.h",
        libs = ["gloo"],
        package = "libgloo-dev",
    ),
    "gmock": struct(
        header = "gmock/gmock.h",
        libs = ["gmock", "gtest"],
        package = "libgmock-dev",
    ),
    "gtest": struct(
        header = "gtest/gtest.h",
        libs = ["gtest"],
        package = "libgtest-dev",
    ),
    "gtest_main": struct(
        header = "gtest/gtest.h",
        libs = ["gtest_main", "gtest"],
        package = "libgtest-dev",
    ),
    "hwy": struct(
        header = "hwy/highway.h",
        libs = ["hwy"],
        package = "libhwy-dev",
        module = "highway",
        targets = [":hwy"],
    ),
    "json": struct(
        header = "nlohmann/json.hpp",
        libs = [],
        package = "nlohmann-json3-dev",
        module = "nlohmann_json",
        targets = [":json"],
    ),
    "mpi": struct(
        header = "mpi/mpi.h",
        libs = ["mpi"],
        package = "libopenmpi-dev",
        define = "BRIGADE_HAS_MPI",
    ),
    "openblas": struct(
        header = "cblas.h",
        libs = ["openblas"],
        package = "libopenblas-dev",
    ),
    "sodium": struct(
        header = "sodium.h",
        libs = ["sodium"],
        package = "libsodium-dev",
    ),
}

# The modules that libraries may come from; those of bazel/extensions.bzl.
MODULES = sorted({
    library.module: True
    for library in _LIBRARIES.values()
    if hasattr(library, "module")
})

_FROM_REGISTRY = """
cc_library(
    name = "{name}",
    deps = {deps},
)
"""

_FOUND = """
cc_library(
    name = "{name}",
    defines = {defines},
    linkopts = {linkopts},
    deps = {deps},
)
"""

_MISSING = """
cc_library(
    name = "{name}",
    target_compatible_with = [":{constraint}"],
)
"""

_CONSTRAINT = """
constraint_value(
    name = "{constraint}",
    constraint_setting = ":installed",
)
"""

_HEAD = """# Generated by bazel/system_libraries.bzl.
load("@rules_cc//cc:cc_library.bzl", "cc_library")

package(default_visibility = ["//visibility:public"])

constraint_setting(name = "installed")
"""

def _compiler(ctx):
    """The compiler that Bazel's own C++ toolchain will pick."""
    name = ctx.os.environ.get("CC", "") or "gcc"
    path = name if name.startswith("/") else ctx.which(name)
    if not path:
        fail(
            "no C++ compiler: '%s' is not in PATH; " % name +
            "run tools/setup, or: apt-get install g++",
        )
    return path

def _headers_found(ctx, compiler):
    """Asks the preprocessor for all headers at once; returns the names of those libraries."""
    probe = "".join([
        "#if __has_include(<%s>)\nbrigade_found:%s\n#endif\n" % (library.header, name)
        for name, library in _LIBRARIES.items()
    ])
    ctx.file("probe.cc", probe)
    result = ctx.execute([compiler, "-E", "-P", "-x", "c++", "probe.cc"])
    if result.return_code != 0:
        fail("%s cannot preprocess C++: %s\nrun tools/setup, or: apt-get install g++" %
             (compiler, result.stderr))
    return [
        line[len("brigade_found:"):].strip()
        for line in result.stdout.splitlines()
        if line.startswith("brigade_found:")
    ]

def _library_file(ctx, compiler, lib):
    for suffix in [".so", ".a"]:
        out = ctx.execute([compiler, "-print-file-name=lib%s%s" % (lib, suffix)]).stdout.strip()
        if out.startswith("/"):
            return out
    return None

def _linkopts(ctx, compiler, libs):
    """Link flags for `libs`, or None when one of them is missing."""
    flags = []
    for lib in libs:
        if not lib.endswith("_*"):
            if not _library_file(ctx, compiler, lib):
                return None
            flags.append("-l" + lib)
            continue

        # All libraries of one project, of which the linker keeps those that are used.
        first = _library_file(ctx, compiler, lib[:-1] + "base")
        if not first:
            return None
        names = sorted([
            entry.basename[len("lib"):-len(".so")]
            for entry in ctx.path(first).dirname.readdir()
            if entry.basename.startswith("lib" + lib[:-1]) and entry.basename.endswith(".so")
        ])
        flags += ["-Wl,--push-state,--as-needed"] + ["-l" + n for n in names] + ["-Wl,--pop-state"]
    return flags

def _system_libraries_impl(ctx):
    compiler = _compiler(ctx)
    with_header = _headers_found(ctx, compiler)
    build = _HEAD
    constraints = {}
    for name, library in _LIBRARIES.items():
        module = getattr(library, "module", None)
        if module in ctx.attr.from_registry:
            build += _FROM_REGISTRY.format(
                name = name,
                deps = repr(["@%s//%s" % (module, target) for target in library.targets]),
            )
            continue
        linkopts = _linkopts(ctx, compiler, library.libs) if name in with_header else None
        define = getattr(library, "define", None)
        if linkopts == None and define:
            build += _FOUND.format(name = name, defines = [], linkopts = [], deps = [])
        elif linkopts == None:
            constraint = "not_installed__apt_install_" + library.package
            constraints[constraint] = True
            build += _MISSING.format(name = name, constraint = constraint)
        else:
            build += _FOUND.format(
                name = name,
                defines = [define] if define else [],
                linkopts = repr(linkopts + ["-lpthread"]),
                deps = repr(getattr(library, "deps", [])),
            )
    for constraint in constraints:
        build += _CONSTRAINT.format(constraint = constraint)
    ctx.file("WORKSPACE", "workspace(name = \"system\")\n")
    ctx.file("BUILD.bazel", build)

system_libraries = repository_rule(
    implementation = _system_libraries_impl,
    # Of MODULES, those whose libraries are not the machine's.
    attrs = {"from_registry": attr.string_list()},
    environ = ["CC"],
    # Asked again after `bazel shutdown`, so that a new package is seen.
    local = True,
)
