"""Objectives of parts of joined tokens: what each predicts, from which column, and what it may see.

b batch · n columns · r runs · m tokens of a run
"""

from functools import partial
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from graphs import graph_of
from torch.testing import assert_close

from seqkit.backbones.mamba import Mamba
from seqkit.backbones.rnn import GRU, LSTM
from seqkit.backbones.tcn import TCN
from seqkit.backbones.transformer import Transformer
from seqkit.errors import UsageError
from seqkit.interfaces import IGNORE, TokenBatch
from seqkit.model import Model
from seqkit.nn.mlp import Transform
from seqkit.nn.part_heads import END
from seqkit.nn.position.rotary import Rotary
from seqkit.objectives import Classify, Masked, NextToken
from seqkit.tokenizers import Graph, Ids, Join, Patches, Series

DIM, SIZE = 24, 5
IMAGE = torch.rand(1, 4, 12, generator=torch.Generator().manual_seed(0))
RAWS = [
    {"image": IMAGE, "text": [1, 2, 3]},
    {"text": [4]},
    [("image", IMAGE), ("text", [0, 1]), ("image", IMAGE[:, :, :8]), ("text", [2, 2, 4])],
    {"image": IMAGE[:, :, :4], "text": [3, 0]},
]


def join() -> Join:
    return Join({"image": Patches(4), "text": Ids(SIZE)})


def batch_of(*raws) -> TokenBatch:
    return TokenBatch.collate([join().encode(raw) for raw in raws]).with_dtype(torch.float64)


def transformer(causal: bool | None) -> Transformer:
    return Transformer(DIM, 3, num_heads=3, causal=causal, position=Rotary(interleaved=True))


def captioner(backbone=None) -> Model:
    torch.manual_seed(0)
    model = (
        Model(join().spec, backbone or transformer(None), NextToken(part="text")).double().eval()
    )
    torch.nn.init.normal_(model.embedder.get_parameter("modality"))
    return model


# ── NextToken of a part ──────────────────────────────────────────────────────────────────────────────────────────────


def test_the_reach_of_a_prefix_is_its_definition():
    for raw in RAWS:
        batch = batch_of(raw).pad(2)
        owner = [name for name, run in join().encode(raw).parts for _ in range(len(run))]
        expected = []
        for i, name in enumerate(owner):
            later = [j for j in range(i, len(owner)) if owner[j] == "text"]
            expected.append(i if name == "text" else (later[0] - 1 if later else len(owner) - 1))
        assert batch.parts.prefix_reach("text", batch.valid)[0, : len(owner)].tolist() == expected


def test_a_token_is_predicted_from_the_column_before_it_and_the_end_from_the_last():
    """By hand: hidden states of each example, a loop over its columns."""
    model, objective = captioner(), NextToken(part="text")
    expected, count = torch.zeros((), dtype=torch.float64), 0
    for raw in RAWS:
        batch = batch_of(raw)
        hidden = model.backbone(
            model.embed(batch.replace(reach=batch.parts.prefix_reach("text", batch.valid)))
        )[0]
        logits = model.head.head(hidden, None)
        column = 0
        for name, run in join().encode(raw).parts:
            ids = [*(int(i) + 1 for i in run.content), END] if name == "text" else []
            for offset, wanted in enumerate(ids):
                if column + offset > 0:
                    expected = expected + F.cross_entropy(
                        logits[column + offset - 1], torch.tensor(wanted)
                    )
                    count += 1
            column += len(run)
    output = objective.step(model, (batch_of(*RAWS), None))
    assert int(output.count) == count
    assert_close(
        output.loss.detach(), expected.detach().float().to(output.loss.dtype), rtol=1e-5, atol=1e-5
    )


def test_nothing_leaks_from_behind_the_reach_at_any_depth():
    """Gradients of the predictions by the embeddings: exactly zero behind, not zero within."""
    model, batch = captioner(), batch_of(RAWS[2])
    batch = batch.replace(reach=batch.parts.prefix_reach("text", batch.valid))
    embedded = model.embed(batch)
    leaf = embedded.hidden.detach().requires_grad_()
    hidden = model.backbone(embedded.replace(hidden=leaf))[0]
    assert batch.reach is not None
    for i, reach in enumerate(batch.reach[0].tolist()):
        gradient = torch.autograd.grad(
            hidden[i] @ torch.randn(DIM).double(), leaf, retain_graph=True
        )[0][0]
        assert not bool(gradient[reach + 1 :].any())
        assert bool((gradient[: reach + 1].abs().amax(dim=1) > 0).all())


