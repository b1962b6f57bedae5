"""check_flags.py PAGE...: each flag that the pages name between backticks, or behind one of our programs in a block of
commands that "needs" something, is one that some program or script has.

Behind a program of ours it must be that one's. What programs have says their --help.
"""

import os
import re
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, "tools")
import docs_commands

FOLDERS = (".ci", "benchmarks", "checkpoint", "collectives", "examples", "parallel", "tools", "zero")

# Flags of Bazel, of libFuzzer and of other programs that the pages name.
OTHERS = {
    "config", "cxxopt", "disk_cache", "hex", "lineinfo", "merge", "noenable_bzlmod", "nosandbox_debug", "test_env",
    "use_counters",
}


def programs():
    for folder in FOLDERS:
        for path, _, files in os.walk(folder):
            # A binary's own runfiles hold it once more.
            if ".runfiles" in path:
                continue
            for file in files:
                full = os.path.join(path, file)
                if os.access(full, os.X_OK) and not re.search(r"\.(py|json|md|h|so[.\d]*)$|^figure\.sh$", file):
                    yield full


def flags_of(words):
    for word in words:
        flag = re.match(r"--?([a-zA-Z]\w*)", word)
        if flag:
            yield flag[1]


def main():
    helps = {}
    for program in programs():
        done = subprocess.run([program, "--help"], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        helps[program] = set(re.findall(r"(?<![\w-])--?([a-zA-Z]\w*)", done.stdout)) | {"help"}
    known = set().union(*helps.values())
    print(f"{len(helps)} programs and scripts, {len(known)} flags")
    errors = [] if len(helps) > 30 and len(known) > 100 else ["most programs are missing"]
    for page in sys.argv[1:]:
        text = docs_commands.read(page)
        places = [(number, words.split()) for number, words in docs_commands.quoted(text)]
        # Those of other commands are checked where they run.
        places += [(command.where.rpartition(":")[2], [word.removeprefix("bazel-bin/") for word in command.words])
                   for block in docs_commands.blocks(page, text) if block.kind == "needs"
                   for command in block.commands() if command.program()[0] in helps]
        for number, words in places:
            label = next((word for word in words if word.startswith("//")), None)
            program = next((word for word in words if word in helps), None)
            if label:
                path = label[2:].replace(":", "/")
                program = path if path in helps else None
            for flag in flags_of(words):
                if program and flag not in helps[program] and flag not in OTHERS:
                    errors.append(f"{page}:{number}: {program} --help does not know {flag}")
                elif flag not in known and flag not in OTHERS:
                    errors.append(f"{page}:{number}: no program knows {flag}")
    for error in errors:
        print(error)
    sys.exit(1 if errors else 0)


main()
