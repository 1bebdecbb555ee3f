"""Contrastive: the loss and the recall by their definitions, parts that cannot reach each other.

b batch · k parts · d width of the shared space
"""

import json
import math
import re
from dataclasses import replace
from functools import partial
from itertools import permutations

import pytest
import torch
from graphs import graph_of
from objectives.contrastive_steps import (
    DIM,
    GRAPHS,
    IMAGES,
    PARTS,
    RAWS,
    SIZE,
    G,
    batch_of,
    built,
    join,
)
from torch import nn
from torch.testing import assert_close

from seqkit.backbones import GRU, LSTM, TCN, Mamba, Transformer
from seqkit.cli.main import main
from seqkit.config import complete
from seqkit.data.inputs import Input
from seqkit.errors import DataError
from seqkit.interfaces import TokenBatch
from seqkit.model import Model
from seqkit.nn.projection import LinearProjection
from seqkit.objectives import Contrastive
from seqkit.objectives.contrastive import MAX_SCALE, Candidates, fingerprints, multi_positive_loss
from seqkit.objectives.retrieval import Recall
from seqkit.report.samples.nearest import NUM_NEAREST, NUM_QUERIES
from seqkit.runs.answers import vectors
from seqkit.runs.mixture import load
from seqkit.runs.prepare import data_module
from seqkit.tokenizers import Bytes, Ids, Join, Patches


def vectors_of(model: Model, raws) -> dict[tuple[int, str], torch.Tensor]:
    """Vector of each example's part, whose example had no other part."""
    found = {}
    for i, raw in enumerate(raws):
        for k, name in enumerate(PARTS):
            if name in raw:
                found[i, name] = model(batch_of([{name: raw[name]}]))[0, k].detach()
    return found


def defined(vectors, is_positive, num_examples: int) -> tuple[float, int]:
    """Sum of the anchors' losses and their number, word by word as the docstring of Contrastive says."""
    total, count = 0.0, 0
    for a in PARTS:
        for b in PARTS:
            both = [i for i in range(num_examples) if (i, a) in vectors and (i, b) in vectors]
            for i in both if a != b else []:
                others = [j for j in range(num_examples) if (j, b) in vectors]
                scores = {j: math.exp(float(vectors[i, a] @ vectors[j, b])) for j in others}
                positives = [j for j in others if is_positive(i, j, a, b)]
                total -= sum(math.log(scores[j] / sum(scores.values())) for j in positives) / len(
                    positives
                )
                count += 1
    return total, count


# ── the batch of one part ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", PARTS)
def test_the_batch_of_one_part_is_that_of_examples_without_the_others(name):
    alone = batch_of([{name: raw[name]} for raw in RAWS if name in raw])
    only = batch_of().only(name)
    assert only.tensors().keys() == alone.tensors().keys()
    for key, tensor in only.tensors().items():
        if key != "graphs":  # numbers of graphs may differ where they tell the same ones apart
            assert_close(tensor, alone.tensors()[key], rtol=0, atol=0, msg=key)
    assert batch_of().rows(name).tolist() == [i for i, raw in enumerate(RAWS) if name in raw]
    if name == "graph":
        assert only.graphs is not None
        assert (only.graphs > 0).equal(only.valid)
        assert [len(row[real].unique()) for row, real in zip(only.graphs, only.valid)] == [1] * len(
            only
        )


def test_an_example_with_two_runs_of_a_part_is_refused():
    batch = batch_of([[("text", [1]), ("image", IMAGES[0]), ("text", [2])]])
    with pytest.raises(DataError, match="part text"):
        batch.only("text")
    assert len(batch.only("image")) == 1


# ── the loss ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_without_labels_examples_with_equal_tokens_of_a_part_are_positives():
    model, objective = built()
    output = objective.step(model, (batch_of(), None))
    expected = defined(
        vectors_of(model, RAWS),
        lambda i, j, a, b: i == j or ({a, b} >= {"text"} and {i, j} == {0, 2}),
        len(RAWS),
    )
    assert (float(output.loss.detach()), int(output.count)) == (
        pytest.approx(expected[0]),
        expected[1],
    )


