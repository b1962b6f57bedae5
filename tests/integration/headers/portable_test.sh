#!/bin/bash
# portable_test.sh NVCC|none
#
# What docs/compilers.md says of exceptions, RTTI, libc++ and warnings, of all headers below this
# folder: those of the libraries and of programs. They compile together with clang, LLVM's standard
# library and neither exceptions nor RTTI, those that need Gloo, whose own throw, with exceptions;
# with a CUDA toolkit, by its headers, once more as code for CUDA, and those of kernels by nvcc. And
# no source throws, catches, or asks for a type as it runs, but for the files that are named here.
exec python3 -B - "$@" <<'END'
import functools
import os
import pathlib
import re
import subprocess
import sys

# With Gloo, and what a thread's start does where there are exceptions.
WITH_EXCEPTIONS = {
    "collectives/bootstrap/store.cc",
    "collectives/engines/gloo/mesh.h",
    "collectives/engines/gloo/post_queue.cc",
    "collectives/engines/gloo/proved_pair.cc",
    "device/threads/start_thread.h",
}
# For nvcc, although not .cuh.
OF_KERNELS = {"kernels/internal/warp.h"}
EXCEPTIONS = re.compile(r"\b(throw|try|catch)\b")
RTTI = re.compile(r"\b(dynamic_cast|typeid)\b")
# Comments, and what is between quotes; raw strings hold other languages.
NO_CODE = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:[^"\\\n]|\\.)*"' + r"|'(?:[^'\\\n]|\\.)'", re.S
)

work = os.environ["TEST_TMPDIR"]
os.symlink(os.getcwd(), f"{work}/brigade")
nvcc = None if sys.argv[1] == "none" else sys.argv[1]
failures = []


@functools.cache
def text_of(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


@functools.cache
def has(text, path):
    """Whether the file, or what it includes of the project, includes this of others."""
    if re.search(rf'^#include ["<]{text}', text_of(path), re.M):
        return True
    headers = re.findall(r'^#include "brigade/(.*)"', text_of(path), re.M)
    return any(has(text, header) for header in headers if os.path.exists(header))


def said_by(compiler, text, *flags):
    """What a compiler says of a text, empty if nothing."""
    result = subprocess.run(
        [*compiler, "-std=c++20", f"-I{work}", *flags, "-"], input=text, capture_output=True, text=True
    )
    return result.stdout + result.stderr or ("?" if result.returncode else "")


def compiles(what, compiler, headers, *flags):
    """That all these headers compile together, without a warning."""
    print(f"{len(headers)} headers {what}: {' '.join(compiler)}")
    said = said_by(compiler, "".join(f'#include "brigade/{header}"\n' for header in headers), *flags)
    if said:
        failures.append(f"{' '.join(compiler)} refuses headers {what}:\n{said}")


files = sorted(str(path) for path in pathlib.Path(".").glob("*/**/*"))
headers = [path for path in files if path.endswith(".h") and path not in OF_KERNELS]
of_cuda = {path for path in headers if has("(cuda|cublas)", path)}
of_gloo = {path for path in headers if has("gloo/", path)}
if len(headers) < 600:
    failures.append(f"only {len(headers)} headers are here")
for path in headers:
    if has("(nccl|mpi)", path):
        failures.append(f"{path} includes a header of NCCL's or MPI's, which this test does not know")

libcxx = ["clang++", "-stdlib=libc++"]
if said_by(libcxx, "#include <version>\n#ifndef _LIBCPP_VERSION\n#error\n#endif\n", "-xc++", "-fsyntax-only"):
    print("[  SKIPPED ] clang++ with libc++ (not there; tools/setup installs both), so g++ compiles")
    libcxx = ["g++"]
plain = [*libcxx, "-fno-exceptions", "-fno-rtti"]
# Where std::string has no <=>, as in libc++ 14, a type that defaults it has none either; and what is
# compiled with flags of its own, nn/tile_operands.h, needs -Wno-psabi (nn/BUILD.bazel).
by_syntax = ["-xc++", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-Wno-psabi",
             "-Wno-defaulted-function-deleted"]
compiles("of all", plain, [path for path in headers if path not in of_cuda | of_gloo],
         "-DBRIGADE_CUDA=0", *by_syntax)
# A header that Debian 12's package lacks.
missing = ["-isystem", "collectives/engines/gloo/missing"]
compiles("with Gloo's", [*libcxx, "-fno-rtti"], sorted(of_gloo - of_cuda), "-DBRIGADE_CUDA=0", *missing, *by_syntax)
# What it would say: the flags do what they are for.
for code in ("void F() { throw 0; }", "struct S { virtual ~S(); }; auto& F(S* s) { return typeid(*s); }"):
    if not said_by(plain, f"#include <typeinfo>\n{code}\n", *by_syntax):
        failures.append(f"{' '.join(plain)} takes {code}")
if nvcc:
    toolkit = ["-isystem", f"{os.path.dirname(os.path.dirname(nvcc))}/include", "-DBRIGADE_CUDA=1"]
    compiles("of all, with CUDA's", plain, [path for path in headers if path not in of_gloo],
             *toolkit, *by_syntax)
    of_kernels = [path for path in files if path.endswith(".cuh") or path in OF_KERNELS]
    compiles("of kernels", [nvcc, "-Xcompiler=-fno-exceptions,-fno-rtti"], of_kernels, "-x", "cu", "-arch=sm_90",
             "--extended-lambda", "--expt-relaxed-constexpr", "-DBRIGADE_CUDA=1", "-c", "-o", os.devnull)

code_files = [path for path in files if path.endswith((".cc", ".cu", ".h", ".cuh"))]
thrown = set()
for path in code_files:
    code = NO_CODE.sub('""', text_of(path))
    if RTTI.search(code):
        failures.append(f"{path} needs RTTI")
    if EXCEPTIONS.search(code):
        thrown.add(path)
for path in sorted(thrown ^ WITH_EXCEPTIONS):
    how = "has exceptions" if path in thrown else "has no exceptions any more"
    failures.append(f"{path} {how}; docs/compilers.md and this test say otherwise")
print(f"{len(code_files)} files, {len(thrown)} with exceptions")

if failures:
    sys.exit("\n".join(failures))
END
