#!/bin/bash
# umbrella_test.sh GRAPH LABEL...
#
# A package's own name brings all public headers of its folder, as docs/using_one_target.md says, but
# those of CUDA alone, init.h, which needs Gloo, and those of programs alone, which have flags. Each
# folder at the top has such a target, and is named where readers look for it. The page's table of
# what they need of others is what the build graph says.
exec python3 -B - "$@" <<'END'
import re
import sys

sys.path.insert(0, "tools")
import build_graph
import externals

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
with open("docs/README.md", encoding="utf-8") as file:
    index = file.read()
# Of the table with three columns: task, target, header.
rows = "".join(line for line in guide.splitlines() if re.match(r"\|[^|]*\|[^|]*\|[^|]*\|$", line))
components = re.search(r"^A component is a folder \((.*?)\)", guide, re.M | re.S)[1]
for family in sorted(families):
    if not re.search(rf"`//{family}[`:/]", rows):
        failures.append(f"no row of {GUIDE} has a target of //{family}")
    if f"`{family}`" not in components:
        failures.append(f"{GUIDE} does not list the component {family}")
    if f"](../{family}/README.md)" not in index:
        failures.append(f"docs/README.md does not lead to {family}/README.md")

titles = {each.label: each.title for each in externals.Table().libraries.values()}
optional = {each.label for each in externals.Table().libraries.values() if each.define}


def needs_of(label):
    """As a cell of the table says it: what is optional last."""
    needed = set()
    for library in graph.closure([label]).values():
        needed.update(each for each in library.external if each.startswith("@system//"))
    needed -= {"@system//:absl"}
    named = {titles[each] + " if it is there" * (each in optional) for each in needed}
    return named or {"none"}


table = re.search(r"^\| targets \| libraries of others.*?\n\n", guide, re.M | re.S)[0]
told = {}
for labels, needs in re.findall(r"^\| (`.*?) \| (.*?) \|$", table, re.M):
    for label in re.findall(r"`(.*?)`", labels):
        told[label] = set(needs.split(", "))
for label in sorted({f"//{family}" for family in families} | set(told)):
    if told.get(label) != needs_of(label):
        needs, said = (", ".join(sorted(each)) for each in (needs_of(label), told.get(label, [])))
        failures.append(f"{label} needs {needs}; the table of {GUIDE} says: {said}")
with open("cmake/graph.cmake", encoding="utf-8") as file:
    found_by_cmake = re.search(r"PACKAGES_collectives ([^)]*)\)", file.read())[1].split()
if "sodium" not in found_by_cmake:
    failures.append(f"component collectives needs no libsodium; {GUIDE} says that it does")

print(f"{len(found)} packages, {len(families)} folders at the top")
if len(families) < 17:
    failures.append("too few folders at the top")
if failures:
    sys.exit("\n".join(failures))
END
