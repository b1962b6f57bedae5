"""PROVENANCE: what a vendored folder holds, from where, and how it was made."""

import dataclasses
import hashlib
import re

FILE = "PROVENANCE"

_TITLE = "Vendored from Brigade by tools/vendor, whose --check compares it with a checkout."
_FILES = "files: SHA-256 as written, SHA-256 of the original, path here, path of the original"
_NONE = "-"


class Error(Exception):
    """The text is no PROVENANCE of this tool."""


def sha256(data):
    """The digest of a text or of bytes."""
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()


@dataclasses.dataclass(frozen=True)
class File:
    """One file of the folder. Without an original it was generated."""

    path: str
    written: str  # SHA-256
    original: str = ""
    original_sha256: str = ""


@dataclasses.dataclass
class Provenance:
    """What the file says, in its order."""

    commit: str
    uncommitted: list  # originals that were not as in the commit
    target: str
    parts: list
    prefix: str
    namespace: str
    command: str
    changed: str
    include_path: str
    language: str
    flags: list  # for whoever compiles by hand
    cuda_flags: list  # of nvcc, likewise
    needs: list
    files: list

    def text(self):
        """As it is written."""
        lines = [_TITLE, ""]
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name == "files":
                continue
            if isinstance(value, list):
                value = ("; " if field.name == "needs" else " ").join(value) or _NONE
            lines.append(f"{field.name.replace('_', ' ')}: {value}")
        lines.append(_FILES)
        for file in self.files:
            original = (file.original_sha256 or _NONE, file.path, file.original or _NONE)
            lines.append(" ".join((file.written, *original)))
        return "\n".join(lines) + "\n"


def parse(text):
    """The Provenance of a text. Raises Error where it is none."""
    lines = text.split("\n")
    if lines[0] != _TITLE or _FILES not in lines or lines[-1] != "":
        raise Error("it is not of tools/vendor")
    begin = lines.index(_FILES)
    given = dict(line.partition(": ")[::2] for line in lines[2:begin])
    values = {}
    for field in dataclasses.fields(Provenance):
        if field.name == "files":
            continue
        value = given.get(field.name.replace("_", " "))
        if value is None:
            raise Error(f"it does not say '{field.name.replace('_', ' ')}'")
        if field.type is list:
            value = [] if value == _NONE else value.split("; " if field.name == "needs" else " ")
        values[field.name] = value
    files = []
    for line in lines[begin + 1 : -1]:
        match = re.fullmatch(r"([0-9a-f]{64}) ([0-9a-f]{64}|-) (\S+) (\S+)", line)
        if not match:
            raise Error(f"it has a line that is no file's: {line}")
        written, original_sha256, path, original = match.groups()
        if path.startswith("/") or ".." in path.split("/"):
            raise Error(f"it names a file outside of its folder: {path}")
        if _NONE in (original, original_sha256):
            original = original_sha256 = ""
        files.append(File(path, written, original, original_sha256))
    return Provenance(**values, files=files)
