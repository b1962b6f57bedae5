"""The vendored folder: what belongs into it, what is there, and how they differ."""

import os
import pathlib
import shlex
import subprocess

from vendoring import cmake, libraries, provenance, rewrite, selection

_LICENSE = "LICENSE"
_CMAKE = "CMakeLists.txt"
_REFUSAL = "cmake/refuse_fast_math.cmake"


class Error(Exception):
    """The folder cannot be written or compared; the text says why."""


def include_path(folder, prefix):
    """From the folder to where includes start.

    A folder that ends with the prefix holds the files themselves, so that the include path is
    above it; another has the prefix in it.
    """
    parts = prefix.split("/")
    ends = pathlib.Path(os.path.abspath(folder)).parts[-len(parts) :] == tuple(parts)
    return "/".join([".."] * len(parts)) if ends else "."


def make(root, graph, target, parts, names, includes):
    """Returns ({path in the folder: text}, Provenance) of what a target gives today.

    `includes` is what include_path returned, when the folder was written for the first time.
    """
    chosen = selection.select(root, graph, target, parts)
    # What the parts of kernels are written in; the test of vendoring compiles them so.
    standard = 17 if parts else 20

    def place(path):
        return path if includes != "." else f"{names.prefix}/{path}"

    originals = {place(path): path for path in chosen.texts}
    texts = {
        here: names.rename(path, chosen.texts[path], chosen.texts.keys(), chosen.macros)
        for here, path in originals.items()
    }
    originals[_LICENSE] = _LICENSE
    texts[_LICENSE] = pathlib.Path(root, _LICENSE).read_text(encoding="utf-8")
    library = library_name(graph[target], parts, names)
    refusal = pathlib.Path(root, _REFUSAL).read_text(encoding="utf-8")
    texts[_CMAKE] = cmake.text(chosen, names, library, place, includes, standard, refusal)
    if len(texts) != len(originals) + 1:
        raise Error(f"{target} has a {_CMAKE} or a {_LICENSE} of its own")

    command = ["tools/vendor", target, "--out", "DIR", *(f"--{part}" for part in parts)]
    changed = []
    if names.prefix != rewrite.PREFIX:
        command += ["--prefix", names.prefix]
        changed.append("prefix")
    if names.namespace != rewrite.NAMESPACE:
        command += ["--namespace", names.namespace]
        changed.append("namespace")
    if not changed and any(texts[place(path)] != text for path, text in chosen.texts.items()):
        changed.append("the path by which a file includes itself")
    commit, uncommitted = _commit(root, originals.values())
    made = provenance.Provenance(
        commit=commit,
        uncommitted=uncommitted,
        target=chosen.target,
        parts=parts,
        prefix=names.prefix,
        namespace=names.namespace,
        command=shlex.join(command),
        changed=" and ".join(changed) or "nothing",
        include_path=includes,
        language=f"C++{standard} or newer",
        flags=chosen.copts,
        cuda_flags=chosen.cuda_copts if chosen.cuda != "none" else [],
        needs=_needs(chosen),
        files=[
            provenance.File(
                path,
                provenance.sha256(texts[path]),
                originals.get(path, ""),
                _original_sha256(root, originals.get(path)),
            )
            for path in sorted(texts)
        ],
    )
    return texts, made


def library_name(library, parts, names):
    """acme_bk_kernels_adam of //kernels/adam:adam, acme_bk_kernels_adam_cpu of its CPU loop."""
    package = library.package.split("/")
    words = package if package[-1] == library.name else [*package, library.name]
    return "_".join([names.stem, *words, *parts])


def _original_sha256(root, path):
    return provenance.sha256(pathlib.Path(root, path).read_bytes()) if path else ""


def _needs(chosen):
    needs = [libraries.title(library) for library, _ in chosen.externals]
    if chosen.cuda != "none":
        needs.append("CUDA Toolkit" + (" (optional)" if chosen.cuda == "optional" else ""))
    return needs


def git(root, *arguments):
    """git's answer, or None where the tree is no checkout of its own."""
    command = ["git", "-c", f"safe.directory={root}", "-C", str(root), *arguments]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return result.stdout.rstrip("\n") if result.returncode == 0 else None


