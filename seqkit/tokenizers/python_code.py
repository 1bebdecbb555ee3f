"""Source code of Python: words of its names, keywords and operators, and the syntax tree above them.

n tokens · e edges
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
import warnings
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from textwrap import dedent
from typing import Any

import torch

from seqkit.errors import DataError
from seqkit.interfaces import Adjacency, Tokenizer, Tokens, TokenSpec
from seqkit.tokenizers.adjacency import build_adjacency, merge_edges, num_adjacency_types
from seqkit.tokenizers.given import counted
from seqkit.tokenizers.text import Words, checked, each_text

WORD = re.compile(r"[A-Z]+(?![^\W\d_A-Z])|[A-Z]?[^\W\d_A-Z]+|\d+")
"""Words of a name: `_readFile2` has read, File and 2."""

_VALUES = {"NUMBER": "<number>", "STRING": "<string>", "FSTRING_MIDDLE": "<string>"}
_PUNCTUATION = set("()[]{},:.;")


class PythonCode(Tokenizer):
    """Source code of Python as words: `readFile(x + 1)` becomes read, File, x, +, <number>.

    They are the leaves of the syntax tree, keywords and operators; names are cut at underscores and capitals, and all
    strings, and all numbers, are one word. Punctuation, comments and layout are left out. Positions [n 1] count tokens.
    Code is parsed, and never run.
    max_words: words with an id of their own, the most frequent of the training code; all others share id 0.
    tree: True: tokens attend to those beside them, and along the syntax tree to those at most `max_distance` hops away,
    with an edge type for each number of hops. The first token of a syntax node stands for it, and is joined with that
    of its parent, and with the tokens that are in no smaller node (the tree with its leaves, of which Zügner et al.
    2021, Code Transformer, section 3, take distances).
    When: functions and modules of Python.

    >>> code = PythonCode()
    >>> code.fit(["def read_file(path): return path"])
    >>> code.words.decode(code.encode("def path(file): return file"))
    'def path file return file'
    """

    def __init__(
        self, max_words: int = 5_000, *, tree: bool = False, max_distance: int = 2
    ) -> None:
        # raises on a count below 1
        self.num_types = num_adjacency_types(2, max_distance, max_distance)
        self.max_words = max_words
        self.words = Words(max_words, split="spaces")
        self.tree = tree
        self.max_distance = max_distance

    @property
    def spec(self) -> TokenSpec:
        """Ids on one axis, with an adjacency if `tree`. Raises ValueError before `fit`."""
        return TokenSpec(
            vocab_size=self.words.vocab_size, num_edge_types=self.num_types if self.tree else 0
        )

    def fit(self, raws: Iterable[str]) -> None:
        """Take the most frequent words of the training code. Raises DataError where it is no Python."""
        self.words.fit(" ".join(split(raw)[0]) for raw in each_text(raws))

    def state(self) -> dict[str, list[str]]:
        return self.words.state()

    def load_state(self, state: dict[str, list[str]]) -> None:
        """Take back what `state` gave. Raises ValueError if it is not that."""
        self.words.load_state(state)

    def encode(self, raw: Any, /) -> Tokens:
        """Code as ids [n]; positions [n 1]; edges along the tree if `tree`. Raises DataError where it is no Python."""
        words, places, module = split(raw)
        content = self.words.encode(" ".join(words)).content
        adjacency = self._adjacency(places, module) if self.tree else None
        return Tokens(content, counted(len(words)), adjacency)

    def cut(self, tokens: Tokens, n: int) -> Tokens:
        """The first n tokens, and the edges among them."""
        return tokens.at(slice(n))

    def _adjacency(self, places: Sequence[tuple[int, int]], module: ast.Module) -> Adjacency:
        """Edges of type 0 join tokens side by side, of type 1 a node and what is directly in it."""
        n = len(places)
        hops = self.max_distance
        beside = torch.stack([torch.arange(n - 1), torch.arange(1, n)])
        within = torch.tensor(tree_edges(places, module), dtype=torch.int64).reshape(-1, 2).T
        within = within[:, (within[0] - within[1]).abs() > 1]
        types = torch.arange(2).repeat_interleave(torch.tensor([n - 1, within.shape[1]]))
        edges, types = merge_edges(torch.cat([beside, within], dim=1), types, n, directed=False)
        return build_adjacency(edges, types, n, num_edge_types=2, max_distance=hops, max_hops=hops)


def parsed(code: str | bytes) -> ast.Module:
    """The syntax tree of code, or of a file's bytes. Raises DataError with the line where it is no Python."""
    try:
        with warnings.catch_warnings():
            # escapes that will be errors in later versions of Python
            warnings.simplefilter("ignore")
            return ast.parse(code)
    except SyntaxError as error:
        where = "" if error.lineno is None else f"line {error.lineno}: "
        raise DataError(
            f"{where}{error.msg}; give code that this version of Python can parse"
        ) from None
    except (
        ValueError,
        RecursionError,
        MemoryError,
    ):  # null bytes, half surrogate pairs, too many brackets
        raise DataError(
            "the code cannot be parsed: it has null bytes, or nests too deep; leave it out"
        ) from None


def split(raw: Any) -> tuple[list[str], list[tuple[int, int]], ast.Module]:
    """Words of code, the line from 1 and column in bytes where each begins, as `ast` counts, and the syntax tree.

    Raises DataError where it is no Python.
    """
    text = dedent(checked(raw))
    module = parsed(text)
    words = list[str]()
    places = list[tuple[int, int]]()
    for kind, string, (line, column), _, source in tokenize.generate_tokens(
        io.StringIO(text).readline
    ):
        value = _VALUES.get(tokenize.tok_name[kind])
        if value is None and (kind not in (tokenize.NAME, tokenize.OP) or string in _PUNCTUATION):
            continue
        place = len(source[:column].encode())
        for word in [value] if value else WORD.findall(string) or [string]:
            words.append(word)
            places.append((line, place))
            place += len(word.encode())
    if not words:
        raise DataError("the code holds comments or punctuation alone; leave it out")
    return words, places, module


def tree_edges(places: Sequence[tuple[int, int]], module: ast.Module) -> list[tuple[int, int]]:
    """Pairs [e 2] of tokens: first ones of a syntax node and its parent, and the node's first and its other ones."""
    inner = [-1] * len(places)  # first token of the smallest node around each token
    edges: list[tuple[int, int]] = []
    # a list, since long sums nest deeper than calls may
    waiting: list[tuple[Any, int]] = [(module, -1)]
    while waiting:
        node, own = waiting.pop()
        if hasattr(node, "end_lineno"):
            first = bisect_left(places, (node.lineno, node.col_offset))
            last = bisect_left(places, (node.end_lineno, node.end_col_offset))
            if first < last and first != own:
                inner[first:last] = [first] * (last - first)
                if own >= 0:
                    edges.append((own, first))
                own = first
        waiting += [(child, own) for child in ast.iter_child_nodes(node)]
    return edges + [(first, i) for i, first in enumerate(inner) if first not in (-1, i)]
