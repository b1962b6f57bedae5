"""Hugging Face's `tokenizers` beside data/tokenizers, for reference_test.sh.

reference.py PEER TRAIN FOLDER TEXTS: pieces of all characters and of random texts; ids and texts of tokenizers of all kinds
that are read; files that are written, read by the reference; training from the same text.
"""

import json
import random
import re
import subprocess
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

PEER, TRAIN, FOLDER, TEXTS = sys.argv[1:]

CONTRACTIONS = r"'s|'t|'re|'ve|'m|'ll|'d"
PATTERNS = {
    "gpt2": CONTRACTIONS + r"| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "llama3": r"(?i:" + CONTRACTIONS + r")|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
              r"|\s*[\r\n]+|\s+(?!\S)|\s+",
    "qwen2": r"(?i:" + CONTRACTIONS + r")|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
             r"|\s*[\r\n]+|\s+(?!\S)|\s+",
}
SPECIAL = ["<|endoftext|>", "<|start|>", "<|end|>", "<|endof"]


def ask(mode, argument, lines):
    run = subprocess.run([PEER, mode, argument], input="".join(line + "\n" for line in lines), capture_output=True,
                         text=True)
    assert run.returncode == 0, run.stderr
    answers = run.stdout.split("\n")[:-1]
    assert len(answers) == len(lines), (mode, len(answers), len(lines))
    return answers


def hexes(texts):
    return [text.encode().hex() for text in texts]


def numbers(line):
    assert re.fullmatch(r"[0-9 ]*", line), line
    return [int(word) for word in line.split()]


# Texts.

POOLS = [
    "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789", "    ", "\n\r\t \u000b\u000c",
    "\u00a0\u0085\u2028\u2029\u3000\u2003\u1680\u200b\u180e\ufeff", ".,;:!?()[]{}<>|/\\\"#$%&*+-=@^_`~", "''''\u2019",
    "éàüñßÅøæœçÇİıſK\u0130", "жзиЖЗИαβγΑΒΓאבגعربי", "漢字かなカナ한글", "\u0300\u0301\u0327\u20dd\u0e31\u0e47",
    "²³½٣४Ⅷ①㊿𝟗", "😀👍🏽👨‍👩‍👧🇩🇪❤️", "\x00\x01\x1f\x7f\x80\x9f",
]
WORDS = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'RE", "'Ll", "'ſ", "'vE", "don't", "the", " the", "\n\n",
         "  ", "\r\n", "hello", "1234567"] + SPECIAL


def character(rng):
    while True:
        code = rng.randrange(0x110000) if rng.random() < 0.3 else rng.randrange(0x3000)
        if not 0xD800 <= code < 0xE000:
            return chr(code)


def text_of(rng):
    pieces = []
    for _ in range(rng.randrange(14)):
        kind = rng.random()
        if kind < 0.25:
            pieces.append(rng.choice(WORDS))
        elif kind < 0.35:
            pieces.append("".join(character(rng) for _ in range(rng.randrange(4))))
        else:
            pool = rng.choice(POOLS)
            pieces.append("".join(rng.choice(pool) for _ in range(rng.randrange(6))))
    return "".join(pieces)


def texts(seed, count):
    rng = random.Random(seed)
    fixed = ["", " ", "  ", "\n", "a", "'", " '", "'ſ", "a  b", "a \n b", "x\n\n y", "   ", "\r\n\r\n  a", "it's IT'S",
             "a" * 3000, " " * 500, "ab" * 900 + " " + "é" * 400, "0" * 200]
    return fixed + [text_of(rng) for _ in range(count)]


def corpus(seed):
    """A text in which pairs repeat, with characters of all kinds."""
    rng = random.Random(seed)
    words = ["".join(rng.choice("abcdeé漢1'") for _ in range(rng.randrange(1, 7))) for _ in range(150)]
    words += [text_of(rng) for _ in range(100)] + ["aaaa", "aaaaa", "aaaaaaa", "abababa"]
    return "".join(rng.choice([" ", " ", " ", "\n", "  "]) + rng.choice(words) for _ in range(4000))


# Pieces.

def reference_ends(pattern, text):
    """Where pieces end, in bytes."""
    split = pre_tokenizers.Split(Regex(PATTERNS[pattern]), "isolated")
    ends, at = [], 0
    for piece, _ in split.pre_tokenize_str(text):
        at += len(piece.encode())
        ends.append(at)
    return ends


def check_pieces(pattern, cases):
    for text, answer in zip(cases, ask("pieces", pattern, hexes(cases))):
        wanted = reference_ends(pattern, text)
        assert numbers(answer) == wanted, (pattern, text, numbers(answer), wanted)


def check_all_characters():
    """Each between a letter, a digit and a sign: where it is cut says its class."""
    codes = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    cases = ["".join(f"a{c}1{c}-" for c in codes[i:i + 2048]) for i in range(0, len(codes), 2048)]
    check_pieces("gpt2", cases)


# Tokenizers of all kinds, trained by the reference.

def split_then_bytes(pattern):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(PATTERNS[pattern]), "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def tokenizer_of(name, pre, text, added=(), whole=False, post=None):
    tokenizer = Tokenizer(models.BPE(ignore_merges=whole))
    tokenizer.pre_tokenizer = pre
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=700, special_tokens=SPECIAL[:1], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator([text], trainer)
    for token in added:
        (tokenizer.add_special_tokens if token.special else tokenizer.add_tokens)([token])
    if post is not None:
        tokenizer.post_processor = post(tokenizer)
    path = f"{FOLDER}/{name}.json"
    tokenizer.save(path)
    return tokenizer, path


