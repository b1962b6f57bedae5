#!/bin/bash
# umbrella_test.sh GRAPH LABEL...
#
# A package's own name brings all public headers of its folder, as docs/using_one_target.md says, but
# those of CUDA alone, init.h, which needs Gloo, and those of programs alone, which have flags. Each
# folder at the top has such a target.
exec python3 -B - "$@" <<'END'
import sys

sys.path.insert(0, "tools")
import build_graph

with open(sys.argv[1], encoding="utf-8") as file:
    graph = build_graph.parse(file.read())
libraries = [graph[label] for label in sys.argv[2:]]
failures, found = [], set()
for umbrella in libraries:
    own_name = umbrella.label == build_graph.canonical(f"//{umbrella.package}")
    if not own_name or umbrella.hdrs:
        continue
    found.add(umbrella.package)
    brought = {header for each in graph.closure([umbrella.label]).values() for header in each.hdrs}
    for library in libraries:
        if library.package == umbrella.package and library.label != "//collectives:init":
            for header in set(library.hdrs) - brought:
                failures.append(f"{umbrella.label} does not bring {header} of {library.label}")
families = {library.package.partition("/")[0] for library in libraries}
for family in sorted(families - found):
    failures.append(f"//{family} is no target without files of its own that brings the others'")
print(f"{len(found)} packages, {len(families)} folders at the top")
if len(families) < 17:
    failures.append("too few folders at the top")
if failures:
    sys.exit("\n".join(failures))
END
