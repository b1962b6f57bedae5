#!/usr/bin/env python3
"""The link flags of bazel/system_libraries.bzl, by what lies beside a library. The file's functions
are Python as well; what they ask Bazel is answered here."""

import types
import unittest

TABLE = "bazel/system_libraries.bzl"


def functions():
    names = {"load": lambda *_: None, "ABSL_HEADERS": {}, "LIBRARIES": {},
             "attr": types.SimpleNamespace(string_list=lambda: None),
             "repository_rule": lambda **_: None}
    with open(TABLE, encoding="utf-8") as source:
        exec(compile(source.read(), TABLE, "exec"), names)  # pylint: disable=exec-used
    return types.SimpleNamespace(**names)


class Machine:
    """A repository context, with a compiler that finds these files in one folder."""

    def __init__(self, *files):
        self.files = files

    def execute(self, command):
        name = command[1].split("=")[1]
        return types.SimpleNamespace(stdout="/lib/" + name if name in self.files else name)

    def path(self, _):
        entries = [types.SimpleNamespace(basename=name) for name in self.files]
        folder = types.SimpleNamespace(readdir=lambda: entries)
        return types.SimpleNamespace(dirname=folder)


class LinkoptsTest(unittest.TestCase):
    def flags(self, libs, *files):
        return functions()._linkopts(Machine(*files), "g++", libs)

    def test_one_library(self):
        self.assertEqual(self.flags(["gloo"], "libgloo.so"), ["-lgloo"])
        self.assertEqual(self.flags(["gloo"], "libgloo.a"), ["-lgloo"])
        self.assertIsNone(self.flags(["gloo"], "libother.so"))

    def test_all_of_a_name(self):
        shared = ["libabsl_time.so", "libabsl_base.so", "libabsl_base.so.2", "libother.so"]
        flags = ["-Wl,--push-state,--as-needed", "-labsl_base", "-labsl_time", "-Wl,--pop-state"]
        self.assertEqual(self.flags(["absl_*"], *shared), flags)
        # Static ones beside them are not asked for.
        self.assertEqual(self.flags(["absl_*"], "libabsl_base.a", "libabsl_x.a", *shared), flags)
        self.assertIsNone(self.flags(["absl_*"], "libabsl_time.so"))

    def test_static_ones_alone_are_linked_in_any_order(self):
        self.assertEqual(
            self.flags(["absl_*"], "libabsl_time.a", "libabsl_base.a", "libother.a"),
            ["-Wl,--start-group", "-labsl_base", "-labsl_time", "-Wl,--end-group"])


if __name__ == "__main__":
    unittest.main()
