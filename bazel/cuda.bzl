"""CUDA targets: libraries, and tests and benchmarks that need a GPU."""

load("@local_cuda//:defs.bzl", "REQUIRES_CUDA")
load(
    "//bazel:cc.bzl",
    "BRIGADE_CUDA_DEFINE",
    "brigade_benchmark",
    "brigade_cc_library",
    "brigade_cc_test",
    "common",
    "private_headers",
    "split_headers",
)
load("//bazel:nvcc.bzl", "nvcc_compile")

_CUDART = str(Label("//bazel:cudart"))
_EMULATOR = str(Label("//emulator/runtime"))

# What dlopen finds by the names of CUDA's libraries, where the device is emulated.
_EMULATED_LIBRARIES = [
    str(Label("//emulator/cublas")),
    str(Label("//emulator/nccl")),
]

def _require_cuda(kwargs):
    given = kwargs.get("target_compatible_with", [])
    kwargs["target_compatible_with"] = given + [c for c in REQUIRES_CUDA if c not in given]

def cuda_library(
        name,
        srcs = [],
        hdrs = [],
        deps = [],
        copts = [],
        emulated = False,
        emulated_arch = "",
        **kwargs):
    """A library with CUDA sources, linked with the CUDA runtime, //bazel:cudart.

    Without a toolkit the target and all that depends on it are incompatible. Besides `name`:
      <name>.ptx        the PTX of the highest architecture, one file for each .cu
      <name>.resources  what ptxas reports (registers, spills, shared memory), one for each .cu
    Both are files _nvcc/<name>/<stem>.ptx and .resources.txt of the package, for `data` of tests.

    Args:
      name: of the library.
      srcs: .cu files for nvcc, .cc files for the host compiler, and private headers.
      hdrs: public headers, included as "brigade/<package>/<header>".
      deps: as in cc_library.
      copts: flags for nvcc; the host compiler's files get those of brigade_cc_library.
      emulated: whether to link the emulator, //emulator/runtime, whatever //bazel:cudart is.
      emulated_arch: to compile for where the device is emulated, which does not know all that CUB
        does on newer ones; empty: the last of //bazel:cuda_archs.
      **kwargs: as in cc_library.
    """
    _require_cuda(kwargs)
    attrs = common(kwargs)
    local_defines = kwargs.pop("local_defines", [])
    headers, sources = split_headers(srcs)
    cu = [s for s in sources if s.endswith(".cu")]
    host = [s for s in sources if not s.endswith(".cu")]

    brigade_cc_library(
        name = name + "_hdrs",
        hdrs = hdrs,
        deps = deps + ["@local_cuda//:headers"],
        visibility = ["//visibility:private"],
        **attrs
    )
    compile_deps = [":" + name + "_hdrs"]
    compile_deps = compile_deps + private_headers(name, headers, compile_deps, kwargs)
    objects = []
    if cu:
        nvcc_compile(
            name = name + "_cu",
            srcs = cu,
            arch = select({
                str(Label("//bazel:emulated")): emulated_arch,
                "//conditions:default": "",
            }),
            directory = "_nvcc/" + name,
            emulated = emulated or select({
                str(Label("//bazel:emulated")): True,
                "//conditions:default": False,
            }),
            copts = copts,
            local_defines = local_defines + [BRIGADE_CUDA_DEFINE],
            visibility = ["//visibility:private"],
            deps = compile_deps,
            **attrs
        )
        objects = [":" + name + "_cu"]
    for group in ["ptx", "resources"]:
        native.filegroup(
            name = name + "." + group,
            srcs = objects,
            output_group = group,
            visibility = kwargs.get("visibility"),
            tags = kwargs.get("tags"),
            testonly = kwargs.get("testonly"),
        )
    brigade_cc_library(
        name = name,
        srcs = host + objects,
        deps = compile_deps + [_EMULATOR if emulated else _CUDART],
        local_defines = local_defines,
        **kwargs
    )

def _gpu(name, srcs, deps, framework, emulated_arch, kwargs):
    """Adds the tag and the need for a toolkit; compiles .cu files. Returns (srcs, deps)."""
    _require_cuda(kwargs)
    kwargs["tags"] = kwargs.get("tags", []) + ["gpu"]
    libraries = select({
        str(Label("//bazel:emulated")): _EMULATED_LIBRARIES,
        "//conditions:default": [],
    })
    cu = [s for s in srcs if s.endswith(".cu")]
    if not cu:
        return srcs, deps + libraries
    headers, _ = split_headers(srcs)
    cuda_library(
        name = name + "_cuda",
        testonly = True,
        srcs = cu + headers,
        alwayslink = True,
        emulated_arch = emulated_arch,
        target_compatible_with = kwargs["target_compatible_with"],
        visibility = ["//visibility:private"],
        deps = deps + [framework],
    )
    return [s for s in srcs if not s.endswith(".cu")], deps + [":" + name + "_cuda"] + libraries

def gpu_test(name, srcs, deps = [], size = "small", emulated_arch = "", **kwargs):
    """brigade_cc_test that needs a GPU: built wherever there is a toolkit, run by --config=gpu.

    srcs may hold .cu files; emulated_arch is that of cuda_library.
    """
    srcs, deps = _gpu(name, srcs, deps, "@system//:gmock", emulated_arch, kwargs)
    brigade_cc_test(name = name, srcs = srcs, deps = deps, size = size, **kwargs)

def emulated_test(name, srcs, deps = [], size = "small", arch = "", **kwargs):
    """brigade_cc_test of .cu files that runs on the emulator in every configuration.

    Args:
      name: of the test.
      srcs: .cu files.
      deps: as in cc_test.
      size: as in cc_test.
      arch: to compile for; empty: the last of //bazel:cuda_archs.
      **kwargs: as in cc_test.
    """
    _require_cuda(kwargs)
    nvcc_compile(
        name = name + "_cu",
        testonly = True,
        srcs = srcs,
        arch = arch,
        directory = "_nvcc/" + name,
        emulated = True,
        target_compatible_with = kwargs["target_compatible_with"],
        deps = deps + ["@local_cuda//:headers", "@system//:gmock"],
    )
    brigade_cc_library(
        name = name + "_kernels",
        testonly = True,
        srcs = [":" + name + "_cu"],
        alwayslink = True,
        target_compatible_with = kwargs["target_compatible_with"],
        deps = deps + [str(Label("//emulator/runtime")), "@system//:gmock"],
    )
    brigade_cc_test(name = name, srcs = [], deps = [":" + name + "_kernels"], size = size, **kwargs)

def gpu_benchmark(name, srcs, deps = [], **kwargs):
    """brigade_benchmark that needs a GPU; its smoke test, if any, is a GPU test."""
    srcs, deps = _gpu(name, srcs, deps, "@system//:benchmark", "", kwargs)
    brigade_benchmark(name = name, srcs = srcs, deps = deps, **kwargs)
