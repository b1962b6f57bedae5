#!/bin/bash
# callers_test.sh
#
# Whoever takes a kernel finds a call to copy: example_cpu.cc of each folder calls every function that
# the folder's header for a program's own threads declares, and example_cuda.cc every launcher. Which
# has launchers has such a header, and none of these takes a thread pool.
exec python3 -B - "$@" <<'END'
import pathlib
import re
import sys


def code(path):
    """What the compiler sees of a file: no comments, strings or lines of the preprocessor."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    text = re.sub(r'//[^\n]*|"(?:\\.|[^"\\\n])*"', "", text)
    return re.sub(r"^[ \t]*#(?:.*\\\n)*.*$", "", text, flags=re.M)


def declared(path):
    """The functions of a header, members of its structs apart."""
    text = re.sub(r"\bnamespace\s+[\w:]+\s*\{", "", code(path))
    replaced = 1
    while replaced:
        text, replaced = re.subn(r"\{[^{}]*\}", ";", text)
    return re.findall(r"\b([A-Z]\w*)\s*\(", text)


def called(path):
    return set(re.findall(r"\b([A-Z]\w*)\s*(?:<[^;(){}]*>\s*)?\(", code(path)))


failures, functions = [], {"cpu": 0, "cuda": 0}
for folder in sorted(pathlib.Path("kernels").iterdir()):
    headers = {part: folder / f"{folder.name}_{part}.h" for part in functions}
    if headers["cuda"].exists() and not headers["cpu"].exists():
        failures.append(f"{folder} has a launcher, and no {headers['cpu'].name}")
    if "ThreadPool" in code(headers["cpu"]):
        failures.append(f"{headers['cpu']} takes a thread pool")
    for part, header in headers.items():
        example = folder / f"example_{part}.cc"
        names = set(declared(header))
        functions[part] += len(names)
        failures += [
            f"{example} has no call of {name}, which {header.name} declares"
            for name in sorted(names - called(example))
        ]
print(f"{functions['cuda']} launchers, {functions['cpu']} functions for threads")
if functions["cuda"] < 40 or functions["cpu"] < 50:
    failures.append("headers of kernels/ are missing")
if failures:
    sys.exit("\n".join(failures))
END
