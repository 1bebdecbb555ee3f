"""`reads_all_of_an_example` over examples that are mappings, dataclasses and arrays; laws of order and of positions."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from seqkit.interfaces import Tokenizer, Tokens, TokenSpec
from seqkit.testing import check_tokenizer

LAW = "reads_all_of_an_example"
ROWS = [
    [
        (100, 3, 0, 1),
        (140, 1, 2, 0),
        (190, 0, 1, 1),
        (260, 3, 3, 0),
        (300, 2, 1, 0),
        (410, 1, 1, 1),
        (480, 0, 0, 1),
    ],
    [(50, 1, 0, 0), (75, 2, 2, 1), (130, 3, 1, 1), (180, 0, 2, 0), (280, 1, 3, 1), (290, 2, 0, 0)],
]


NAMES = ("t", "x", "y", "polarity")


@dataclass
class Recording:
    camera: str
    events: list


def _events(raw):
    """Rows [n 4] of any of the forms below."""
    raw = raw.events if isinstance(raw, Recording) else raw
    if isinstance(raw, dict):
        return list(zip(*(raw[name] for name in NAMES), strict=True))
    return [tuple(int(v) for v in (row.values() if isinstance(row, dict) else row)) for row in raw]


class Events(Tokenizer):
    """Events of a camera (t, x, y, polarity): pixel and polarity as an id; positions are tenths of a millisecond."""

    spec = TokenSpec(vocab_size=32)

    def encode(self, raw, /):
        return self.tokens(_events(raw))

    def tokens(self, rows):
        if any(not (0 <= x < 4 and 0 <= y < 4 and p in (0, 1)) for _, x, y, p in rows):
            raise ValueError("outside the camera")
        ids = torch.tensor([8 * x + 2 * y + p for _, x, y, p in rows])
        return Tokens(ids, torch.tensor([[t / 10.0] for t, *_ in rows]))


class DropsLast(Events):
    def tokens(self, rows):
        return super().tokens(rows[:4])


class AllIdsZero(Events):
    def tokens(self, rows):
        tokens = super().tokens(rows)
        return Tokens(0 * tokens.content, tokens.positions)


class DropsTime(Events):
    def tokens(self, rows):
        return Tokens(super().tokens(rows).content, torch.arange(float(len(rows)))[:, None])


class DropsPolarity(Events):
    def tokens(self, rows):
        return super().tokens([(*row[:3], 0) for row in rows])


FORMS = {
    "dictionaries": [[dict(zip(NAMES, row, strict=True)) for row in rows] for rows in ROWS],
    "columns": [dict(zip(NAMES, map(list, zip(*rows)), strict=True)) for rows in ROWS],
    "arrays": [np.array(rows, dtype=np.int32) for rows in ROWS],
    "arrays of columns": [
        {n: np.array(c) for n, c in zip(NAMES, zip(*rows), strict=True)} for rows in ROWS
    ],
    "tensors": [torch.tensor(rows, dtype=torch.float32) for rows in ROWS],
}


@pytest.mark.parametrize("form", FORMS)
def test_a_sound_tokenizer_of_events_passes(form):
    assert LAW in _laws(Events(), FORMS[form])


@pytest.mark.parametrize("faulty", [DropsLast, AllIdsZero, DropsTime, DropsPolarity])
@pytest.mark.parametrize("form", FORMS)
def test_a_tokenizer_that_drops_events_or_a_column_is_named(faulty, form):
    with pytest.raises(AssertionError, match=f"^{faulty.__name__}: {LAW}: "):
        _laws(faulty(), FORMS[form])


def test_the_field_that_is_dropped_is_named():
    with pytest.raises(AssertionError, match=r"raw\['polarity'\]"):
        _laws(DropsPolarity(), FORMS["arrays of columns"])
    with pytest.raises(AssertionError, match=r"raw\[:, 0\]"):
        _laws(DropsTime(), FORMS["tensors"])
    recordings = [Recording("left", ROWS[0]), Recording("right", ROWS[1])]
    with pytest.raises(AssertionError, match=r"raw\.camera"):
        _laws(Events(), recordings)


class Opaque:
    """An example that nobody but its tokenizer can read."""

    def __init__(self, rows):
        self.rows = rows


class ReadsOpaque(Events):
    def encode(self, raw, /):
        return super().encode(raw.rows)


class TakesItsExamplesAlone(Events):
    def encode(self, raw, /):
        if raw not in ROWS:
            raise ValueError("unknown")
        return super().encode(raw)


@pytest.mark.parametrize(
    ("tokenizer", "raws"),
    [(ReadsOpaque(), [Opaque(rows) for rows in ROWS]), (TakesItsExamplesAlone(), ROWS)],
)
def test_where_nothing_can_be_changed_the_law_is_left_out_with_the_reason(tokenizer, raws):
    checked = check_tokenizer(tokenizer, raws, other_process=False)
    assert LAW not in {law.__name__ for law in checked}
    assert (
        checked.left_out[LAW]
        == f"encode accepts no change of the examples ({type(raws[0]).__name__})"
    )


def _laws(tokenizer, raws):
    return {law.__name__ for law in check_tokenizer(tokenizer, raws, other_process=False)}


# ── laws of order and of positions ───────────────────────────────────────────────────────────────────────────────────


class RemembersTheLongest(Events):
    """Positions are shares of the longest example so far; no attribute is named after its setting."""

    def __init__(self, scale=30.0):
        self.longest, self.factor = 0, scale

    def encode(self, raw, /):
        self.longest = max(self.longest, len(raw))
        tokens = super().encode(raw)
        return Tokens(
            tokens.content, self.factor * torch.arange(float(len(raw)))[:, None] / self.longest
        )


@pytest.mark.parametrize("raws", [ROWS, ROWS[::-1]])
def test_a_tokenizer_that_remembers_the_longest_example_is_named_in_any_order(raws):
    assert len(ROWS[0]) > len(ROWS[1])
    with pytest.raises(
        AssertionError, match=r"RemembersTheLongest: (any_order_gives_the_same|is_deterministic)"
    ):
        check_tokenizer(RemembersTheLongest(), raws, other_process=False, quick=True)


class CountsFromFarAway(Events):
    """A second axis has the second of the recording, which is large and the same in all."""

    spec = TokenSpec(vocab_size=32, num_axes=2)
    start = 1_700_000_001.0

    def tokens(self, rows):
        tokens = super().tokens(rows)
        return Tokens(
            tokens.content,
            torch.cat([tokens.positions, torch.full_like(tokens.positions, self.start)], 1),
        )


class CountsFromNear(CountsFromFarAway):
    start = 3.0


def test_an_axis_that_is_one_large_number_is_rounded():
    with pytest.raises(AssertionError, match=r"axis 1 of the positions is 1\.7e\+09"):
        check_tokenizer(CountsFromFarAway(), ROWS, other_process=False, quick=True)
    check_tokenizer(CountsFromNear(), ROWS, other_process=False, quick=True)
