#!/bin/bash
# portable_test.sh GRAPH LABEL...
#
# What docs/compilers.md says of exceptions, RTTI and libc++: all headers compile together with
# clang, LLVM's standard library and neither of the two, but those that need Gloo, whose own throw;
# and no source throws, catches, or asks for a type as it runs, but for the files that are named here.
exec python3 -B - "$@" <<'END'
import functools
import os
import re
import subprocess
import sys

sys.path.insert(0, "tools")
import build_graph

# With Gloo, and what a thread's start does where there are exceptions.
WITH_EXCEPTIONS = {
    "collectives/bootstrap/store.cc",
    "collectives/engines/gloo/mesh.h",
    "collectives/engines/gloo/post_queue.cc",
    "collectives/engines/gloo/proved_pair.cc",
    "device/threads/start_thread.h",
}
EXCEPTIONS = re.compile(r"\b(throw|try|catch)\b")
RTTI = re.compile(r"\b(dynamic_cast|typeid)\b")
# Comments, and what is between quotes; raw strings hold other languages.
NO_CODE = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:[^"\\\n]|\\.)*"' + r"|'(?:[^'\\\n]|\\.)'", re.S
)

work = os.environ["TEST_TMPDIR"]
os.symlink(os.getcwd(), f"{work}/brigade")
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


with open(sys.argv[1], encoding="utf-8") as file:
    graph = build_graph.parse(file.read())
libraries = graph.closure(sys.argv[2:], cuda=False).values()
headers = sorted({header for each in libraries for header in each.hdrs + each.private_hdrs})
compiled = [
    each
    for each in headers
    if each.endswith(".h") and not has("gloo/", each) and not has("(cuda|cublas|nccl|mpi)", each)
]
print(f"{len(compiled)} of {len(headers)} headers are compiled")
if len(compiled) < 400:
    failures.append("most headers are missing")

flags = ["-std=c++20", "-fsyntax-only", "-w", "-DBRIGADE_CUDA=0", f"-I{work}", "-I."]
everything = "".join(f'#include "brigade/{header}"\n' for header in compiled)


def said_by(compiler, text):
    result = subprocess.run(
        [*compiler, *flags, "-x", "c++", "-"], input=text, capture_output=True, text=True
    )
    return result.stderr or ("?" if result.returncode else "")


portable = ["clang++", "-stdlib=libc++", "-fno-exceptions", "-fno-rtti"]
if said_by(portable, "#include <version>\n#ifndef _LIBCPP_VERSION\n#error\n#endif\n"):
    print("[  SKIPPED ] clang++ with libc++ (not there; tools/setup installs both), so g++ compiles")
    portable = ["g++", "-fno-exceptions", "-fno-rtti"]
said = said_by(portable, everything)
if said:
    failures.append(f"{' '.join(portable)} refuses headers:\n{said}")
# What it would say: the flags do what they are for.
for code in ("void F() { throw 0; }", "struct S { virtual ~S(); }; auto& F(S* s) { return typeid(*s); }"):
    if not said_by(portable, f"#include <typeinfo>\n{code}\n"):
        failures.append(f"{' '.join(portable)} takes {code}")

thrown = set()
files = {file for each in libraries for file in each.srcs + each.hdrs + each.private_hdrs}
for path in sorted(files):
    if not path.endswith((".cc", ".h")):
        continue
    code = NO_CODE.sub('""', text_of(path))
    if RTTI.search(code):
        failures.append(f"{path} needs RTTI")
    if EXCEPTIONS.search(code):
        thrown.add(path)
for path in sorted(thrown ^ WITH_EXCEPTIONS):
    how = "has exceptions" if path in thrown else "has no exceptions any more"
    failures.append(f"{path} {how}; docs/compilers.md and this test say otherwise")
print(f"{len(files)} files, {len(thrown)} with exceptions")

if failures:
    sys.exit("\n".join(failures))
END
