"""brigade_kernel: the targets of one operation, a folder of kernels/, by the files that it has."""

load("@local_cuda//:defs.bzl", "REQUIRES_CUDA")
load("//bazel:cc.bzl", "brigade_cc_binary", "brigade_cc_library")
load("//bazel:cuda.bzl", "cuda_library")

_TESTS = ["//tests/kernels:__subpackages__"]

def brigade_kernel(
        name,
        hdrs = [],
        deps = [],
        math_deps = [],
        cpu_deps = [],
        tile_deps = [],
        launcher_deps = [],
        pool_deps = [],
        parameters_deps = [],
        example_deps = []):
    """Declares the public call, <name>, and those of the other targets whose files are there.

    | target        | files                | for                    |
    | ------------- | -------------------- | ---------------------- |
    | <name>        | <name>.h, .cc        | everybody              |
    | <name>_math   | <name>_math.h        | everybody              |
    | <name>_parameters | <name>_parameters.h | everybody          |
    | <name>_cpu    | <name>_cpu.h, .cc    | everybody              |
    | <name>_pool   | <name>_pool.h, .cc   | everybody              |
    | <name>_tile   | <name>_tile.h        | kernels, tests         |
    | <name>_cuda   | <name>_cuda.h, .cu   | everybody              |
    | example_cpu   | example_cpu.cc       | reading, and a test    |
    | example_cuda  | example_cuda.cc      | reading, and a test    |
    | sources       | all of them          | tests                  |

    <name> depends on _math, _parameters, _cpu and _pool where they are there, _cuda on _tile, and
    all on _math. Of other packages they get what nearly all operations need; the arguments add the
    rest.

    Args:
      name: of the operation and its folder.
      hdrs: public headers besides <name>.h.
      deps: what <name> needs besides.
      math_deps: what <name>_math needs besides.
      cpu_deps: what <name>_cpu needs besides.
      tile_deps: what <name>_tile needs besides.
      launcher_deps: what <name>_cuda needs besides.
      pool_deps: what <name>_pool needs besides.
      parameters_deps: what <name>_parameters needs besides.
      example_deps: what the examples need besides.
    """
    public = ["//visibility:public"]
    files = native.glob([name + "*"])
    has_math = name + "_math.h" in files
    has_cpu = name + "_cpu.h" in files
    has_pool = name + "_pool.h" in files
    has_parameters = name + "_parameters.h" in files
    has_tile = name + "_tile.h" in files
    has_cuda = name + "_cuda.cu" in files
    math = [":" + name + "_math"] if has_math else []
    cpu = [":" + name + "_cpu"] if has_cpu else []
    pool = [":" + name + "_pool"] if has_pool else []
    parameters = [":" + name + "_parameters"] if has_parameters else []
    tile = [":" + name + "_tile"] if has_tile else []

    brigade_cc_library(
        name = name,
        srcs = [name + ".cc"],
        hdrs = [name + ".h"] + hdrs,
        cuda_deps = [":" + name + "_cuda", "//device/cuda:cuda_status"] if has_cuda else [],
        visibility = public,
        deps = math + parameters + cpu + pool + [
            "//device:stream",
            "//device/threads:thread_pool",
            "//kernels:nontemporal_store",
            "//kernels/internal:cpu_list",
            "//kernels:list_arguments",
            "//precision:dtype",
            "@system//:absl",
        ] + deps,
    )
    if has_math:
        brigade_cc_library(
            name = name + "_math",
            hdrs = [name + "_math.h"],
            visibility = public,
            deps = [
                "//precision:host_device",
                "//precision:rounding",
            ] + math_deps,
        )
    if has_cpu:
        brigade_cc_library(
            name = name + "_cpu",
            srcs = native.glob([name + "_cpu.cc"]),
            hdrs = [name + "_cpu.h"],
            visibility = public,
            deps = math + [
                "//kernels:nontemporal_store",
                "//kernels:simd",
            ] + cpu_deps,
        )
    if has_pool:
        brigade_cc_library(
            name = name + "_pool",
            srcs = native.glob([name + "_pool.cc"]),
            hdrs = [name + "_pool.h"],
            visibility = public,
            deps = math + cpu + [
                "//device/threads:thread_pool",
                "//kernels:nontemporal_store",
                "//kernels/internal:cpu_list",
                "@system//:absl",
            ] + pool_deps,
        )
    if has_parameters:
        brigade_cc_library(
            name = name + "_parameters",
            hdrs = [name + "_parameters.h"],
            visibility = public,
            deps = math + ["//kernels:weight_decay"] + parameters_deps,
        )
    if has_tile:
        brigade_cc_library(
            name = name + "_tile",
            hdrs = [name + "_tile.h"],
            visibility = _TESTS + ["//kernels:__subpackages__"],
            deps = math + [
                "//kernels/internal:gpu_tile",
                "//kernels/internal:segments",
            ] + tile_deps,
        )
    if has_cuda:
        cuda_library(
            name = name + "_cuda",
            srcs = [name + "_cuda.cu"],
            hdrs = [name + "_cuda.h"],
            visibility = public,
            deps = math + tile + ["//kernels:launch_kernel"] + launcher_deps,
        )
    for processor, needs in [("cpu", cpu), ("cuda", [":" + name + "_cuda"])]:
        source = "example_%s.cc" % processor
        if not native.glob([source]):
            continue
        brigade_cc_binary(
            name = "example_" + processor,
            testonly = True,
            help = False,
            srcs = [source],
            target_compatible_with = REQUIRES_CUDA if processor == "cuda" else [],
            visibility = _TESTS,
            deps = math + parameters + needs + example_deps,
        )
    native.exports_files(native.glob(["example_*.cc"]), visibility = _TESTS)
    native.filegroup(
        name = "sources",
        srcs = native.glob(["*.cc", "*.cu", "*.h"]),
        visibility = _TESTS,
    )
