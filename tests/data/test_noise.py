"""Inputs that are noise: nothing of what tokens say is left, everything else is as it was."""

import pytest
import torch
from data.test_drop_parts import RAWS, Given, join

from seqkit.data import DataModule
from seqkit.data.mixture import MixtureData
from seqkit.data.windows import TextWindows
from seqkit.objectives import Classify, NextToken
from seqkit.tokenizers import Bytes, Series

OTHERS = [{**raw, "text": raw["text"].upper(), "series": [[9.0], [8.0], [7.0]]} for raw in RAWS]


def module(noise, raws=RAWS, tokenizer=None, objective=None, seed=3, **settings):
    data = DataModule(
        Given(raws), tokenizer or join(), objective or Classify(), batch_size=4, noise=noise, seed=seed, **settings
    )
    data.setup()
    return data


def batches(data, split="train"):
    return list(getattr(data, f"{split}_dataloader")())


def content(batch, name):
    return batch[0].parts[name].batch.content


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_what_the_tokens_of_a_part_say_is_gone_and_all_else_is_as_it_was(split):
    plain, noisy = batches(module(None), split), batches(module(["text", "series"]), split)
    for one, other in zip(plain, noisy, strict=True):
        assert torch.equal(one[1], other[1])
        for name, part in one[0].parts.items():
            found = other[0].parts[name]
            is_equal = torch.equal(part.batch.content, found.batch.content)
            assert is_equal == (name not in ("text", "series"))
            for same in ("positions", "valid"):
                assert torch.equal(getattr(part.batch, same), getattr(found.batch, same))
            assert not found.batch.content[~found.batch.valid].any()
        assert torch.equal(one[0].content, other[0].content)
        assert torch.equal(one[0].adjacency.edge_index, other[0].adjacency.edge_index)
    assert module(None).sha256() == module(["text"]).sha256()


def test_other_examples_of_the_same_lengths_give_the_same_noise():
    one, other = batches(module(["text", "series"])), batches(module(["text", "series"], OTHERS))
    for first, second in zip(one, other, strict=True):
        for name in ("text", "series"):
            assert torch.equal(content(first, name), content(second, name))
    plain = zip(batches(module(None)), batches(module(None, OTHERS)), strict=True)
    assert not all(torch.equal(content(first, "series"), content(second, "series")) for first, second in plain)


def test_noise_is_drawn_by_seed_and_epoch_and_again_with_the_same_ones():
    loader = module(True).train_dataloader()
    first, second = list(loader), list(loader)
    again, seeded = batches(module(True)), batches(module(True, seed=4))
    assert all(torch.equal(content(x, "series"), content(y, "series")) for x, y in zip(first, again, strict=True))
    for other in (second, seeded):
        assert not torch.equal(content(first[0], "series"), content(other[0], "series"))


def test_all_kinds_of_content_become_noise():
    cells = content(batches(module(True))[0], "cells")
    plain = batches(module(None))[0][0].parts["cells"].batch
    noisy = batches(module(True))[0][0].parts["cells"].batch
    assert cells.dtype == plain.content.dtype
    assert plain.features is None or not torch.equal(plain.features, noisy.features)
    series = module(True, [[[float(i)], [1.0]] for i in range(400)], Series(1))
    drawn = torch.cat([tokens.content[tokens.valid] for tokens, _ in batches(series)])
    assert abs(drawn.mean()) < 0.2
    assert abs(drawn.std() - 1) < 0.2


def test_windows_of_a_text_are_noise_too_and_a_task_of_a_mixture():
    class Texts(Given):
        def __init__(self):
            super().__init__(["ab" * 200, "ba" * 200])

    data = DataModule(Texts(), Bytes(), NextToken(), batch_size=4, window=16, noise=True)
    data.setup()
    drawn = torch.cat([tokens.content.flatten() for tokens, _ in batches(data)])
    assert isinstance(data.train_dataloader().examples, TextWindows)
    assert len(drawn.unique()) > 100  # of 256 bytes; the text has two
    mixed = MixtureData({"text": data, "other": module(None)})
    kinds = {batch.task: batch.tokens for batch in mixed.train_dataloader()}
    assert len(kinds["text"].content.unique()) > 2
    assert kinds["other"].parts is not None


@pytest.mark.parametrize(
    ("noise", "message"),
    [
        (["txt"], "noise names 'txt', which is no part; did you mean text"),
        (["text"], "noise names text, which the objective predicts"),
        ([], r"noise is \[\]; give true, names of parts"),
        ("text", "noise is 'text'; give true, names of parts"),
    ],
)
def test_parts_that_cannot_be_noise_are_refused(noise, message):
    with pytest.raises(ValueError, match=message):
        DataModule(Given(RAWS), join(), NextToken(part="text"), noise=noise)


def test_names_of_parts_are_refused_where_there_are_none():
    with pytest.raises(ValueError, match="give true"):
        DataModule(Given(["ab"]), Bytes(), Classify(), noise=["text"])
