"""Source code of Python: words of its names, keywords and operators, and the syntax tree above them.

n tokens · e edges
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from textwrap import dedent
from typing import Any

import torch
from torch import Tensor

from seqkit.errors import DataError
from seqkit.interfaces import Tokenizer, Tokens, TokenSpec
from seqkit.tokenizers.adjacency import build_adjacency, merge_edges, num_adjacency_types
from seqkit.tokenizers.given import counted
from seqkit.tokenizers.text import Words, checked, each_text

NEXT, TREE = 0, 1
"""Types of edges: to the token before or after, and to the token that stands for the syntax node above."""

NUM_TYPES = 2

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|_+")
_LAYOUT = {tokenize.NEWLINE: "<newline>", tokenize.INDENT: "<indent>", tokenize.DEDENT: "<dedent>"}
_CONTENT = {tokenize.STRING: "<string>", tokenize.NUMBER: "<number>"}
_DROPPED = {tokenize.COMMENT, tokenize.NL, tokenize.ENCODING, tokenize.ENDMARKER}


@dataclass(frozen=True, slots=True)
class Lexeme:
    """A word of the source, and where its token begins: line from 1, column in bytes of UTF-8, as `ast` counts."""

    word: str
    place: tuple[int, int]


class PythonCode(Tokenizer):
    """Source code of Python as words: `read_file(x)` becomes read, _, file, (, x, ).

    Names are cut at underscores and capitals. Strings and numbers are one word each for all values, and so are the ends
    of lines and changes of indentation; comments are left out. Positions [n 1] count tokens. max_words: words with an
    id of their own, the most frequent of the training code; all others share id 0.
    tree: True: tokens attend along the syntax tree alone: to those before and after, and up to `max_distance` hops to
    others, where the token of a node's first word stands for the node, and is joined with the words of the node and
    with its parent. Hops from `max_hops` on share an edge type. The distances are those of the tree with its leaves in
    order (compare Zügner et al. 2021, Code Transformer, section 3).
    When: functions and modules of Python.

    >>> code = PythonCode()
    >>> code.fit(["def read_file(path): return path"])
    >>> code.decode(code.encode("def path(file): return file"))
    'def path ( file ) : return file <newline>'
    """

    def __init__(
        self, max_words: int = 5_000, *, tree: bool = False, max_distance: int | None = 3, max_hops: int = 3
    ) -> None:
        num_adjacency_types(NUM_TYPES, max_distance, max_hops)  # raises on counts below 1
        self._words = Words(max_words, split="spaces")
        self.tree, self.max_distance, self.max_hops = tree, max_distance, max_hops

    @property
    def spec(self) -> TokenSpec:
        """Ids on one axis, with an adjacency if `tree`. Raises ValueError before `fit`."""
        types = num_adjacency_types(NUM_TYPES, self.max_distance, self.max_hops) if self.tree else 0
        return TokenSpec(vocab_size=self._words.vocab_size, num_edge_types=types)

    def fit(self, raws: Iterable[str]) -> None:
        """Take the most frequent words of the training code. Raises DataError where it is no Python."""
        self._words.fit(" ".join(one.word for one in lexemes(text)) for text in each_text(raws))

    def state(self) -> dict[str, Any]:
        return self._words.state()

    def load_state(self, state: dict[str, Any]) -> None:
        """Take back what `state` gave. Raises ValueError if it is not that."""
        self._words.load_state(state)

    def read(self, path: Path) -> str:
        """The text of a file, in the encoding that it declares. Raises DataError where it is in another."""
        try:
            with tokenize.open(path) as file:
                return file.read()
        except (SyntaxError, UnicodeDecodeError) as error:
            raise DataError(f"{path} is not in the encoding that it declares: {error}") from None

    def encode(self, raw: Any, /) -> Tokens:
        """Code as ids [n]; positions [n 1]; edges along the tree if `tree`. Raises DataError where it is no Python."""
        found = lexemes(raw)
        content = self._words.encode(" ".join(one.word for one in found)).content
        return Tokens(content, counted(len(found)), self._adjacency(raw, found) if self.tree else None)

    def decode(self, tokens: Any) -> str:
        """The words with spaces between them; layout, values and unknown words are lost."""
        return self._words.decode(tokens)

    def _adjacency(self, raw: str, found: list[Lexeme]) -> Any:
        n = len(found)
        edges = [*pairwise(range(n)), *tree_edges(parsed(raw), found)]
        types = torch.tensor([NEXT] * (n - 1) + [TREE] * (len(edges) - n + 1), dtype=torch.int64)
        index = torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).T
        merged, kinds = _without_second(index, types, n)
        return build_adjacency(
            merged, kinds, n, num_edge_types=NUM_TYPES, max_distance=self.max_distance, max_hops=self.max_hops
        )


def _without_second(index: Tensor, types: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Edges both ways, without loops; a pair that has both types keeps the first, which is NEXT."""
    seen: dict[tuple[int, int], int] = {}
    for (a, b), kind in zip(index.T.tolist(), types.tolist()):
        if a != b:
            seen.setdefault((min(a, b), max(a, b)), kind)
    pairs = torch.tensor(list(seen), dtype=torch.int64).reshape(-1, 2).T
    return merge_edges(pairs, torch.tensor(list(seen.values()), dtype=torch.int64), n, directed=False)


