"""C++ targets: the native rules with Brigade's flags, include prefix and libraries.

All of them take the attributes of the native rule besides those named here.
"""

load("@local_cuda//:defs.bzl", "CUDA_AVAILABLE")
load("@rules_cc//cc:cc_binary.bzl", "cc_binary")
load("@rules_cc//cc:cc_library.bzl", "cc_library")
load("@rules_cc//cc:cc_test.bzl", "cc_test")
load("@rules_shell//shell:sh_test.bzl", "sh_test")
load(":precompiled_header.bzl", "precompiled_header")

# Same bits everywhere: no contraction of a * b + c into an fma that the code did not write. Those
# who compile formulas in headers need it as well.
BIT_COPTS = [
    "-ffp-contract=off",
]

# These remove effects that nobody reads here (errno, floating-point traps) and that would keep
# loops from being vectorised; they change no result.
FLOAT_COPTS = [
    "-fno-math-errno",
    "-fno-trapping-math",
]

# Vectorises the loops; g++ 12 does it for few of them at -O2.
OPTIMIZED_COPTS = ["-O3"]

_COPTS = ["-std=c++20"] + select({
    str(Label("//bazel:warnings_are_errors")): ["-Wall", "-Wextra", "-Werror"],
    "//conditions:default": [],
}) + BIT_COPTS + FLOAT_COPTS + select({
    str(Label("//bazel:optimized")): OPTIMIZED_COPTS,
    "//conditions:default": [],
})

# Code that is only run to test other code: compiling it takes longer than running it, most of all
# GoogleTest's assertions. -O0 halves that, -O1 is for the few tests that compute for seconds. The
# undefined behaviour that is not looked for here is what costs most to compile in an assertion; a
# library's own files are checked for all of it.
_TEST_COPTS = [
    "-U_FORTIFY_SOURCE",
    "-fno-sanitize=vptr,null,alignment,object-size",
]

# The same value in every target: a header may test it without breaking the one-definition rule.
BRIGADE_CUDA_DEFINE = "BRIGADE_CUDA=%d" % int(CUDA_AVAILABLE)

_HEADER_EXTENSIONS = ["h", "hpp", "cuh", "inc", "inl"]

def is_header(label):
    return label.rpartition(".")[2] in _HEADER_EXTENSIONS

def include_prefix():
    """Attributes that make a package's headers available as brigade/<package>/<header>."""
    package = native.package_name()
    return {
        "include_prefix": "brigade/" + package if package else "brigade",
        "strip_include_prefix": "/" + package,
    }

def split_headers(srcs):
    """Returns (headers, others)."""
    return [s for s in srcs if is_header(s)], [s for s in srcs if not is_header(s)]

def common(kwargs):
    """The attributes of the user that helper targets share."""
    names = ["tags", "target_compatible_with", "testonly", "features", "restricted_to"]
    return {name: kwargs[name] for name in names if name in kwargs}

def private_headers(name, headers, deps, kwargs):
    """A prefix is only given to `hdrs`: headers in srcs become hdrs of a private library.

    Returns the deps to add.
    """
    if not headers:
        return []
    attrs = common(kwargs)
    attrs.update(include_prefix())
    cc_library(
        name = name + "_private_hdrs",
        hdrs = headers,
        visibility = ["//visibility:private"],
        deps = deps,
        **attrs
    )
    return [":" + name + "_private_hdrs"]

def _flags(kwargs, copts = []):
    kwargs["copts"] = _COPTS + copts + kwargs.pop("copts", [])
    kwargs["local_defines"] = kwargs.pop("local_defines", []) + [BRIGADE_CUDA_DEFINE]

def _test_copts(optimize):
    return _TEST_COPTS + ["-O1" if optimize else "-O0"]

# Named after their flags: a compiler takes no precompiled header that others made.
_PRECOMPILED = {True: "precompiled_O1", False: "precompiled_O0"}
_INCLUDE_PRECOMPILED = ["-include", "precompiled.h"]

def precompiled_test_headers(header):
    """What the files of tests get compiled; their macros know the names.

    Args:
      header: precompiled.h.
    """
    for optimize, name in _PRECOMPILED.items():
        precompiled_header(
            name = name,
            testonly = True,
            copts = _COPTS + _test_copts(optimize),
            header = header,
            visibility = ["//visibility:public"],
        )

def _precompiled(optimize):
    return str(Label("//tests/testing:" + _PRECOMPILED[optimize]))

def _with_cuda_deps(deps, cuda_deps):
    return deps + (cuda_deps if CUDA_AVAILABLE else [])

def _library(name, hdrs, srcs, deps, cuda_deps, copts, kwargs):
    deps = _with_cuda_deps(deps, cuda_deps)
    headers, sources = split_headers(srcs)
    deps = deps + private_headers(name, headers, deps, kwargs)
    _flags(kwargs, copts)
    kwargs.setdefault("linkstatic", True)  # one compilation of each file, not two
    if hdrs:
        kwargs.update(include_prefix())
    cc_library(name = name, hdrs = hdrs, srcs = sources, deps = deps, **kwargs)