@pytest.mark.parametrize("kind", [LSTM, GRU, TCN, Mamba, Transformer])
def test_a_causal_backbone_keeps_the_reach_by_seeing_less(kind):
    model = captioner(transformer(True) if kind is Transformer else kind(DIM, 1, causal=True))
    objective = NextToken(part="text")
    together = objective.step(model, (batch_of(*RAWS), None))
    alone = [objective.step(model, (batch_of(raw), None)) for raw in RAWS]
    assert_close(together.loss, torch.stack([x.loss for x in alone]).sum())
    assert int(together.count) == sum(int(x.count) for x in alone) == 3 + 1 + 1 + 3 + 4 + 3


def test_examples_of_a_batch_do_not_depend_on_each_other():
    model, objective = captioner(), NextToken(part="text")
    together = objective.step(model, (batch_of(*RAWS), None))
    alone = [objective.step(model, (batch_of(raw), None)).loss for raw in RAWS]
    assert_close(together.loss, torch.stack(alone).sum())


def test_the_baseline_is_the_frequencies_of_ids_and_ends():
    step = NextToken(part="text").baseline_step([(batch_of(*RAWS), None)], join().spec)
    assert step is not None
    output = step((batch_of(*RAWS), None))
    target = NextToken(part="text").prepare(batch_of(*RAWS), None).target
    counts = torch.bincount(target[target != IGNORE], minlength=SIZE + 1).double() + 1
    expected = -(counts / counts.sum()).log()[target[target != IGNORE]].sum()
    assert_close(output.loss.double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("objective", "fault"),
    [
        (lambda: NextToken(part="image"), "these tokens are vectors"),
        (lambda: NextToken(part="text", tied=True), "no row for their end"),
        (lambda: NextToken(part="txt"), "did you mean text"),
    ],
)
def test_a_part_that_cannot_be_predicted_is_refused_when_the_model_is_built(objective, fault):
    with pytest.raises(ValueError, match=fault):
        Model(join().spec, transformer(True), objective())


def test_a_batch_without_the_part_has_no_prediction_and_gradients_of_zero():
    """A batch of examples that lack it may come at any time, and every device must take part in the step."""
    model = captioner()
    output = NextToken(part="text").step(model, (batch_of({"image": IMAGE}), None), training=True)
    output.loss.backward()
    assert (float(output.loss.detach()), int(output.count)) == (0.0, 0)
    assert all(p.grad is not None and not bool(p.grad.any()) for p in model.parameters())


# ── Masked ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_all_parts_are_masked_and_each_predicted_by_its_head():
    objective = Masked(fraction=0.5)
    model, batch = (
        Model(join().spec, transformer(False), objective).double().eval(),
        batch_of(*RAWS),
    )
    torch.manual_seed(3)
    masked = objective._masked(batch)
    assert bool((masked.sum(1) >= 1).all())
    assert not bool((masked & ~batch.valid).any())
    predictions = model(batch, masked)
    assert batch.parts is not None
    expected = torch.zeros((), dtype=torch.float64)
    for name, part in batch.parts.items():
        hides = masked.reshape(-1)[part.columns] & part.batch.valid
        for run, token in hides.nonzero().tolist():
            got, wanted = predictions[name][run, token], part.batch.content[run, token]
            expected += F.mse_loss(got, wanted) if name == "image" else F.cross_entropy(got, wanted)
    torch.manual_seed(3)
    output = objective.step(model, (batch, None))
    assert_close(output.loss.double(), expected, rtol=1e-5, atol=1e-5)
    assert int(output.count) == int(masked.sum())


@pytest.mark.parametrize(
    "settings", [{}, {"transform": partial(Transform, norm=torch.nn.LayerNorm)}]
)
def test_all_parts_of_a_batch_without_one_of_them_have_gradients_of_zero_for_its_head(settings):
    """`DistributedDataParallel` waits for the gradient of every parameter."""
    objective = Masked(fraction=0.5, **settings)
    model = Model(join().spec, transformer(False), objective)
    for raw, absent in (({"image": IMAGE}, "text"), ({"text": [1, 2]}, "image")):
        model.zero_grad()
        objective.step(
            model, (batch_of(raw).with_dtype(torch.float32), None), training=True
        ).loss.backward()
        assert all(p.grad is not None for p in model.parameters())
        assert not any(bool(p.grad.any()) for p in model.head.heads[absent].parameters())


