"""C++ text under another name: include prefix, namespace, macros and include guards.

The text is cut into comments, literals, numbers and words, so that only names change. String
literals stay as they are, error texts and names of environment variables among them, but for the
paths of #include and of HWY_TARGET_INCLUDE. Comments follow the code where they name what was
renamed; prose that names the project stays.
"""

import dataclasses
import re

PREFIX = "brigade"
NAMESPACE = "brigade"
_MACRO = "BRIGADE_"
# Of names that macros give to variables.
_LOCAL = "brigade_"

# A string literal that has to match where a raw one would is none: raw comes first.
_TOKEN = re.compile(
    r"""
    (?P<comment>//(?:[^\n\\]|\\.)*|/\*.*?\*/)
  | (?P<raw>(?:u8|[uUL])?R"(?P<delimiter>[^()\\\s]{0,16})\(.*?\)(?P=delimiter)")
  | (?P<string>(?:u8|[uUL])?"(?:[^"\\\n]|\\.)*")
  | (?P<character>(?:u8|[uUL])?'(?:[^'\\\n]|\\.)+')
  | (?P<number>\.?[0-9](?:'?[\w.]|(?<=[eEpP])[+-])*)
  | (?P<word>[A-Za-z_]\w*)
    """,
    re.VERBOSE | re.DOTALL,
)

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(["<])([^">\n]*)[">]', re.MULTILINE)

# What stands before a path that is no file name for the user to read.
_BEFORE_PATH = re.compile(r"^[ \t]*#[ \t]*(?:include|define[ \t]+HWY_TARGET_INCLUDE)[ \t]*$")

_KEYWORDS = frozenset(
    """alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t
    char32_t class compl concept const consteval constexpr constinit const_cast continue co_await
    co_return co_yield decltype default delete do double dynamic_cast else enum explicit export
    extern false float for friend goto if inline int long mutable namespace new noexcept not not_eq
    nullptr operator or or_eq private protected public register reinterpret_cast requires return
    short signed sizeof static static_assert static_cast struct switch template this thread_local
    throw true try typedef typeid typename union unsigned using virtual void volatile wchar_t while
    xor xor_eq""".split()
)

# A namespace of one of these names would hide the one that the code means.
_TAKEN = frozenset(["absl", "gloo", "hwy", "nlohmann", "std"])


class Error(Exception):
    """A name that cannot be; the text says why."""


def check_prefix(prefix):
    """Raises Error unless the prefix can stand before a path in #include "..."."""
    parts = prefix.split("/")
    if not all(re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*", part) for part in parts):
        raise Error(
            f"--prefix '{prefix}' is no folder to include from: names of letters, digits, "
            "_ . + and -, with / between them, as in third_party/bk"
        )


def check_namespace(namespace):
    """Raises Error unless the code can live in the namespace."""
    parts = namespace.split("::")
    for part in parts:
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", part) or "__" in part:
            raise Error(
                f"--namespace '{namespace}' is none: names of letters, digits and single _, "
                "a letter first, with :: between them, as in acme::bk"
            )
        if part in _KEYWORDS:
            raise Error(f"--namespace '{namespace}': {part} is a keyword of C++")
        if part in _TAKEN:
            raise Error(f"--namespace '{namespace}': {part} would hide ::{part}, which code means")
    if len(set(parts)) < len(parts):
        raise Error(f"--namespace '{namespace}': one name twice; the inner would hide the outer")


def included(text):
    """The paths of all #include of a text: (with quotes, with angle brackets)."""
    code = _TOKEN.sub(lambda m: " " if m.lastgroup == "comment" else m.group(), text)
    found = _INCLUDE.findall(code)
    return [p for q, p in found if q == '"'], [p for q, p in found if q == "<"]


def macros(text):
    """The names of this project's macros that the text's code has."""
    words = (m.group() for m in _TOKEN.finditer(text) if m.lastgroup == "word")
    return {word for word in words if word.startswith(_MACRO)}


@dataclasses.dataclass(frozen=True)
class Names:
    """What the code is called from now on."""

    prefix: str = PREFIX
    namespace: str = NAMESPACE

    @property
    def macro(self):
        """What stands before the names of macros: ACME_BK_ of acme::bk."""
        return self.namespace.replace("::", "_").upper() + "_"

    @property
    def stem(self):
        """acme_bk of acme::bk, for names of targets."""
        return self.namespace.replace("::", "_")

    def rename(self, path, text, paths, known_macros):
        """The text of a file under the new names.

        `paths` are those of all files that go with it, and `known_macros` the macros in their code.
        Raises Error for a name that would keep the project's.
        """

        def replace(match):
            kind, token = match.lastgroup, match.group()
            if kind == "word":
                return self._word(token) or self._fail(path, text, match)
            if kind == "comment":
                return self._comment(token, known_macros)
            if kind == "string":
                line = text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
                if _BEFORE_PATH.match(line):
                    return self._path(token, paths)
            return token

        return _TOKEN.sub(replace, text)

    def _word(self, word):
        if word == NAMESPACE or self.namespace == NAMESPACE:
            return self.namespace if word == NAMESPACE else word
        if word.startswith(_MACRO):
            return self.macro + word[len(_MACRO) :]
        if word.startswith(_LOCAL):
            return f"{self.stem}_{word[len(_LOCAL):]}"
        return None if "brigade" in word.lower() else word

    def _fail(self, path, text, match):
        line = text.count("\n", 0, match.start()) + 1
        raise Error(f"{path}:{line}: {match.group()} holds the project's name and is no macro")

    def _path(self, literal, paths):
        """Headers are included by the prefix; what a file says of itself is a path of the tree."""
        inner = literal[1:-1]
        if inner.startswith(PREFIX + "/"):
            return f'"{self.prefix}{inner[len(PREFIX) :]}"'
        return f'"{self.prefix}/{inner}"' if inner in paths else literal

    def _comment(self, comment, known_macros):
        comment = re.sub(rf"(?<![\w/\"]){NAMESPACE}(?=::)", self.namespace, comment)
        comment = re.sub(rf"(?<=namespace ){NAMESPACE}\b", self.namespace, comment)
        comment = re.sub(rf"(?<![\w/]){PREFIX}/(?=\w)", self.prefix + "/", comment)
        return re.sub(
            rf"\b{_MACRO}\w+",
            lambda m: self._word(m.group()) if m.group() in known_macros else m.group(),
            comment,
        )
