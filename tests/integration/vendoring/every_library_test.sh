#!/bin/bash
# every_library_test.sh GRAPH LABEL...
#
# tools/vendor takes each public library, and each part of one: something to compile or to include,
# with all headers that it includes, and none of the project's names. One without files of its own
# brings those of its deps.
exec python3 -B - "$@" <<'END'
import functools
import os
import sys

sys.path.insert(0, "tools")
import build_graph
import externals
from vendoring import folder, rewrite, selection

with open(sys.argv[1], encoding="utf-8") as file:
    graph = build_graph.parse(file.read())
failures, taken = [], 0

# Libraries share most of their files: each is read and renamed once.
for module, function in ((rewrite, "included"), (rewrite, "macros"), (externals, "constant")):
    setattr(module, function, functools.cache(getattr(module, function)))
renamed = {}


class Names(rewrite.Names):
    def rename(self, path, text, paths, known_macros):
        if path not in renamed:
            renamed[path] = super().rename(path, text, paths, known_macros)
        return renamed[path]


names = Names("third_party/bk", "acme::bk")


def files_of(library):
    return library.hdrs + library.srcs + library.cuda_srcs


def take(label, parts):
    texts, _ = folder.make(os.getcwd(), graph, label, parts, names, ".")
    code = {path for path in texts if path.startswith(names.prefix + "/")}
    wanted = [graph[label]]
    if parts:
        wanted = [graph[f"{graph[label].label}_{parts[0]}"]]
    elif not files_of(graph[label]):
        wanted = [graph[dep] for dep in graph[label].deps]
    missing = {f"{names.prefix}/{file}" for each in wanted for file in files_of(each)} - code
    if missing or not code:
        failures.append(f"{label} {parts}: without {sorted(missing) or 'any file'}")
    for path in code:
        for header in rewrite.included(texts[path])[0]:
            if header.startswith((names.prefix + "/", "brigade/")) and header not in code:
                failures.append(f"{label} {parts}: {path} includes {header}, which is not there")


for label in sys.argv[2:]:
    for parts in [[], *([part] for part in selection.parts_of(graph, label))]:
        try:
            take(label, parts)
        except Exception as error:  # whatever it is, a user would see it
            failures.append(f"{label} {parts}: {type(error).__name__}: {error}")
        taken += 1
print(f"{taken} libraries and parts")
if failures:
    sys.exit("\n".join(failures))
END
