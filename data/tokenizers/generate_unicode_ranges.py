#!/usr/bin/env python3
"""generate_unicode_ranges.py [UnicodeData.txt] > unicode_ranges.cc

Writes the codes of Unicode's general categories L and N as ranges, from UnicodeData.txt of unicode.org or of Debian's
package unicode-data, or without it from the package unicodedata2 of PyPI, of the version that it should be."""

import os
import sys

if "--help" in sys.argv[1:] or "-h" in sys.argv[1:]:
    sys.exit(print(__doc__))
absent = [f"no file {path};" for path in sys.argv[1:2] if not os.path.exists(path) or os.path.isdir(path)]
if absent or len(sys.argv) > 2:
    print(*absent, "usage: generate_unicode_ranges.py [UnicodeData.txt] > unicode_ranges.cc", file=sys.stderr)
    sys.exit(2)


def categories(path):
    """(code, category) of all codes."""
    if path is None:
        import unicodedata2 as unicodedata

        yield from ((code, unicodedata.category(chr(code))) for code in range(0x110000))
        return
    first = None
    for line in open(path, encoding="ascii"):
        code, name, category = line.split(";")[:3]
        code = int(code, 16)
        if name.endswith(", First>"):
            first = code
            continue
        yield from ((each, category) for each in range(code if first is None else first, code + 1))
        first = None


def ranges(found, letter):
    result = []
    for code, category in found:
        if category[0] != letter:
            continue
        if result and result[-1][1] == code - 1:
            result[-1][1] = code
        else:
            result.append([code, code])
    return result


def lines(pairs):
    line = "   "
    for first, last in pairs:
        piece = f" {{0x{first:x}, 0x{last:x}}},"
        if len(line + piece) > 100:
            yield line
            line = "   "
        line += piece
    yield line


found = list(categories(sys.argv[1] if sys.argv[1:] else None))
print(f"""// Written by {os.path.basename(__file__)}; the version of Unicode is that of unicode_classes.h.

#include "brigade/data/tokenizers/unicode_ranges.h"

namespace brigade::data {{
namespace {{

// clang-format off
constexpr CodeRange kLetters[] = {{""")
print("\n".join(lines(ranges(found, "L"))))
print("};\n\nconstexpr CodeRange kNumbers[] = {")
print("\n".join(lines(ranges(found, "N"))))
print("""};
// clang-format on

}  // namespace

absl::Span<const CodeRange> LetterRanges() { return kLetters; }
absl::Span<const CodeRange> NumberRanges() { return kNumbers; }

}  // namespace brigade::data""")
