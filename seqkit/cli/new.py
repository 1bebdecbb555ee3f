"""`seqkit new tokenizer NAME`, `seqkit new backbone NAME`: a file with a working one, and its test."""

from __future__ import annotations

import keyword
import re
from argparse import ArgumentParser, Namespace
from importlib.util import find_spec
from pathlib import Path

from seqkit.errors import UsageError, one_line
from seqkit.registry import components

_TOKENIZER = '''"""{name}: what its tokens are. Change the lines marked with an arrow."""

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

_TOKENIZER_TEST = '''"""{name} keeps the laws of tokenizers."""

from {module} import {name}

from seqkit.testing import check_tokenizer


def test_{module}_keeps_the_laws():
    tokenizer = {name}()
    tokenizer.fit({name}.examples)
    check_tokenizer(tokenizer, {name}.examples, unfitted={name}(), bad=["", 7, "?"])
'''


_BACKBONE = '''"""{name}: what its layers do. Change the lines marked with an arrow.

b batch · n tokens · d width
"""

import torch
from torch import nn

from seqkit import register
from seqkit.backbones.sequence import SequenceBackbone, StateCache


@register("backbone", "{name}", what="gated recurrent layers", when="a start for your own")  # <-
class {name}(SequenceBackbone):
    """Gated recurrent layers whose gates see the token alone: h_t = (1 - z_t) h_(t-1) + z_t c_t.

    causal: True: all layers run left to right; False: every other layer runs right to left.
    """

    is_recurrent = True  # it knows the order of tokens by their columns

    def __init__(self, dim, depth=2, *, causal=False):
        super().__init__()
        self.dim, self.causal = dim, causal
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(depth if causal else 2 * depth))
        self.layers = nn.ModuleList(nn.Linear(dim, 2 * dim) for _ in self.norms)

    def run(self, embedded, cache):
        """Hidden states [b n d]. cache: what `new_cache` made, or None: all tokens are here."""
        real = embedded.valid[..., None]  # [b n 1], False where padded
        x = embedded.hidden.masked_fill(~real, 0.0)
        for index, (norm, layer) in enumerate(zip(self.norms, self.layers)):
            gate, candidate = layer(norm(x)).chunk(2, dim=-1)  # <-
            gate = gate.sigmoid() * real  # zero: padding leaves the state as it is
            state = None if cache is None else cache.states[index]
            backwards = not self.causal and index % 2 == 1
            states = self.scan(gate, candidate, state, backwards)
            if cache is not None:
                cache.states[index] = states[:, -1]
            x = x + states
        return x

    def scan(self, gate, candidate, state, backwards):
        """States [b n d] after each token. state: [b d] before the first; None: zero."""
        state = torch.zeros_like(gate[:, 0]) if state is None else state
        columns = range(gate.shape[1])
        found = {{}}
        for t in reversed(columns) if backwards else columns:
            state = found[t] = (1 - gate[:, t]) * state + gate[:, t] * candidate[:, t]  # <-
        return torch.stack([found[t] for t in columns], dim=1)

    def new_cache(self):
        """An empty cache with a state for each layer. Only a causal backbone is asked for it."""
        return StateCache(len(self.layers))
'''

_BACKBONE_TEST = '''"""{name} keeps the laws of backbones."""

from {module} import {name}

from seqkit.testing import check_backbone


def test_{module}_keeps_the_laws():
    check_backbone({name})
'''

FILES = {"tokenizer": (_TOKENIZER, _TOKENIZER_TEST), "backbone": (_BACKBONE, _BACKBONE_TEST)}
"""A file of each kind of component, and its test."""

TRY = {
    "tokenizer": "fit text/char-lm --plugin {file} --tokenizer {name}",
    "backbone": "fit image/digits --plugin {file} --model.backbone {name}",
}
"""How a component of each kind is trained."""


def run(args: Namespace) -> int:
    """Write the component's file and its test into a folder; print how to try them."""
    name, folder = args.name, args.out or Path()
    module = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    if not name.isidentifier() or not name.isascii() or keyword.iskeyword(module):
        raise UsageError(f"{name!r} cannot be the name of a class; give one such as HeartBeats")
    taken = {known.lower(): known for known in components(args.kind)}
    if name.lower() in taken:
        raise UsageError(f"there is a {args.kind} {taken[name.lower()]} already; pick another name")
    file, test = folder / f"{module}.py", folder / f"test_{module}.py"
    for path in (file, test):
        if path.exists():
            raise UsageError(f"{path} exists already; pick another name, or --out FOLDER")
    if find_spec(module) is not None:
        raise UsageError(f"there is a Python module {module} already, which {file} would hide; pick another name")
    folder.mkdir(parents=True, exist_ok=True)
    source, its_test = FILES[args.kind]
    file.write_text(source.format(name=name), encoding="utf-8")
    test.write_text(its_test.format(name=name, module=module), encoding="utf-8")
    print(f"wrote {one_line(file)} and {one_line(test)}; try")
    print(f"  seqkit check {one_line(file)}")
    print(f"  seqkit {TRY[args.kind].format(file=one_line(file), name=name)} --preset debug")
    return 0


def add_arguments(parser: ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("kind", choices=("tokenizer", "backbone"), help="tokenizer or backbone")
    parser.add_argument("name", help="name of the class, such as HeartBeats")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="where to write (default: here)")