def around(tokenizer):
    return processors.TemplateProcessing(
        single="<|start|> $A <|end|>", pair="<|start|> $A $B <|end|>",
        special_tokens=[(name, tokenizer.token_to_id(name)) for name in ("<|start|>", "<|end|>")])


def kinds(text):
    byte_level = pre_tokenizers.ByteLevel
    special = [AddedToken(name, special=True, normalized=False) for name in SPECIAL[1:]]
    strips = [AddedToken("<|start|>", special=True, normalized=False, lstrip=True),
              AddedToken("<|end|>", special=True, normalized=False, rstrip=True),
              AddedToken("<|endof", special=True, normalized=False, lstrip=True, rstrip=True),
              AddedToken("hello", special=False, normalized=True), AddedToken("ell", special=False, normalized=False),
              AddedToken("  ", special=False, normalized=True)]
    yield tokenizer_of("gpt2", byte_level(add_prefix_space=False), text, special)
    yield tokenizer_of("prefix", byte_level(add_prefix_space=True), text, strips)
    yield tokenizer_of("one_piece", byte_level(add_prefix_space=False, use_regex=False), text[:4000], special)
    yield tokenizer_of("llama3", split_then_bytes("llama3"), text, special, whole=True, post=around)
    yield tokenizer_of("qwen2", split_then_bytes("qwen2"), text, strips,
                       post=lambda t: processors.Sequence([processors.ByteLevel(trim_offsets=False), around(t)]))


def check_ids(tokenizer, path, cases):
    asked = hexes(cases)
    tokens, text, whole = (ask(mode, path, asked) for mode in ("tokens", "text", "whole"))
    for i, case in enumerate(cases):
        tokenizer.encode_special_tokens = False
        wanted = tokenizer.encode(case, add_special_tokens=False).ids
        assert numbers(tokens[i]) == wanted, (path, case, numbers(tokens[i]), wanted)
        wanted_whole = tokenizer.encode(case).ids
        assert numbers(whole[i]) == wanted_whole, (path, case, whole[i], wanted_whole)
        tokenizer.encode_special_tokens = True
        wanted = tokenizer.encode(case, add_special_tokens=False).ids
        assert numbers(text[i]) == wanted, (path, case, numbers(text[i]), wanted)
    tokenizer.encode_special_tokens = False
    for case, ids, answer in zip(cases, tokens, ask("decode", path, tokens)):
        wanted = tokenizer.decode(numbers(ids), skip_special_tokens=False)
        assert bytes.fromhex(answer).decode() == wanted, (path, case, answer, wanted)


def check_copy(tokenizer, path, cases):
    """What is written is read by the reference as the same tokenizer."""
    copy = path[:-5] + "_copy.json"
    assert ask("copy", path, [copy]) == ["OK"]
    again = Tokenizer.from_file(copy)
    assert again.get_vocab() == tokenizer.get_vocab(), path
    for case in cases:
        assert again.encode(case).ids == tokenizer.encode(case).ids, (path, case)
    with open(path) as file:
        merges = json.load(file)
    # Older files have merges as strings.
    merges["model"]["merges"] = [" ".join(pair) for pair in merges["model"]["merges"]]
    with open(path[:-5] + "_old.json", "w") as file:
        json.dump(merges, file)
    assert ask("tokens", path[:-5] + "_old.json", hexes(cases)) == ask("tokens", path, hexes(cases))


# Training.

def check_training(pattern, least, vocabulary, text):
    path, out = f"{FOLDER}/corpus.txt", f"{FOLDER}/trained.json"
    with open(path, "w", newline="") as file:
        file.write(text)
    subprocess.run([TRAIN, f"--data={path}", f"--out={out}", f"--pattern={pattern}", f"--least_count={least}",
                    f"--vocabulary={vocabulary}"], check=True, stdout=subprocess.DEVNULL)
    reference = Tokenizer(models.BPE())
    reference.pre_tokenizer = (pre_tokenizers.ByteLevel(add_prefix_space=False) if pattern == "gpt2"
                               else split_then_bytes(pattern))
    reference.train_from_iterator([text], trainers.BpeTrainer(
        vocab_size=vocabulary, min_frequency=least, special_tokens=["<|endoftext|>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    with open(out) as file:
        ours = json.load(file)["model"]
    wanted = json.loads(reference.to_str())["model"]
    assert ours["merges"] == [pair if isinstance(pair, list) else pair.split(" ") for pair in wanted["merges"]], (
        pattern, least, next(pair for pair in zip(ours["merges"], wanted["merges"]) if pair[0] != pair[1]))
    assert ours["vocab"] == wanted["vocab"], (pattern, least)
    read = Tokenizer.from_file(out)
    for case in texts(5, 50):
        assert read.encode(case).ids == reference.encode(case).ids


def main():
    many = int(TEXTS)
    check_all_characters()
    for pattern in PATTERNS:
        check_pieces(pattern, texts(1, 10 * many))
    for seed, (tokenizer, path) in enumerate(kinds(corpus(2))):
        check_ids(tokenizer, path, texts(10 + seed, many))
        check_copy(tokenizer, path, texts(20 + seed, 100))
    for pattern in PATTERNS:
        for seed, least, vocabulary in ((0, 2, 600), (1, 1, 100000), (2, 5, 2000)):
            check_training(pattern, least, vocabulary, corpus(30 + seed))


main()
