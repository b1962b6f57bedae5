#!/usr/bin/env python3
"""The libraries of others, from the table in bazel/libraries.bzl, for the tools beside this file.

  tools/externals.py headers  Abseil's headers that the table has
  tools/externals.py debian   the Debian packages that a build needs
  tools/externals.py modules  what modules may bring, a line each: the module, its target, the name
                              in @system, and what the system's library is to be linked with
"""

import ast
import dataclasses
import pathlib
import sys

TABLE = "bazel/libraries.bzl"

_ROOT = pathlib.Path(__file__).absolute().parent.parent


class Error(Exception):
    """The table cannot be read; the text says why."""


@dataclasses.dataclass(frozen=True)
class Library:
    """An entry of LIBRARIES, which says what each field is."""

    name: str
    title: str
    includes: str
    header: str
    link: list
    debian: str
    deps: list = dataclasses.field(default_factory=list)
    define: str = ""
    module: str = ""
    module_targets: list = dataclasses.field(default_factory=list)
    cmake_package: str = ""
    cmake_target: str = ""
    pkg_config: str = ""

    @property
    def label(self):
        return f"@system//:{self.name}"

    @property
    def header_only(self):
        return not self.link and not self.deps


def constant(root, path, name):
    """The value that a .bzl file assigns to a name at its top. Raises Error unless it is constant."""
    try:
        tree = ast.parse(pathlib.Path(root, path).read_text(encoding="utf-8"))
        for statement in tree.body:
            if isinstance(statement, ast.Assign) and getattr(statement.targets[0], "id", None) == name:
                return ast.literal_eval(statement.value)
    except (OSError, SyntaxError, ValueError) as error:
        raise Error(f"{name} of {path} cannot be read: {error}") from error
    raise Error(f"{path} assigns no {name}")


class Table:
    """What bazel/libraries.bzl of a checkout says."""

    def __init__(self, root=_ROOT):
        self.absl_headers = constant(root, TABLE, "ABSL_HEADERS")
        libraries = constant(root, TABLE, "LIBRARIES")
        try:
            self.libraries = {name: Library(name, **fields) for name, fields in libraries.items()}
        except TypeError as error:
            raise Error(f"{TABLE}: {error}") from error

    def owner(self, header):
        """The library whose header this is, or None. (Of absl/flags/ it is absl_flags.)"""
        found = [each for each in self.libraries.values() if header.startswith(each.includes)]
        return max(found, key=lambda each: len(each.includes), default=None)

    def cmake_target(self, header):
        """What to link for it: absl::status of absl/status/status.h. Raises Error if unknown."""
        if header.startswith("absl/"):
            if header not in self.absl_headers:
                raise Error(f"{TABLE} has no target for {header}: add it to ABSL_HEADERS")
            return self.absl_headers[header][1]
        return self.owner(header).cmake_target

    def modules(self):
        """[(module, its target, the library that stands for it)], sorted."""
        found = {
            (library.module, target, library.name)
            for library in self.libraries.values()
            for target in library.module_targets
        }
        for header, (target, _) in self.absl_headers.items():
            library = self.owner(header)
            found.add((library.module, target, library.name))
        return [(module, target, self.libraries[name]) for module, target, name in sorted(found)]

    def links(self, library):
        """What a library is linked with, that of its deps included."""
        deps = [self.libraries[dep.removeprefix(":")].link for dep in library.deps]
        return sum(deps, list(library.link))


def main(arguments):
    """Returns the exit status."""
    if arguments == ["--help"]:
        print(__doc__.strip())
        return 0
    if arguments not in (["headers"], ["debian"], ["modules"]):
        print("usage: tools/externals.py headers|debian|modules", file=sys.stderr)
        return 2
    try:
        table = Table()
    except Error as error:
        print(f"externals.py: {error}", file=sys.stderr)
        return 1
    if arguments == ["headers"]:
        lines = list(table.absl_headers)
    elif arguments == ["debian"]:
        lines = sorted({e.debian for e in table.libraries.values() if not e.define})
    else:
        lines = [" ".join([m, t, e.name, *table.links(e)]) for m, t, e in table.modules()]
    print("".join(f"{line}\n" for line in lines), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
