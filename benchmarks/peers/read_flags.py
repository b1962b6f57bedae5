"""read_flags.py SCRIPT.py ARGUMENT...: runs a script of this folder until it has read its flags, where PyTorch is not installed,
or an old one: it prints its --help, refuses what it does not take, or ends without a word.

PyTorch and every module that cannot be found are made up, and so is all that is in them.
"""

import argparse
import importlib.abc
import importlib.machinery
import pathlib
import runpy
import sys
import types


class MadeUpType(type):
    def __getattr__(cls, name):
        return Anything

    def __add__(cls, other):
        return Anything

    __mul__ = __rmul__ = __add__


class Anything(metaclass=MadeUpType):
    """Base class, decorator, value or function: whatever a script takes it for before it reads its arguments."""

    def __init__(self, *arguments, **options):
        pass

    def __call__(self, *arguments, **options):
        return self

    def __getattr__(self, name):
        return self


class MadeUpModule(types.ModuleType):
    __path__ = ()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        # Python's own of other systems: whoever asks for one does without it.
        if name.partition(".")[0] in sys.stdlib_module_names:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return MadeUpModule(spec.name)

    def exec_module(self, module):
        pass


class PyTorchFinder(Finder):
    def find_spec(self, name, path, target=None):
        return super().find_spec(name, path) if name.partition(".")[0] == "torch" else None


def parse_and_end(parser):
    _, others = parser.parse_known_args()
    if others:
        parser.error(f"unrecognized arguments: {' '.join(others)}")
    sys.exit()


sys.dont_write_bytecode = True
argparse.ArgumentParser.parse_args = parse_and_end
sys.meta_path.insert(0, PyTorchFinder())
sys.meta_path.append(Finder())
script = pathlib.Path(__file__).resolve().parent / sys.argv[1]
sys.argv = [str(script)] + sys.argv[2:]
sys.path[0] = str(script.parent)
runpy.run_path(str(script), run_name="__main__")
