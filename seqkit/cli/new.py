"""`seqkit new tokenizer NAME`: a file with a working tokenizer, and its test."""

from __future__ import annotations

import keyword
import re
from argparse import Namespace
from importlib.util import find_spec
from pathlib import Path

from seqkit.errors import UsageError, one_line
from seqkit.registry import components

TOKENIZER = '''"""{name}: what its tokens are. Change the lines marked with an arrow."""

import torch

from seqkit import DataError, Tokenizer, Tokens, TokenSpec, register


@register("tokenizer", "{name}", what="one token per letter", when="a start for your own")  # <-
class {name}(Tokenizer):
    """Texts as letters, one id each; the letters are those of the training data."""

    examples = ["to be or not to be", "that is the question"]  # raw examples for `seqkit check`  # <-

    def __init__(self):
        self.letters = ""

    @property
    def spec(self):
        """Ids below the number of letters, in an order: one axis of positions."""
        if not self.letters:
            raise ValueError("{name} has no letters yet; call fit(texts)")
        return TokenSpec(vocab_size=len(self.letters))

    def fit(self, raws):
        """Learn from the training data. Leave it out, with state and load_state, if there is nothing to learn."""
        self.letters = "".join(sorted(set().union(*raws)))

    def state(self):
        """Learned values as plain JSON."""
        return {{"letters": self.letters}} if self.letters else {{}}

    def load_state(self, state):
        """Take back what `state` gave."""
        self.letters = state.get("letters", "")

    def encode(self, raw, /):
        """One raw example as tokens. Raises DataError with the reason where it cannot be one."""
        if not isinstance(raw, str) or not raw:
            raise DataError(f"this is a {{type(raw).__name__}}, not a text of one letter or more")
        unknown = set(raw) - set(self.letters)
        if unknown:
            raise DataError(f"the training data has no {{min(unknown)!r}}")
        ids = torch.tensor([self.letters.index(letter) for letter in raw])  # [n]  # <-
        return Tokens(ids, positions=torch.arange(float(len(raw)))[:, None])  # [n 1]

    def decode(self, tokens):
        """Tokens, or ids [n] as generation gives them, as a raw example. Leave it out if nothing is generated."""
        return "".join(self.letters[int(i)] for i in getattr(tokens, "content", tokens))

    def read(self, path):
        """The raw example in a file, for `--data FOLDER` and `seqkit predict RUN FILE`."""
        return path.read_text(encoding="utf-8").strip()
'''

TEST = '''"""{name} keeps the laws of tokenizers."""

from {module} import {name}

from seqkit.testing import check_tokenizer


def test_{module}_keeps_the_laws():
    tokenizer = {name}()
    tokenizer.fit({name}.examples)
    check_tokenizer(tokenizer, {name}.examples, unfitted={name}(), bad=["", 7, "?"])
'''


def run(args: Namespace) -> int:
    """Write the tokenizer's file and its test into a folder; print how to try them."""
    name, folder = args.name, args.out or Path()
    module = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    if not name.isidentifier() or not name.isascii() or keyword.iskeyword(module):
        raise UsageError(f"{name!r} cannot be the name of a class; give one such as HeartBeats")
    taken = {known.lower(): known for known in components("tokenizer")}
    if name.lower() in taken:
        raise UsageError(f"there is a tokenizer {taken[name.lower()]} already; pick another name")
    file, test = folder / f"{module}.py", folder / f"test_{module}.py"
    for path in (file, test):
        if path.exists():
            raise UsageError(f"{path} exists already; pick another name, or --out FOLDER")
    if find_spec(module) is not None:
        raise UsageError(f"there is a Python module {module} already, which {file} would hide; pick another name")
    folder.mkdir(parents=True, exist_ok=True)
    file.write_text(TOKENIZER.format(name=name), encoding="utf-8")
    test.write_text(TEST.format(name=name, module=module), encoding="utf-8")
    print(f"wrote {one_line(file)} and {one_line(test)}; try")
    print(f"  seqkit check {one_line(file)}")
    print(f"  seqkit fit text/char-lm --plugin {one_line(file)} --tokenizer {name} --preset debug")
    return 0
