"""check_refusals.py: what our programs refuse, they refuse with what is allowed.

Each program is run with each flag of its --help set to a word that no flag knows, and once with a word that is no flag.
A number's flag says what it takes and means; one whose help lists words lists them in its refusal, and the other way
round; files, folders and other texts of the user's are left out. Nothing runs.
"""

import os
import re
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, "tests/docs")
import our_programs

WORD = "qqqq"

# Texts of the user's, beside those of our_programs.FREE.
TEXTS = {
    "adapter", "answer_key", "cases", "ceilings", "chat_template", "config", "contestants", "digest", "digest_dump", "dump_a", "dump_b", "events",
    "folder", "held_out", "ids", "interface", "json", "lines", "lora_targets", "offload_dir", "output", "profile", "prompt", "prompt_key",
    "rendezvous_folder", "resume", "save_adapter", "special_tokens", "stop", "text", "tokenizer", "topology", "weights",
}

# Programs that take words, and what others need before they look at their flags.
WITH_WORDS = {"first_difference"}
NEEDED = {"tune": ["--config=tests/docs/refusals.json", "--fixed=stage,micro_batch,bucket,live_units,algorithm,recompute,offload"]}

# Choices that the help has elsewhere than at its begin.
TOLD = re.compile(rf'"{WORD}"(?:; it must be \w.*(?:,| or | of )| is none of \w.*,| is neither \w.* nor )')
# The choices of a refusal, as far as each is one word.
LISTED = re.compile(rf'"{WORD}"(?:; it must be (?:one of )?| is none of | is neither )(.*?)(?:\. --|\.?\s*$)', re.MULTILINE)
NUMBER = re.compile(r"it must be (a whole number|a number|a time like|true or false|a number like)")


def choices(text):
    """The words between commas and "or" with which the help of a flag begins, or none."""
    text = re.sub(r"\([^()]*\)", "", " ".join(text.split()))
    word = r"[a-z0-9][\w:-]*\w"
    found = re.match(rf"({word}(?:, {word})*(?:,? or {word})?)(?=[ ,.;:]|$)", text)
    words = re.split(r",? or |, ", found[1]) if found else []
    return words if len(words) > 1 else []


def listed(said):
    """The words that a refusal offers."""
    found = LISTED.search(said)
    pieces = re.split(r", (?:or |and )?| or | and | nor ", re.sub(r" ?\([^()]*\)", "", found[1])) if found else []
    return [piece for piece in pieces if re.fullmatch(r"[a-z][\w:-]*\w", piece)]


def without(words, text):
    """Those that are not in the text."""
    return [word for word in words if not re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text)]


def run(path, words, folder):
    done = subprocess.run([os.path.abspath(path), *words], capture_output=True, text=True, check=False, cwd=folder,
                          stdin=subprocess.DEVNULL, timeout=60)
    return done.returncode, done.stdout + done.stderr


def main():
    errors, counts = [], {"numbers": 0, "choices": 0, "offered": 0, "programs": 0}
    with tempfile.TemporaryDirectory() as folder:
        for path in sorted(our_programs.binaries()):
            code, said = run(path, ["--help"], folder)
            flags = re.findall(r"^  --(\w+) \(.*?\)\n((?:      .*\n)*)", said, re.MULTILINE)
            if code != 0 or not flags:
                continue
            counts["programs"] += 1
            program = os.path.basename(path)
            needed = [word.replace("=tests", f"={os.getcwd()}/tests") for word in NEEDED.get(program, [])]
            # Files of the repository that they read lie there in a test.
            where = "." if program in ("plan", "predict") else folder
            code, said = run(path, ["stray"], where)
            if program not in WITH_WORDS and (code == 0 or '"stray"' not in said):
                errors.append(f"{path} stray: {said[-300:]}")
            for name, text in flags:
                words = choices(text)
                if name in our_programs.FREE | TEXTS and not words:
                    continue
                code, said = run(path, [*needed, f"--{name}={WORD}"], where)
                if code == 0:
                    errors.append(f"{path} --{name}={WORD} is not refused: {said[-300:]}")
                elif NUMBER.search(said) and f". --{name}: " in said:
                    counts["numbers"] += 1
                    if " ".join(text.split()) not in " ".join(said.split()):
                        errors.append(f"{path} --{name}={WORD} does not say what it is: {said[-300:]}")
                elif TOLD.search(said) or words:
                    counts["choices"] += 1
                    missing = without(words, said)
                    if missing:
                        errors.append(f"{path} --{name}={WORD} does not list {', '.join(missing)}: {said[-300:]}")
                    offered = listed(said)
                    counts["offered"] += len(offered)
                    missing = without(offered, text)
                    if missing:
                        errors.append(f"{path} --help does not list {', '.join(missing)} for --{name}, which a refusal does")
                else:
                    errors.append(f"{path} --{name}={WORD}: neither a number nor words that its help begins with: {said[-300:]}")
            if os.listdir(folder):
                errors.append(f"{path} wrote {os.listdir(folder)}")
    print(counts)
    if counts["programs"] < 40 or counts["numbers"] < 60 or counts["choices"] < 15 or counts["offered"] < 60:
        errors.append("most programs or flags are missing")
    for error in errors:
        print(error)
    sys.exit(1 if errors else 0)


main()
