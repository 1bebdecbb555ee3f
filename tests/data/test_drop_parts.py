"""Parts left out in training: drawn by seed, epoch and example, never all, never frozen into what is kept."""

from collections import Counter

import pytest
import torch
from data_records import records
from graphs import graph_of

from seqkit.data import DataModule, DataSource, Sample, Splits
from seqkit.data.drop_parts import DropParts
from seqkit.objectives import Classify, NextToken
from seqkit.tokenizers import Bytes, Cells, Graph, Join, Series

PARTS = ("text", "series", "cells", "graph")


def raw(i):
    return {
        "text": "ab"[: 1 + i % 2], "series": [[0.5], [float(i)], [1.0]],
        "cells": {"a": i / 3, "b": "xy"[i % 2]} if i % 3 else {"b": "x"}, "graph": graph_of(3, [(0, 1), (1, 2)]),
    }  # fmt: skip


RAWS = [raw(i) for i in range(24)]


def join():
    made = Join(
        {
            "text": Bytes(),
            "series": Series(1),
            "cells": Cells(),
            "graph": Graph(0, num_edge_types=1),
        }
    )
    made.fit(RAWS)
    return made


class Given(DataSource):
    def __init__(self, raws):
        self.samples = [Sample(one, i % 2) for i, one in enumerate(raws)]

    def splits(self):
        return Splits(self.samples, self.samples[:4], self.samples[:4])


def module(drop_parts, raws=RAWS, seed=3, **settings):
    settings = records(batch_size=4, drop_parts=drop_parts, seed=seed, **settings)
    data = DataModule(Given(raws), join(), Classify(), **settings)
    data.setup()
    return data


def parts_of(tokens):
    return tuple(name for name, _ in tokens.parts)


def as_list(example):
    return [(name, part) for name, part in reversed(example.items())]


@pytest.mark.parametrize("make", [dict, as_list])
@pytest.mark.parametrize(
    "dropped", [("text",), ("cells", "text"), ("graph", "series"), ("text", "series", "graph")]
)
def test_a_part_left_out_is_as_if_it_had_not_been_given(make, dropped):
    tokenizer = join()
    for one in RAWS[:7]:
        rest = {name: part for name, part in one.items() if name not in dropped}
        found = tokenizer.without(tokenizer.encode(make(one)), dropped)
        assert found.equals(tokenizer.encode(make(rest)))
        tokenizer.spec.check(found)


@pytest.mark.parametrize("make", [dict, as_list])
def test_every_epoch_draws_anew_from_the_tokens_that_are_kept(make):
    """An epoch's tokens are those of the raw example without the parts of its draw, whatever was asked for before."""
    data = module(0.5, [make(one) for one in RAWS])
    examples = data.train_dataloader().examples
    assert len(examples._cached) == len(RAWS), "tokens are kept"
    seen = set()
    for epoch in (0, 1, 2, 1, 0):
        for i, found in enumerate(examples.encoded(range(len(RAWS)), epoch)):
            names = parts_of(found)
            rest = {name: part for name, part in RAWS[i].items() if name in names}
            assert found.equals(data.tokenizer.encode(make(rest)))
            seen.add((i, epoch, names))
    assert len({(i, epoch) for i, epoch, _ in seen}) == len(seen), "the same epoch draws the same"
    assert len({(i, names) for i, _, names in seen}) > 2 * len(RAWS), (
        "another epoch draws otherwise"
    )


def test_draws_depend_on_seed_epoch_and_example_alone():
    whole = module(0.5).train_dataloader().examples
    alone, workers = (
        module(0.5).train_dataloader().examples,
        module(0.5, num_workers=2).train_dataloader(),
    )
    before = torch.get_rng_state()
    together = whole.encoded(range(len(RAWS)), 5)
    assert torch.equal(torch.get_rng_state(), before), "dropout's generator stays"
    for i in reversed(range(len(RAWS))):
        assert alone.encoded([i], 5)[0].equals(together[i])
    loaded = [batch for batch, _ in workers]
    expected = [batch for batch, _ in module(0.5).train_dataloader()]
    assert all(a.content.equal(b.content) for a, b in zip(loaded, expected, strict=True))
    other = module(0.5, seed=4).train_dataloader().examples.encoded(range(len(RAWS)), 5)
    assert not all(a.equals(b) for a, b in zip(other, together))


