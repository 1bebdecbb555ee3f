"""Generation of a part behind others: with a cache and without, alone and in a batch, by hand."""

import pytest
import torch
from graphs import graph_of

from seqkit.backbones.mamba import Mamba
from seqkit.backbones.rnn import GRU, LSTM
from seqkit.backbones.tcn import TCN
from seqkit.backbones.transformer import Transformer
from seqkit.generation.parts import before_last_run, continue_with_part
from seqkit.generation.sampling import Sampling
from seqkit.interfaces import IGNORE, TokenBatch
from seqkit.model import Model
from seqkit.nn.part_heads import END
from seqkit.nn.position.rotary import Rotary
from seqkit.objectives import NextToken
from seqkit.tokenizers import Graph, Ids, Join, Patches

DIM, SIZE, NEW = 24, 5, 6
g = torch.Generator().manual_seed(0)
IMAGES = [torch.rand(1, 4, 4 * n, generator=g) for n in (3, 1, 2)]
RAWS = [
    {"image": IMAGES[0]},
    {"image": IMAGES[1], "graph": graph_of(3, [(0, 1)])},
    [("image", IMAGES[2]), ("text", [1, 2]), ("image", IMAGES[1])],
    [("image", IMAGES[0])],
]
BACKBONES = {
    "Transformer": lambda: Transformer(
        DIM, 2, num_heads=3, causal=None, position=Rotary(interleaved=True)
    ),
    "causal": lambda: Transformer(
        DIM, 2, num_heads=3, causal=True, position=Rotary(interleaved=True)
    ),
    "added": lambda: Transformer(DIM, 2, num_heads=3, causal=None),
    **{
        kind.__name__: lambda kind=kind: kind(DIM, 1, causal=True)
        for kind in (LSTM, GRU, TCN, Mamba)
    },
}


def tokenizer() -> Join:
    return Join({"image": Patches(4), "graph": Graph(0, num_edge_types=1), "text": Ids(SIZE)})


def captioner(name: str) -> Model:
    torch.manual_seed(1)
    backbone = BACKBONES[name]()
    adjacency = "use" if backbone.supports_adjacency else "ignore"
    model = (
        Model(tokenizer().spec, backbone, NextToken(part="text"), adjacency=adjacency)
        .double()
        .eval()
    )
    for parameter in model.parameters():  # far from where all logits are alike
        torch.nn.init.normal_(parameter, std=0.3) if parameter.ndim > 1 else None
    return model


def by_hand(model: Model, raw) -> list[int]:
    """The likeliest id, again and again, each from the whole raw example encoded anew."""
    found: list[int] = []
    for _ in range(NEW):
        longer = {**raw, "text": found} if isinstance(raw, dict) else [*raw, ("text", found)]
        text = longer if found else raw
        batch = TokenBatch.collate([tokenizer().encode(text)]).with_dtype(torch.float64)
        hidden = model.backbone(
            model.embed(batch.replace(reach=batch.parts.prefix_reach("text", batch.valid)))
        )
        best = int(model.head.head(hidden[0, -1], None).argmax())
        if best == END:
            break
        found.append(best - 1)
    return found


@pytest.mark.parametrize("name", BACKBONES)
@pytest.mark.parametrize("use_cache", [None, False])
def test_what_is_generated_in_a_batch_is_what_a_loop_by_hand_gives(name, use_cache):
    model = captioner(name)
    got = continue_with_part(
        model, [tokenizer().encode(raw) for raw in RAWS], "text", NEW, use_cache=use_cache
    )
    expected = [by_hand(model, raw) for raw in RAWS]
    assert [row[row != IGNORE].tolist() for row in got] == expected
    assert len({tuple(row) for row in expected}) > 1, "the prefix matters"


def test_an_encoder_of_the_text_sees_all_of_it_in_every_step():
    torch.manual_seed(1)
    encoders = {"text": LSTM(DIM, 1, causal=True)}
    model = (
        Model(tokenizer().spec, BACKBONES["added"](), NextToken(part="text"), encoders=encoders)
        .double()
        .eval()
    )
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3) if parameter.ndim > 1 else None
    got = continue_with_part(model, [tokenizer().encode(raw) for raw in RAWS], "text", NEW)
    assert [row[row != IGNORE].tolist() for row in got] == [by_hand(model, raw) for raw in RAWS]


def test_the_end_ends_a_run_and_the_others_go_on():
    model = captioner("Transformer")
    examples = [tokenizer().encode(raw) for raw in RAWS]
    sampling = Sampling(temperature=1.5, seed=3)
    got = continue_with_part(model, examples, "text", 40, sampling=sampling)
    lengths = (got != IGNORE).sum(dim=1)
    assert len(set(lengths.tolist())) > 1
    for row, n in zip(got, lengths):
        assert bool((row[:n] >= 0).all())
        assert bool((row[n:] == IGNORE).all())


def test_what_the_objective_predicts_does_not_see_the_text_that_it_is_compared_with():
    objective, model = NextToken(part="text", max_new_tokens=NEW), captioner("Transformer")
    raws = [
        {**RAWS[0], "text": [3, 3]},
        {**RAWS[1], "text": [0]},
        [*RAWS[2], ("text", [4, 1, 2])],
        [*RAWS[3], ("text", [1])],
    ]
    objective.read_from(tokenizer())
    batch = TokenBatch.collate([tokenizer().encode(raw) for raw in raws]).with_dtype(torch.float64)
    with_text = objective.predict(model, batch)
    without = objective.predict(
        model, TokenBatch.collate([tokenizer().encode(raw) for raw in RAWS])
    )
    assert torch.equal(with_text[0], without[0])
    assert torch.equal(with_text, without)
    assert objective.references((batch, None)).tolist() == [
        [[3, 3, IGNORE]], [[0, IGNORE, IGNORE]], [[4, 1, 2]], [[1, IGNORE, IGNORE]]
    ]  # fmt: skip
    assert objective.decode(without) == [row[row != IGNORE].tolist() for row in without]


def test_an_example_of_the_text_alone_has_no_prefix():
    with pytest.raises(ValueError, match="before the part text"):
        before_last_run(tokenizer().encode({"text": [1]}), "text")


@pytest.mark.parametrize("bad", [{"part": "image"}, {"max_new_tokens": 0}, {"prefixes": []}])
def test_what_cannot_be_generated_is_refused(bad):
    given = {"prefixes": [tokenizer().encode(RAWS[0])], "part": "text", "max_new_tokens": 3} | bad
    with pytest.raises(ValueError, match=r"NextToken|1 or more|at least one"):
        continue_with_part(captioner("LSTM"), **given)