def test_masked_content_of_a_part_is_not_seen():
    objective = Masked(fraction=0.5, part="text")
    model, batch = (
        Model(join().spec, transformer(False), objective).double().eval(),
        batch_of(*RAWS),
    )
    torch.manual_seed(3)
    inputs = objective.prepare(batch, None)
    assert inputs.masked is not None
    assert inputs.batch.parts is not None
    part = inputs.batch.parts["text"]
    hides = inputs.masked.reshape(-1)[part.columns] & part.batch.valid
    assert int(inputs.masked.sum()) == int(hides.sum()) > 0, "no token of another part is masked"
    expected = model(inputs.batch, inputs.masked)
    part.batch.content[hides] = (part.batch.content[hides] + 1) % SIZE
    assert torch.equal(model(inputs.batch, inputs.masked), expected)
    part.batch.content[~hides & part.batch.valid] = (
        part.batch.content[~hides & part.batch.valid] + 1
    ) % SIZE
    assert not torch.equal(model(inputs.batch, inputs.masked), expected)


def test_the_baseline_of_all_parts_predicts_each_by_its_constant():
    objective = Masked(fraction=0.5)
    torch.manual_seed(0)
    step = objective.baseline_step([(batch_of(*RAWS), None)], join().spec)
    assert step is not None
    output = step((batch_of(*RAWS), None))
    assert torch.isfinite(output.loss)
    assert int(output.count) > 0


# ── heads ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_pooling_by_part_is_the_mean_of_the_means():
    objective = Classify(pool="parts")
    objective.fit([0, 1], None)
    model, batch = (
        Model(join().spec, transformer(False), objective).double().eval(),
        batch_of(*RAWS),
    )
    hidden = model.backbone(model.embed(batch))
    expected = []
    for i, raw in enumerate(RAWS):
        owner = [name for name, run in join().encode(raw).parts for _ in range(len(run))]
        means = [
            torch.stack([hidden[i, j] for j, own in enumerate(owner) if own == name]).mean(0)
            for name in dict.fromkeys(owner)
        ]
        expected.append(model.head.linear(torch.stack(means).mean(0)))
    assert_close(model(batch), torch.stack(expected))


def test_pooling_by_part_is_for_joined_tokens():
    objective = Classify(pool="parts")
    objective.fit([0, 1], None)
    with pytest.raises(ValueError, match="no parts"):
        Model(Series(2).spec, Transformer(DIM, 1, num_heads=3), objective)


def test_a_graph_may_be_captioned():
    tokenizer = Join({"graph": Graph(0, num_edge_types=1), "text": Ids(SIZE)})
    model = Model(
        tokenizer.spec, Transformer(DIM, 2, num_heads=3, causal=None), NextToken(part="text")
    ).double()
    raws = [
        {"graph": graph_of(3, [(0, 1)]), "text": [1, 2]},
        {"graph": graph_of(2, [(0, 1)]), "text": [3]},
    ]
    batch = TokenBatch.collate([tokenizer.encode(raw) for raw in raws]).with_dtype(torch.float64)
    NextToken(part="text").step(model, (batch, None)).loss.backward()
    assert all(p.grad is not None for p in model.embedder.parameters())


@pytest.mark.parametrize("name", ["WordErrorRate", "WordF1", "CHRFScore"])
def test_metrics_of_words_are_refused_for_a_part_of_ids_without_text(name):
    tokenizer = Join({"image": Patches(2), "text": Ids(SIZE)})
    with pytest.raises(UsageError, match=f"{name} compares words.* use TokenErrorRate"):
        NextToken(part="text", metrics=["TokenErrorRate", name]).read_from(tokenizer)
    NextToken(part="text", metrics=["TokenErrorRate"]).read_from(tokenizer)


def test_an_example_without_the_generated_part_counts_in_no_metric():
    """One with the part, one without it, and a batch in which no example has it."""
    objective = NextToken(part="text", metrics=["TokenErrorRate", "SequenceErrorRate", "CHRFScore"])
    objective.read_from(
        SimpleNamespace(parts={"text": SimpleNamespace(decode=lambda ids: "tea oin")})
    )
    wrong, generated = batch_of({"image": IMAGE}), torch.tensor([[2], [2]])
    for name, metric in objective.generation_metrics().items():
        metric.update(
            generated,
            objective.references((batch_of({"image": IMAGE, "text": [2]}, {"image": IMAGE}), None)),
        )
        metric.update(generated[:1], objective.references((wrong, None)))
        assert float(metric.compute()) == (1 if name == "chrf" else 0), name