def test_with_labels_examples_of_a_class_are_positives():
    labels = [3, 1, 1, 3, 1]
    model, objective = built(labels)
    output = objective.step(model, (batch_of(), torch.tensor(labels)))
    expected = defined(
        vectors_of(model, RAWS), lambda i, j, a, b: labels[i] == labels[j], len(RAWS)
    )
    assert (float(output.loss.detach()), int(output.count)) == (
        pytest.approx(expected[0]),
        expected[1],
    )
    training = objective.step(model, (batch_of(), torch.tensor(labels)), training=True)
    assert_close(training.loss, output.loss)
    assert training.preds is None


@pytest.mark.parametrize("labels", [None, [3, 1, 1, 3, 1]])
def test_the_sigmoid_loss_is_its_definition_and_reaches_the_bias(labels):
    model, objective = built(labels, loss="sigmoid", temperature=0.1)
    with torch.no_grad():
        model.head.logit_bias.fill_(-1.7)
    label = None if labels is None else torch.tensor(labels)
    output = objective.step(model, (batch_of(), label))
    vectors = vectors_of(model, RAWS)
    total, count = 0.0, 0
    for a, b in permutations(PARTS, 2):
        both = [i for i in range(len(RAWS)) if (i, a) in vectors and (i, b) in vectors]
        for i in both:
            count += 1
            for j in (j for j in range(len(RAWS)) if (j, b) in vectors):
                same = (
                    labels[i] == labels[j]
                    if labels
                    else i == j or ("text" in (a, b) and {i, j} == {0, 2})
                )
                logit = float(vectors[i, a][:-1] @ vectors[j, b][:-1]) - 1.7
                total += math.log1p(math.exp(-logit if same else logit))
    assert (float(output.loss.detach()), int(output.count)) == (pytest.approx(total), count)
    objective.step(model, (batch_of(), label), training=True).loss.backward()
    assert float(model.head.logit_bias.grad) != 0
    assert output.preds.shape == (len(RAWS), 3, 7)
    assert objective.predict(model, batch_of()).shape == (len(RAWS), 3, 7)


def test_the_sigmoid_loss_has_no_baseline():
    _, objective = built(loss="sigmoid")
    assert objective.baseline_step([], join().spec) is None


def test_a_scale_without_a_limit_and_projections_by_name():
    settings = {"image": partial(LinearProjection, pool="first", bias=True)}
    model, objective = built(projections=settings, max_scale=None)
    assert [p.pool for p in model.head.projections.values()] == ["first", "mean", "mean"]
    with torch.no_grad():
        model.head.logit_scale.fill_(9.0)
    assert float(model.train()(batch_of())[0].detach().norm(dim=-1)[0]) == pytest.approx(
        math.exp(4.5)
    )
    objective.step(model, (batch_of([RAWS[2], RAWS[2]]), None), training=True).loss.backward()
    assert all(p.grad is not None for p in model.parameters())


def test_vectors_that_are_alike_have_the_loss_of_the_constant_prediction():
    _, objective = built()
    raws = RAWS[:1] * 2 + RAWS[1:2]
    step = objective.baseline_step([], join().spec)
    output = step((batch_of(raws), None))
    # the examples with both parts, by those with either, among which an anchor of the other looks
    sizes = [(2, 2, 3), (2, 2, 3), (3, 3, 3)]
    assert float(output.loss / output.count) == pytest.approx(
        sum(both * (math.log(a) + math.log(b)) for both, a, b in sizes)
        / sum(2 * both for both, _, _ in sizes)
    )


def test_gradients_equal_finite_differences():
    keys, present = (
        torch.tensor([[1, 4], [2, 4], [3, 6]]),
        torch.tensor([[True, True], [True, True], [False, True]]),
    )
    vectors = torch.randn(3, 2, 5, dtype=torch.float64, generator=G, requires_grad=True)

    def loss(x):
        one = Candidates(x, present, keys)
        return multi_positive_loss(one, one)[0]

    assert torch.autograd.gradcheck(loss, vectors)