def brigade_cc_library(name, hdrs = [], srcs = [], deps = [], cuda_deps = [], **kwargs):
    """cc_library whose headers are included as "brigade/<package>/<header>".

    Headers in srcs are private to the target.

    Args:
      name: as in cc_library.
      hdrs: as in cc_library.
      srcs: as in cc_library.
      deps: as in cc_library.
      cuda_deps: deps that exist only when a CUDA toolkit was found, which the code sees as
        BRIGADE_CUDA, always defined, 0 or 1.
      **kwargs: as in cc_library.
    """
    _library(name, hdrs, srcs, deps, cuda_deps, [], kwargs)

def brigade_cc_test_library(
        name,
        hdrs = [],
        srcs = [],
        deps = [],
        cuda_deps = [],
        optimize = False,
        **kwargs):
    """A brigade_cc_library that tests share: testonly, and compiled as they are.

    Args:
      name: as in cc_library.
      hdrs: as in cc_library.
      srcs: as in cc_library.
      deps: as in cc_library.
      cuda_deps: as in brigade_cc_library.
      optimize: as in brigade_cc_test.
      **kwargs: as in cc_library.
    """
    kwargs["testonly"] = True
    copts = _test_copts(optimize)
    if split_headers(srcs)[1]:
        deps = deps + [_precompiled(optimize)]
        copts = copts + _INCLUDE_PRECOMPILED
    _library(name, hdrs, srcs, deps, cuda_deps, copts, kwargs)

def brigade_cc_binary(
        name,
        srcs = [],
        deps = [],
        cuda_deps = [],
        help = True,
        help_tags = [],
        **kwargs):
    """cc_binary, and the test <name>_help_test that --help prints help and does nothing else.

    Args:
      name: as in cc_binary.
      srcs: as in cc_binary.
      deps: as in cc_binary.
      cuda_deps: as in brigade_cc_library.
      help: False for a program of a few lines without flags, and for what nobody starts by hand: a
        library with another name, a part of a test.
      help_tags: that test's tags: "gpu" of a program that is only built with the emulator.
      **kwargs: as in cc_binary.
    """
    deps = _with_cuda_deps(deps, cuda_deps)
    headers, sources = split_headers(srcs)
    deps = deps + private_headers(name, headers, deps, kwargs)
    _flags(kwargs)
    cc_binary(name = name, srcs = sources, deps = deps, **kwargs)
    if help and not kwargs.get("linkshared", False):
        sh_test(
            name = name + "_help_test",
            size = "small",
            srcs = [str(Label("//bazel:help_test.sh"))],
            args = ["$(rootpath :%s)" % name],
            data = [":" + name],
            tags = help_tags,
            target_compatible_with = kwargs.get("target_compatible_with", []),
        )

def brigade_cc_test(
        name,
        srcs,
        deps = [],
        cuda_deps = [],
        size = "small",
        main = True,
        optimize = False,
        **kwargs):
    """cc_test with GoogleTest and GoogleMock.

    Args:
      name: as in cc_test.
      srcs: as in cc_test.
      deps: as in cc_test.
      cuda_deps: as in brigade_cc_library.
      size: as in cc_test.
      main: whether to take the main() of GoogleTest.
      optimize: for a test whose own code, or what it instantiates, computes for seconds.
      **kwargs: as in cc_test.
    """
    kwargs["testonly"] = True
    deps = _with_cuda_deps(deps, cuda_deps) + ["@system//:gmock", _precompiled(optimize)]
    headers, sources = split_headers(srcs)
    deps = deps + private_headers(name, headers, deps, kwargs)
    if main:
        deps = deps + ["@system//:gtest_main"]
    _flags(kwargs, _test_copts(optimize) + _INCLUDE_PRECOMPILED)
    kwargs.setdefault("linkstatic", True)
    cc_test(name = name, srcs = sources, deps = deps, size = size, **kwargs)

def brigade_benchmark(
        name,
        srcs,
        deps = [],
        cuda_deps = [],
        main = True,
        smoke_args = None,
        smoke_size = "small",
        **kwargs):
    """A Google Benchmark binary.

    Args:
      name: of the binary.
      srcs: its sources.
      deps: its deps, besides Google Benchmark.
      cuda_deps: as in brigade_cc_library.
      main: whether to take the main() of Google Benchmark.
      smoke_args: when given, the test <name>_smoke_test runs the binary with these arguments,
        typically a filter for a tiny size, and fails when it reports an error or ran nothing.
      smoke_size: size of that test.
      **kwargs: as in cc_binary.
    """
    kwargs.setdefault("testonly", True)
    benchmark = "@system//:benchmark_main" if main else "@system//:benchmark"
    brigade_cc_binary(
        name = name,
        srcs = srcs,
        deps = deps + [benchmark],
        cuda_deps = cuda_deps,
        **kwargs
    )
    if smoke_args != None:
        sh_test(
            name = name + "_smoke_test",
            size = smoke_size,
            srcs = [str(Label("//bazel:smoke_test.sh"))],
            args = ["$(rootpath :%s)" % name] + smoke_args,
            data = [":" + name],
            **{k: v for k, v in common(kwargs).items() if k != "testonly"}
        )