def _commit(root, paths):
    """(the commit, those of the paths that differ from it); ("unknown", []) without git."""
    top = git(root, "rev-parse", "--show-toplevel")
    commit = git(root, "rev-parse", "HEAD")
    if not top or not commit or os.path.realpath(top) != os.path.realpath(root):
        return "unknown", []
    status = git(root, "status", "--porcelain", "--no-renames", "-z", "--", *sorted(paths)) or ""
    return commit, sorted(line[3:] for line in status.split("\0") if line)


def read_provenance(folder):
    """The folder's Provenance. Raises Error where there is none."""
    try:
        text = pathlib.Path(folder, provenance.FILE).read_text(encoding="utf-8")
        return provenance.parse(text)
    except (OSError, UnicodeDecodeError) as error:
        raise Error(f"{folder} has no {provenance.FILE} of tools/vendor") from error
    except provenance.Error as error:
        raise Error(f"{folder}/{provenance.FILE}: {error}") from error


def local_differences(folder, written):
    """Lines that say how a folder differs from what its Provenance says was written."""
    lines = []
    for file in written.files:
        path = pathlib.Path(folder, file.path)
        if not path.is_file():
            lines.append(f"missing: {file.path}")
        elif provenance.sha256(path.read_bytes()) != file.written:
            lines.append(f"changed here: {file.path}")
    known = {provenance.FILE, *(file.path for file in written.files)}
    lines += [f"extra: {path}" for path in _files(folder) if path not in known]
    return sorted(lines)


def _files(folder):
    """All files of a folder but git's own, sorted, with / between the names."""
    result = []
    for where, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name != ".git"]
        result += [pathlib.Path(where, f).relative_to(folder).as_posix() for f in files]
    return sorted(file for file in result if file != ".git")


def upstream_differences(root, written, made):
    """Lines that say which files a new run would write otherwise, now that it makes `made`."""
    relation = _relation(root, written.commit, made.commit)
    before = {file.path: file.written for file in written.files}
    now = {file.path: file.written for file in made.files}
    differ = [path for path in before if now.get(path, before[path]) != before[path]]
    lines = [f"{relation} upstream: {path}" for path in differ]
    lines += [f"no longer upstream: {path}" for path in before if path not in now]
    lines += [f"only upstream: {path}" for path in now if path not in before]
    return sorted(lines)


def _relation(root, written, now):
    """Whether what differs upstream is newer or older, as far as the checkout can tell."""
    if git(root, "merge-base", "--is-ancestor", written, now) is not None:
        return "newer"
    older = git(root, "merge-base", "--is-ancestor", now, written) is not None
    return "older" if older else "other"


def check_writable(folder):
    """Raises Error unless the folder is new, empty, or as this tool has left it."""
    folder = pathlib.Path(folder)
    if not folder.exists() and not folder.is_symlink():
        return
    if not folder.is_dir():
        raise Error(f"{folder} exists and is no folder")
    if not any(folder.iterdir()):
        return
    try:
        written = read_provenance(folder)
    except Error as error:
        raise Error(f"{folder} exists and is not of this tool: {error}") from error
    changed = [d for d in local_differences(folder, written) if d.startswith("changed here")]
    if changed:
        raise Error(
            f"{folder} has changes that would be lost; undo them, or remove the folder:\n  "
            + "\n  ".join(changed)
        )


def write(folder, texts, made):
    """Writes the files, and removes those that an earlier run wrote and this one does not."""
    folder = pathlib.Path(folder)
    before = []
    if (folder / provenance.FILE).exists():
        before = [file.path for file in read_provenance(folder).files]
    taken = [path for path in texts if path not in before and (folder / path).exists()]
    if taken:
        raise Error(f"{folder} has files of others where this would write: {' '.join(taken)}")
    for path in before:
        if path not in texts and (folder / path).exists():
            (folder / path).unlink()
            for parent in (folder / path).parents:
                if parent == folder or any(parent.iterdir()):
                    break
                parent.rmdir()
    for path, text in {**texts, provenance.FILE: made.text()}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
