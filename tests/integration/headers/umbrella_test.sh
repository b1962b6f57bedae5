#!/bin/bash
# umbrella_test.sh GRAPH LABEL...
#
# A package's own name brings all public headers of its folder, as docs/using_one_target.md says, but
# those of CUDA alone and init.h, which needs Gloo.
exec python3 -B - "$@" <<'END'
import sys

sys.path.insert(0, "tools")
import build_graph

with open(sys.argv[1], encoding="utf-8") as file:
    graph = build_graph.parse(file.read())
libraries = [graph[label] for label in sys.argv[2:]]
failures, found = [], 0
for umbrella in libraries:
    own_name = umbrella.label == build_graph.canonical(f"//{umbrella.package}")
    if not own_name or umbrella.hdrs:
        continue
    found += 1
    brought = {header for each in graph.closure([umbrella.label]).values() for header in each.hdrs}
    for library in libraries:
        if library.package == umbrella.package and library.label != "//collectives:init":
            for header in set(library.hdrs) - brought:
                failures.append(f"{umbrella.label} does not bring {header} of {library.label}")
print(f"{found} packages")
if found < 10:
    failures.append("too few packages have a target of their own name")
if failures:
    sys.exit("\n".join(failures))
END