def test_one_gradient_step_lowers_the_loss_and_reaches_every_parameter():
    model, objective = built()
    before = objective.step(model, (batch_of(), None), training=True)
    before.loss.backward()
    unused = {
        name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum()
    }
    assert {name for name in unused if "modality" not in name} <= {
        name for name, p in model.named_parameters() if "edge_bias" in name or "bias" in name
    }
    with torch.no_grad():
        for p in model.parameters():
            p -= 1e-4 * p.grad
    assert objective.step(model, (batch_of(), None), training=True).loss < before.loss


def test_a_batch_without_a_part_still_gives_every_parameter_a_gradient():
    model, objective = built()
    objective.step(model, (batch_of([RAWS[2], RAWS[2]]), None), training=True).loss.backward()
    assert all(p.grad is not None for p in model.parameters())


def test_the_factor_of_the_cosines_is_learned_and_bounded():
    model, objective = built(temperature=0.5)
    vectors = model.train()(batch_of())
    assert vectors[0].detach().norm(dim=-1).square().tolist() == pytest.approx([2.0] * 3, rel=1e-4)
    objective.step(model, (batch_of(), None), training=True).loss.backward()
    assert float(model.head.logit_scale.grad) != 0
    with torch.no_grad():
        model.head.logit_scale.fill_(9.0)
    assert float(model.eval()(batch_of())[0].detach().norm(dim=-1)[0]) == pytest.approx(
        MAX_SCALE**0.5
    )
    assert float(model.head.logit_scale.detach()) == 9.0
    model.train()(batch_of())
    assert float(model.head.logit_scale.detach()) == pytest.approx(math.log(MAX_SCALE))


# ── the wall between parts ───────────────────────────────────────────────────────────────────────────────────────────

BACKBONES = {
    "Transformer": lambda: Transformer(DIM, 2, num_heads=3),
    "LSTM": lambda: LSTM(DIM, 2),
    "GRU-causal": lambda: GRU(DIM, 2, causal=True),
    "TCN": lambda: TCN(DIM, 2),
    "Mamba": lambda: Mamba(DIM, 2),
}


@pytest.mark.parametrize("name", BACKBONES)
def test_nan_in_one_part_changes_nothing_in_another(name):
    spec = Join({"image": Patches(4), "text": Ids(SIZE)}).spec
    objective = Contrastive(["image", "text"], dim=7)
    objective.fit([None], None)
    model = Model(spec, BACKBONES[name](), objective).double().eval()
    raws = [{key: raw[key] for key in ("image", "text") if key in raw} for raw in RAWS]
    batch = TokenBatch.collate(
        [Join({"image": Patches(4), "text": Ids(SIZE)}).encode(raw) for raw in raws]
    )
    batch = batch.with_dtype(torch.float64)
    clean = objective.predict(model, batch)
    image = batch.parts["image"]
    image.batch.content.fill_(torch.nan)
    dirty = objective.predict(model, batch)
    assert_close(dirty[:, 1], clean[:, 1], rtol=0, atol=0, equal_nan=True)
    assert dirty[0, 0].isnan().all()
    assert not clean[0, 0].isnan().any()


# ── positives by equal tokens ────────────────────────────────────────────────────────────────────────────────────────


def test_fingerprints_are_equal_for_equal_tokens_alone_whatever_the_padding():
    graphs = [*GRAPHS, graph_of(3, [(0, 1), (1, 2)]), graph_of(3, [(0, 1)])]
    batch = TokenBatch.collate([join().encode({"graph": raw}) for raw in graphs]).part("graph")
    found = fingerprints(batch)
    assert (found[:, None] == found).sum() == len(graphs) + 2
    assert found[0] == found[3]
    assert fingerprints(batch.pad(3)).equal(found)
    texts = [[0], [0, 0], [1, 2], [2, 1], [1, 2, 0], [1, 2]]
    found = fingerprints(TokenBatch.collate([Ids(SIZE).encode(raw) for raw in texts]))
    assert (found[:, None] == found).sum() == len(texts) + 2
    images = [IMAGES[1], IMAGES[1] + 1e-6, IMAGES[1].clone(), IMAGES[1].flip(1)]
    found = fingerprints(TokenBatch.collate([Patches(4).encode(raw) for raw in images]))
    assert (found[:, None] == found).sum() == len(images) + 2


