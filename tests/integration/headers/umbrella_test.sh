#!/bin/bash
# umbrella_test.sh GRAPH LABEL...
#
# A package's own name brings all public headers of its folder, as docs/using_one_target.md says, but
# those of CUDA alone, init.h, which needs Gloo, and those of programs alone, which have flags. Each
# folder at the top has such a target, and is named where readers look for it.
exec python3 -B - "$@" <<'END'
import re
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

GUIDE = "docs/using_one_target.md"
with open(GUIDE, encoding="utf-8") as file:
    guide = file.read()
with open("README.md", encoding="utf-8") as file:
    readme = file.read()
rows = "".join(line for line in guide.splitlines() if line.startswith("| "))
components = re.search(r"^A component is a folder \((.*?)\)", guide, re.M | re.S)[1]
for family in sorted(families):
    if not re.search(rf"`//{family}[`:/]", rows):
        failures.append(f"no row of {GUIDE} has a target of //{family}")
    if f"`{family}`" not in components:
        failures.append(f"{GUIDE} does not list the component {family}")
    if f"`{family}/README.md`" not in readme:
        failures.append(f"README.md does not lead to {family}/README.md")

print(f"{len(found)} packages, {len(families)} folders at the top")
if len(families) < 17:
    failures.append("too few folders at the top")
if failures:
    sys.exit("\n".join(failures))
END
