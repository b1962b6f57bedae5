#!/bin/bash
# tools/generate_cmake refuses a folder that nobody has put into its list, and a component that
# would bring flags, or what is in none; over small graphs, as Bazel gives them.
exec python3 -B - <<'END'
import importlib.machinery
import importlib.util
import os
import pathlib
import sys

sys.path.insert(0, "tools")
import build_graph

loader = importlib.machinery.SourceFileLoader("generate_cmake", os.path.abspath("tools/generate_cmake"))
tool = importlib.util.module_from_spec(importlib.util.spec_from_loader("generate_cmake", loader))
loader.exec_module(tool)
tool.ROOT = pathlib.Path.cwd()


def generator(*libraries):
    each = [build_graph.Library(label, public=public, **fields) for label, public, fields in libraries]
    return tool.Generator(build_graph.Graph({library.label: library for library in each}))


def said_of(*libraries):
    try:
        generator(*libraries)
    except build_graph.Error as error:
        return str(error)
    return "nothing"


FLAGS = {"external": ["@system//:absl_flags"]}
kernel = ("//kernels/a:a", True, {"external": ["@system//:absl"]})
CASES = [
    ("nothing", [kernel]),
    (
        "attic/ has public libraries and is in no list of tools/generate_cmake: add it to FAMILIES",
        [kernel, ("//attic/a:a", True, {})],
    ),
    # What is for the project alone, or no family by intent, is forgotten by nobody.
    ("nothing", [kernel, ("//attic/a:a", False, {}), ("//emulator/a:a", True, {})]),
    (
        "a public library that is not of programs alone needs //kernels:flags, which has flags",
        [("//kernels/a:a", True, {"deps": ["//kernels:flags"]}), ("//kernels:flags", False, FLAGS)],
    ),
    (
        "a public library needs //attic/a:a, which is in no family: " + " ".join(tool.FAMILIES),
        [("//kernels/a:a", True, {"deps": ["//attic/a:a"]}), ("//attic/a:a", False, {})],
    ),
]
failures = []
for wanted, libraries in CASES:
    said = said_of(*libraries)
    if said != wanted:
        failures.append(f"of {[label for label, _, _ in libraries]} it says: {said}\nnot: {wanted}")

# Flags that users of a program's library ask for by its label are no refusal, and in no component.
of_programs = generator(kernel, ("//train:step_flags", True, FLAGS))
if of_programs.program_libraries != ["//train:step_flags"] or list(of_programs.components) != ["//kernels/a:a"]:
    failures.append(f"of programs: {of_programs.program_libraries}, components: {of_programs.components}")
print(f"{len(CASES)} graphs")
if failures:
    sys.exit("\n".join(failures))
END