def test_fingerprints_of_many_tokens_do_not_collide():
    rows = torch.randint(2, (20_000, 12), generator=G).unique(dim=0)
    found = fingerprints(
        TokenBatch(rows, torch.arange(12.0).expand(len(rows), -1)[..., None], rows >= 0)
    )
    assert len(found.unique()) == len(rows)


# ── recall ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("most", [1, 2, 5])
def test_recall_is_its_definition(most):
    vectors = nn.functional.normalize(torch.randn(31, 3, 4, generator=G), dim=-1)
    keys = torch.randint(9, (31, 3), generator=G)
    vectors[torch.rand(31, 3, generator=G) < 0.2] = torch.nan
    shares = []
    for a, b in ((0, 2), (2, 0), (1, 0)):
        both = [i for i in range(31) if not vectors[i, [a, b]].isnan().any()]
        hits = 0
        for i in both:
            others = [j for j in range(31) if not vectors[j, b].isnan().any()]
            nearest = sorted(others, key=lambda j: -float(vectors[i, a] @ vectors[j, b]))[:most]
            hits += any(keys[i, a] == keys[j, a] or keys[i, b] == keys[j, b] for j in nearest)
        shares.append(hits / len(both))
    metric = Recall([(0, 2), (2, 0), (1, 0)], most)
    for part in (slice(0, 7), slice(7, 31)):
        metric.update(vectors[part], keys[part])
    assert float(metric.compute()) == pytest.approx(sum(shares) / 3)


@pytest.mark.parametrize("most", [1, 3])
def test_vectors_that_are_alike_have_the_recall_of_guessing(most):
    vectors, keys = torch.ones(6, 2, 3), torch.tensor([0, 0, 1, 1, 1, 2])[:, None].expand(-1, 2)
    metric = Recall([(0, 1)], most)
    metric.update(vectors, keys)
    sizes = [2, 2, 3, 3, 3, 1]
    misses = [math.comb(6 - size, most) / math.comb(6, most) for size in sizes]
    assert float(metric.compute()) == pytest.approx(1 - sum(misses) / 6)


def test_metrics_name_each_direction_and_are_of_the_step():
    model, objective = built(parts=["image", "text"])
    metrics = objective.metrics(model.spec)
    assert list(metrics) == [
        "recall@1",
        "image_to_text@1",
        "image_to_text@5",
        "text_to_image@1",
        "text_to_image@5",
    ]
    assert objective.primary_metric in metrics
    output = objective.step(model, (batch_of(), None))
    for metric in metrics.values():
        metric.update(output.preds, output.target)
    assert float(metrics["image_to_text@5"].compute()) == 1
    assert output.preds[1, 0].isnan().all()
    assert float(metrics["recall@1"].compute()) == pytest.approx(
        (float(metrics["image_to_text@1"].compute()) + float(metrics["text_to_image@1"].compute()))
        / 2
    )


def test_a_prediction_is_the_cosine_of_each_pair_of_parts():
    model, objective = built()
    found = objective.decode(objective.predict(model.eval(), batch_of()))
    vectors = vectors_of(model, RAWS)
    cosine = nn.functional.cosine_similarity(vectors[0, "image"], vectors[0, "text"], dim=0)
    assert found[0]["image, text"] == pytest.approx(float(cosine))
    assert [list(one) for one in found[1:]] == [
        ["text, graph"], ["image, text"], ["image, text", "image, graph", "text, graph"], [],
    ]  # fmt: skip