def test_resumed_in_the_middle_the_batches_are_the_same():
    loader, again = module(0.5).train_dataloader(), module(0.5).train_dataloader()
    for _ in range(2):
        batches = list(loader)
    again.load_state_dict({"epoch": 1, "yielded": 3})
    for ours, theirs in zip(batches[3:], again, strict=True):
        assert all(x.equal(theirs[0].tensors()[name]) for name, x in ours[0].tensors().items())


@pytest.mark.slow
def test_each_part_is_left_out_at_its_rate_and_one_stays():
    tokenizer = join()
    rates = {"text": 0.2, "cells": 0.7, "graph": 1.0}
    drop, tokens = DropParts(tokenizer, rates, seed=1), tokenizer.encode(RAWS[1])
    left = Counter(name for i in range(2000) for name in parts_of(drop(tokens, 0, i)))
    assert left["series"] == 2000
    assert left["graph"] == 0
    assert abs(left["text"] / 2000 - 0.8) < 0.04
    assert abs(left["cells"] / 2000 - 0.3) < 0.04
    every = Counter(parts_of(DropParts(tokenizer, 1.0)(tokens, 0, i)) for i in range(2000))
    assert set(every) == {(name,) for name in PARTS}
    assert min(every.values()) > 400, "which one stays is drawn, too"
    alone = tokenizer.encode({"text": "a"})
    assert DropParts(tokenizer, 1.0)(alone, 0, 0).equals(alone)


def test_held_out_splits_keep_all_parts_and_the_digest_is_that_of_the_whole():
    data, whole = module(0.9), module(None)
    for loader in ("val_dataloader", "test_dataloader"):
        for (ours, _), (theirs, _) in zip(
            getattr(data, loader)(), getattr(whole, loader)(), strict=True
        ):
            assert ours.content.equal(theirs.content)
    data.train_dataloader(), whole.train_dataloader()
    assert data.sha256() == whole.sha256()


def test_the_part_that_is_predicted_stays():
    data = DataModule(Given(RAWS), join(), NextToken(part="text"), drop_parts=1.0)
    assert set(data.drop.rates) == {"series", "cells", "graph"}
    with pytest.raises(ValueError, match="predicts"):
        DataModule(Given(RAWS), join(), NextToken(part="text"), drop_parts={"text": 0.5})


@pytest.mark.parametrize(
    ("rates", "settings", "said"),
    [
        ({"texts": 0.5}, {}, "drop_parts names 'texts', which is no part; did you mean text?"),
        (1.5, {}, "drop_parts is 1.5 for text; give a probability"),
        ({"text": -1}, {}, "drop_parts is -1 for text"),
        (0.5, {"tokenizer": Bytes()}, "those of Bytes have none"),
        (0.5, {"window": 7}, "drop_parts leaves out parts"),
    ],
)
def test_each_mistake_is_answered_in_one_line(rates, settings, said):
    with pytest.raises(ValueError) as error:
        DataModule(
            Given(RAWS),
            **records(
                **{"tokenizer": join(), "objective": Classify(), "drop_parts": rates} | settings
            ),
        )
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_labels_of_tokens_are_refused():
    source = Given(RAWS)
    source.samples = [Sample({"text": "ab"}, torch.tensor([0, 1])) for _ in range(8)]
    data = DataModule(source, join(), Classify(level="token"), drop_parts=0.5)
    data.setup()
    with pytest.raises(ValueError, match="label for each token"):
        data.train_dataloader()
