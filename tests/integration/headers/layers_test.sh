#!/bin/bash
# The drawing of packages in CONTRIBUTING.md is what the includes say: the files of each package at
# the top include from those on lines below its own, or of themselves.
exec python3 -B - "$@" <<'END'
import pathlib
import re
import sys

with open("CONTRIBUTING.md", encoding="utf-8") as file:
    drawing = re.search(r"^```\n(.*?)^```$", file.read(), re.M | re.S)[1]
layers = [re.findall(r"[\w/]+", line.partition("->")[0]) for line in drawing.splitlines()]
line_of = {package: i for i, packages in enumerate(layers) for package in packages}
# Not drawn, where the test runs in the whole tree.
BESIDE = ("benchmarks", "emulator", "tests", "tools")
failures, packages = [], set()
for path in sorted(pathlib.Path(".").glob("*/**/*")):
    package = path.parts[0]
    if path.suffix not in (".h", ".cc", ".cu") or package in BESIDE:
        continue
    packages.update({package, str(path.parent)} & set(line_of) | {package})
    for header in re.findall(r'^#include "brigade/(.*)"', path.read_text(encoding="utf-8"), re.M):
        needed = header.partition("/")[0]
        if needed != package and line_of.get(package, -1) >= line_of.get(needed, -1):
            failures.append(f"{path} includes {header}: CONTRIBUTING.md draws {package} not above it")
failures += [f"CONTRIBUTING.md draws no {package}" for package in sorted(packages - set(line_of))]
failures += [f"CONTRIBUTING.md draws {package}, which has no files" for package in sorted(set(line_of) - packages)]
print(f"{len(packages)} packages, {len(line_of)} drawn")
if len(packages) < 21:
    failures.append("too few packages")
if failures:
    sys.exit("\n".join(failures))
END
