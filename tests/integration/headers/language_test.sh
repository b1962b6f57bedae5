#!/bin/bash
# language_test.sh GRAPH NVCC LABEL...
#
# What the public headers ask of a compiler. Each is C++17, or includes device/requirements.h, which
# without C++20 says so and nothing else. Files that hold numbers as bytes include that or
# precision/host_device.h, which both refuse a big-endian processor. Launchers, and what computes on
# CPUs, include precision/rounding.h, which refuses flags that change bits.
#
# A header that includes requirements.h is refused before its own text is looked at, so only the
# others are compiled, together.
exec python3 -B - "$@" <<'END'
import functools
import os
import re
import subprocess
import sys

sys.path.insert(0, "tools")
import build_graph

REQUIREMENTS = "device/requirements.h"
KERNELS = "precision/host_device.h"
ROUNDING = "precision/rounding.h"

work = os.environ["TEST_TMPDIR"]
os.symlink(os.getcwd(), f"{work}/brigade")
compiler = ["g++", "-w", "-fsyntax-only", f"-I{work}", "-I."]
if sys.argv[2] != "none":
    compiler.append(f"-I{os.path.dirname(os.path.dirname(sys.argv[2]))}/include")
failures = []


def compiled(text, *flags):
    """What the compiler says of a file, empty if nothing."""
    result = subprocess.run(
        [*compiler, *flags, "-x", "c++", "-"], input=text, capture_output=True, text=True
    )
    return result.stderr or ("?" if result.returncode else "")


def refused(header, reason, *flags):
    said = compiled(f'#include "brigade/{header}"\n', *flags)
    errors = [line for line in said.splitlines() if "error:" in line]
    if len(errors) != 2 or reason not in errors[0]:
        failures.append(f"{header} with {flags} does not say '{reason}', but: {said or 'nothing'}")


@functools.cache
def text_of(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


@functools.cache
def included(path):
    """The file, and what it includes of the project."""
    files = {path}
    for header in re.findall(r'^#include "brigade/(.*)"', text_of(path), re.M):
        files |= included(header) if os.path.exists(header) else set()
    return files


with open(sys.argv[1], encoding="utf-8") as file:
    graph = build_graph.parse(file.read())
public = {header for label in sys.argv[3:] for header in graph[label].hdrs}
plain = sorted(header for header in public if REQUIREMENTS not in included(header))
if len(public) < 200 or KERNELS not in plain:
    failures.append(f"only {len(public)} public headers, or {KERNELS} needs C++20")
said = compiled("".join(f'#include "brigade/{header}"\n' for header in plain), "-std=gnu++17")
if said:
    failures.append(f"headers without {REQUIREMENTS} are not C++17:\n{said}")

big_endian = ("-U__BYTE_ORDER__", "-D__BYTE_ORDER__=4321")
refused(REQUIREMENTS, "Brigade needs C++20", "-std=gnu++17")
refused(REQUIREMENTS, "Brigade is for little-endian processors", "-std=gnu++20", *big_endian)
refused(KERNELS, "Brigade is for little-endian processors", "-std=gnu++17", *big_endian)
# The examples of what includes them first of all, and through others.
for header in ("device/device.h", "collectives/bootstrap/launch_info.h", "parallel/shard.h"):
    refused(header, "Brigade needs C++20", "-std=gnu++17")

files = {
    file
    for library in graph.closure(sys.argv[3:]).values()
    for file in library.hdrs + library.private_hdrs + library.srcs + library.cuda_srcs
}
# Whose bytes no file has and no other process sees, in an order that no code asks for.
IN_ANY_ORDER = {
    "data/token_store.cc",  # read as they were written
    "data/tokenizers/utf8.cc",  # a mask whose bytes are alike
    "device/cpu/cpu_memory.cc",  # moved as a whole
    "device/cpu/task_queue.cc",  # moved as a whole
}
BYTES = re.compile(r"\bmemcpy\(|reinterpret_cast<(const )?(unsigned )?char\*>")
refuse_nothing = {
    file
    for file in files
    if BYTES.search(text_of(file)) and not included(file) & {REQUIREMENTS, KERNELS}
}
for file in sorted(refuse_nothing - IN_ANY_ORDER):
    failures.append(f"{file} holds numbers as bytes, and does not refuse big-endian ones")
for file in sorted(IN_ANY_ORDER - refuse_nothing):
    failures.append(f"{file} is an exception that nothing asks for")
# In these folders: formulas with functions of <cmath>, with infinities or with NaNs.
COMPUTE = ("kernels/", "models/", "nn/", "optim/")
FORMULA = re.compile(r"\bstd::(exp|log|pow|sqrt|cos|is(nan|inf|finite))\(|::(infinity|quiet_NaN)\(")
WHOLE_NUMBERS = {"kernels/digest/digest_cpu.cc"}
computing = {
    file
    for file in files
    if file.endswith((".cu", "_cpu.cc"))
    or (file.endswith(".cc") and file.startswith(COMPUTE) and FORMULA.search(text_of(file)))
}
allow_fast_math = {file for file in computing if ROUNDING not in included(file)}
for file in sorted(allow_fast_math - WHOLE_NUMBERS):
    failures.append(f"{file} does not refuse -ffast-math, and --use_fast_math")
for file in sorted(WHOLE_NUMBERS - allow_fast_math):
    failures.append(f"{file} is an exception that nothing asks for")

print(f"{len(public)} public headers, {len(plain)} of them C++17; {len(files)} files")
if failures:
    sys.exit("\n".join(failures))
END
