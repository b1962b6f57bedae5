"""The macros that BUILD files use; docs/building.md explains them."""

load("@local_cuda//:defs.bzl", _CUDA_AVAILABLE = "CUDA_AVAILABLE", _REQUIRES_CUDA = "REQUIRES_CUDA")
load(
    "//bazel:cc.bzl",
    _brigade_benchmark = "brigade_benchmark",
    _brigade_cc_binary = "brigade_cc_binary",
    _brigade_cc_library = "brigade_cc_library",
    _brigade_cc_test = "brigade_cc_test",
    _brigade_cc_test_library = "brigade_cc_test_library",
    _precompiled_test_headers = "precompiled_test_headers",
)
load(
    "//bazel:cuda.bzl",
    _cuda_library = "cuda_library",
    _emulated_test = "emulated_test",
    _gpu_benchmark = "gpu_benchmark",
    _gpu_test = "gpu_test",
)
load("//bazel:fuzz.bzl", _brigade_fuzz_test = "brigade_fuzz_test")
load("//bazel:kernel.bzl", _brigade_kernel = "brigade_kernel")

brigade_cc_library = _brigade_cc_library
brigade_cc_binary = _brigade_cc_binary
brigade_cc_test = _brigade_cc_test
brigade_cc_test_library = _brigade_cc_test_library
precompiled_test_headers = _precompiled_test_headers
brigade_benchmark = _brigade_benchmark
brigade_fuzz_test = _brigade_fuzz_test
cuda_library = _cuda_library
gpu_test = _gpu_test
emulated_test = _emulated_test
gpu_benchmark = _gpu_benchmark
brigade_kernel = _brigade_kernel

# target_compatible_with of a target that needs the toolkit, for example a test that includes
# cuda_fp16.h. Empty when there is one.
requires_cuda = _REQUIRES_CUDA

# The same of a target for --config=emulated alone.
requires_emulator = _REQUIRES_CUDA + select({
    str(Label("//bazel:emulated")): [],
    "//conditions:default": [str(Label("//bazel:emulated_device"))],
})

# For BUILD files that choose by it; prefer cuda_deps and requires_cuda.
cuda_available = _CUDA_AVAILABLE