def parsed(raw: Any) -> ast.Module:
    """The syntax tree of a text. Raises DataError with the line where it is no Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # escapes that will be errors in later versions of Python
            return ast.parse(dedent(checked(raw)))
    except SyntaxError as error:
        raise DataError(f"line {error.lineno}: {error.msg}; give code that this version of Python can parse") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise DataError(f"the code cannot be parsed ({type(error).__name__}: {error}); leave it out") from None


def lexemes(raw: Any) -> list[Lexeme]:
    """Words of the code in order. Raises DataError where it is no Python, or holds comments alone."""
    parsed(raw)
    found: list[Lexeme] = []
    for token in tokenize.generate_tokens(io.StringIO(dedent(raw)).readline):
        if token.type in _DROPPED:
            continue
        line, column = token.start
        place = line, len(token.line[:column].encode(errors="surrogatepass"))
        if token.type == tokenize.NAME:
            words = _WORD.findall(token.string) or [token.string]
        else:
            words = [_LAYOUT.get(token.type) or _CONTENT.get(token.type) or token.string]
        found += [Lexeme(word, place) for word in words]
    if not found:
        raise DataError("the code holds comments alone; leave it out")
    return found


def tree_edges(tree: ast.Module, found: list[Lexeme]) -> list[tuple[int, int]]:
    """Edges between the first word of each syntax node and the words that are its own, and the first of its parent."""
    at: dict[tuple[int, int], int] = {}
    for i, one in enumerate(found):
        at.setdefault(one.place, i)
    spans: list[tuple[tuple[int, int], tuple[int, int], int]] = []
    edges: list[tuple[int, int]] = []

    waiting: list[tuple[ast.AST, int | None]] = [(tree, None)]  # a list, as long sums nest deeper than calls may
    while waiting:
        node, parent = waiting.pop()
        own = parent
        if isinstance(node, ast.expr | ast.stmt | ast.arg | ast.keyword | ast.ExceptHandler | ast.alias):
            begin = (node.lineno, node.col_offset)
            own = at.get(begin, parent)
            if own is not None:
                spans.append((begin, (node.end_lineno or 0, node.end_col_offset or 0), own))
                if parent is not None and parent != own:
                    edges.append((parent, own))
        waiting += [(child, own) for child in ast.iter_child_nodes(node)]
    spans.sort(key=lambda span: (span[0], [-x for x in span[1]]))
    inside: list[tuple[tuple[int, int], int]] = []  # ends of the nodes around a word, and their first words
    place = 0
    for i, one in enumerate(found):
        while place < len(spans) and spans[place][0] <= one.place:
            inside.append(spans[place][1:])
            place += 1
        while inside and inside[-1][0] <= one.place:
            inside.pop()
        if inside and inside[-1][1] != i:
            edges.append((inside[-1][1], i))
    return edges