# ── refusals and state ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: Contrastive(["image"]), "two parts or more"),
        (lambda: Contrastive(["image", "image"]), "name each once"),
        (lambda: Contrastive([]), "the parts are none"),
        (lambda: Contrastive(PARTS, temperature=0.001), "0.001"),
        (lambda: built(parts=["image", "txt"]), "there is no part 'txt'"),
        (lambda: Model(Ids(5).spec, LSTM(8, 1), Contrastive(PARTS)), "these tokens have no parts"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(make, problem):
    with pytest.raises(ValueError, match=problem):
        make()


def test_labels_are_classes_for_all_examples_or_for_none():
    objective = Contrastive(PARTS)
    assert objective.state() == {}
    with pytest.raises(DataError, match=r"0\.5"):
        objective.plain_label(0.5)
    with pytest.raises(DataError, match="1 of 2"):
        objective.fit([1, None], None)
    objective.fit([1, 0], ["a", "b"])
    other = Contrastive(PARTS)
    other.load_state(objective.state())
    assert other.needs_labels
    with pytest.raises(DataError, match="labels are None"):
        other.step(built()[0], (batch_of(), None))


def test_a_batch_without_its_parts_is_refused():
    model, objective = built(parts=["image", "graph"])
    with pytest.raises(DataError, match="image, graph"):
        objective.step(model, (batch_of([{"text": [1]}]), None))
    with pytest.raises(DataError, match="any of the parts"):
        objective.step(model, (replace(batch_of(), parts=None), None))


# ── a run ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_a_run_is_tested_reported_and_gives_cosines_and_vectors(tmp_path, capsys, monkeypatch):
    pytest.importorskip("espeakng_loader")
    monkeypatch.undo()  # figures are drawn here: the nearest examples are one
    run = tmp_path / "run"
    words = [
        "--model.backbone.depth=1",
        "--data.limit=60",
        "--trainer.max_epochs=1",
        "--trainer.accelerator=cpu",
    ]
    command = ["fit", "multimodal/av-digits", "--preset", "clip", *words, "--out", str(run)]
    assert main(command) == 0, capsys.readouterr().err
    summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    assert 0 <= summary["metrics"]["recall@1"] <= 1
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "recall at 1" in page
    assert "Nearest examples" in page
    section = page[page.index("Nearest examples") :]
    pairs = [f"{a} → {b}" for a, b in permutations(["image", "sound", "word"], 2)]
    assert [pair for pair in pairs if pair in section] == pairs
    shown = re.findall("([✓✗]) ([-−]?[0-9.]+)", section)
    trained = load(run, "cpu")
    data = data_module(complete(trained.config), trained.tokenizer, trained.objective)
    batch, label = data.test_dataloader().examples[0, list(range(60))]
    found = trained.predictor.step(trained.objective, (batch, label)).preds
    wanted = [
        ("✓" if label[j] == label[i] else "✗", float(found[i, a] @ found[j, b]))
        for a, b in permutations(range(3), 2)
        for i in range(NUM_QUERIES)
        for j in sorted(range(60), key=lambda j: -float(found[i, a] @ found[j, b]))[:NUM_NEAREST]
    ]
    assert [mark for mark, _ in shown] == [mark for mark, _ in wanted]
    assert {"✓", "✗"} == {mark for mark, _ in shown}
    said = [float(cosine.replace("−", "-")) for _, cosine in shown]
    assert said == pytest.approx([cosine for _, cosine in wanted], abs=0.006)
    image = torch.rand(1, 28, 28, generator=G)
    raws = [{"image": image, "word": "two"}, {"word": "two"}, {"image": image}]
    cosine, nothing, _ = trained.predict(raws)
    both, word, picture = (
        one.values for one in vectors(trained, [Input(str(i), raw) for i, raw in enumerate(raws)])
    )
    assert nothing == {}
    assert cosine["image, word"] == pytest.approx(float(word @ picture), abs=1e-5)
    assert_close(both, nn.functional.normalize(word + picture, dim=0))


def test_without_names_all_parts_are_compared():
    tokenizer = Join({"image": Patches(4), "word": Bytes()})
    objective = Contrastive(dim=8)
    model = Model(tokenizer.spec, Transformer(16, 1, num_heads=2), objective)
    assert objective.parts == ["image", "word"]
    assert set(objective.metrics(model.spec)) >= {"image_to_word@1", "word_to_image@1"}
    with pytest.raises(ValueError, match="two parts or more"):
        Model(Bytes().spec, Transformer(16, 1, num_heads=2), Contrastive(dim=8))
