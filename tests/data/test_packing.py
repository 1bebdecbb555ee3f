from functools import partial
from json import dumps

import pytest
import torch
from data_records import records
from runs.stopping import Kick, differences, with_callback
from torch.testing import assert_close

from seqkit.backbones import GIN, GRU, LSTM, RNN, S4D, TCN, Mamba, MeanPool, Transformer
from seqkit.config import complete
from seqkit.data import DataModule, DataSource, Sample, Splits
from seqkit.data.batching import LengthGroupedBatchSampler
from seqkit.data.packing import best_fit_decreasing
from seqkit.errors import Interrupted
from seqkit.interfaces import IGNORE, Adjacency, TokenBatch, Tokenizer, Tokens, TokenSpec
from seqkit.model import Model
from seqkit.nn.position.absolute import Learned, NoPosition, Sinusoidal, SinusoidalConcat
from seqkit.nn.position.bias import ALiBi, T5Bias
from seqkit.nn.position.rotary import Rotary
from seqkit.objectives import Classify, Masked, NextToken, Regress
from seqkit.runs.prepare import prepare
from seqkit.runs.run import resume_run, run

VOCAB, ROW = 23, 31


class Given(DataSource):
    def __init__(self, raws):
        self.raws = raws

    def splits(self):
        return Splits([Sample(raw) for raw in self.raws], [Sample(raw) for raw in self.raws[:5]])


class Numbers(Tokenizer):
    """Token ids as they are; `raw` is a list of ints."""

    spec = TokenSpec(vocab_size=VOCAB)

    def encode(self, raw, /):
        return Tokens(torch.tensor(raw), torch.arange(len(raw), dtype=torch.float32)[:, None])


class Rings(Tokenizer):
    """Nodes of a ring, each of which attends to the one before it; `raw` is a list of ints."""

    spec = TokenSpec(vocab_size=VOCAB, num_axes=0, num_edge_types=2)

    def encode(self, raw, /):
        node = torch.arange(len(raw))
        adjacency = Adjacency(torch.stack([node, (node + 1) % len(raw)]), 1 + node % 2)
        return Tokens(torch.tensor(raw), torch.zeros(len(raw), 0), adjacency)


def lengths(n, seed=0):
    """Many short examples and a few long ones, 1 to 200, about as messages are."""
    generator = torch.Generator().manual_seed(seed)
    return (
        (1 + torch.randn(n, generator=generator).mul(0.7).add(3).exp())
        .long()
        .clamp(max=200)
        .tolist()
    )


def raws(n, most=19):
    generator = torch.Generator().manual_seed(1)
    sizes = torch.randint(2, most + 1, (n,), generator=generator).tolist()
    return [torch.randint(VOCAB, (size,), generator=generator).tolist() for size in sizes]


def module(given, *, tokenizer=None, objective=None, **options):
    options = {"batch_size": 5, "packing": ROW, "valid_fraction": 0.0, "seed": 3} | options
    data = DataModule(
        Given(given), tokenizer or Numbers(), objective or NextToken(), **records(**options)
    )
    data.setup()
    return data


def documents(batch):
    """The examples of a packed batch, read back from content and segments, and where each is: row and columns."""
    for row, (content, valid, segments) in enumerate(
        zip(batch.content, batch.valid, batch.segments)
    ):
        for segment in segments[valid].unique().tolist():
            columns = ((segments == segment) & valid).nonzero()[:, 0]
            yield content[columns].tolist(), row, columns


# ── rows ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_example_is_in_one_row_and_no_row_is_too_long():
    given = lengths(1009)
    rows = best_fit_decreasing(given, 211)
    assert sorted(i for row in rows for i in row) == list(range(1009))
    assert max(sum(given[i] for i in row) for row in rows) <= 211
    assert best_fit_decreasing([], 7) == []
    with pytest.raises(ValueError, match=r"8 tokens.* 7"):
        best_fit_decreasing([3, 8], 7)


@pytest.mark.parametrize("row_tokens", [200, 211, 512])
def test_rows_are_those_of_best_fit_by_its_definition(row_tokens):
    given, fills = lengths(307), []
    for length in sorted(given, reverse=True):
        fitting = [(fill, i) for i, fill in enumerate(fills) if fill + length <= row_tokens]
        if fitting:
            fills[max(fitting)[1]] += length
        else:
            fills.append(length)
    rows = best_fit_decreasing(given, row_tokens)
    assert sorted(sum(given[i] for i in row) for row in rows) == sorted(fills)


def test_the_seed_decides_among_examples_of_one_length():
    given = lengths(307)
    assert best_fit_decreasing(given, 211, seed=1) == best_fit_decreasing(given, 211, seed=1)
    assert best_fit_decreasing(given, 211, seed=1) != best_fit_decreasing(given, 211, seed=2)


def share_of_real_tokens(given, batches):
    return sum(given) / sum(len(batch) * max(given[i] for i in batch) for batch in batches)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("how", "least"),
    [({"batch_size": 32}, 0.9), ({"batch_size": 10_000, "tokens_per_batch": 1024}, 0.95)],
)
def test_most_tokens_in_batches_by_length_are_real(how, least, seed):
    given = lengths(5003, seed)
    for epoch in range(3):
        assert (
            share_of_real_tokens(
                given, LengthGroupedBatchSampler(given, shuffle=True, **how).batches(epoch)
            )
            >= least
        )
    assert share_of_real_tokens(given, torch.randperm(5003).split(32)) < 0.5


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("row_tokens", [200, 256, 512])
def test_at_least_95_percent_of_the_tokens_in_packed_batches_are_real(row_tokens, seed):
    given = lengths(1009, seed)
    fills = [
        sum(given[i] for i in row) for row in best_fit_decreasing(given, row_tokens, seed=seed)
    ]
    assert (
        share_of_real_tokens(fills, LengthGroupedBatchSampler(fills, 8, shuffle=True).batches(0))
        >= 0.95
    )


# ── batches ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_epoch_has_every_example_once_with_positions_from_its_own_beginning():
    given = raws(211)
    data = module(given)
    for _ in range(2):
        found = []
        for batch, label in data.train_dataloader():
            assert label is None
            assert batch.valid.sum(dim=1).max() <= ROW
            for content, row, columns in documents(batch):
                found.append(content)
                assert_close(
                    batch.positions[row, columns, 0],
                    torch.arange(len(columns), dtype=torch.float32),
                )
                assert columns.diff().unique().tolist() in ([1], [])
        assert sorted(found) == sorted(given)


def test_the_order_of_batches_follows_from_seed_and_epoch():
    def order(epoch, seed=3):
        loader = module(raws(211), seed=seed).train_dataloader()
        loader.epoch_batches.set_epoch(epoch)
        return [batch.content.tolist() for batch, _ in loader]

    assert order(1) == order(1)
    assert order(1) != order(2)
    assert order(1) != order(1, seed=4)


def test_a_loader_goes_on_where_its_state_was_saved():
    whole = [batch.content.tolist() for batch, _ in module(raws(211)).train_dataloader()]
    loader = module(raws(211)).train_dataloader()
    iterator = iter(loader)
    for _ in range(4):
        next(iterator)
    other = module(raws(211)).train_dataloader()
    other.load_state_dict(loader.state_dict())
    assert [batch.content.tolist() for batch, _ in other] == whole[4:]


def test_workers_pack_as_the_process_itself_does():
    def contents(num_workers):
        loader = module(raws(67), num_workers=num_workers).train_dataloader()
        return [(batch.content.tolist(), batch.segments.tolist()) for batch, _ in loader]

    assert contents(2) == contents(0)


def test_two_processes_take_other_rows(monkeypatch):
    shares = []
    for rank in range(2):
        monkeypatch.setattr("seqkit.data.batching.rank_and_world_size", lambda rank=rank: (rank, 2))
        loader = module(raws(211)).train_dataloader()
        indices = [row for batch in loader.epoch_batches.own() for row in batch]
        assert len(indices) == sum(len(batch) for batch, _ in loader)
        shares.append({i for row in indices for i in loader.examples.rows[row]})
    assert not shares[0] & shares[1]
    # of 211; a batch without a partner is left out of an epoch
    assert len(shares[0] | shares[1]) > 190


def test_evaluation_is_not_packed():
    data = module(raws(211), valid_fraction=0.2)
    for loader in (data.val_dataloader(), data.test_dataloader()):
        assert all(batch.segments is None for batch, _ in loader)
    assert len(data.test_dataloader().examples) == 5


def test_a_row_is_named_by_its_examples():
    loader = module([[1, 2, 3], [4, 5], [6], [7]], packing=4).train_dataloader()
    names = sorted(loader.examples.name(i) for i in range(len(loader.examples)))
    assert names[0] in ("row 0 (sample 0, sample 2)", "row 0 (sample 0, sample 3)")
    assert names[1].startswith("row 1 (sample 1, sample ")
    assert (
        module([[1], [2], [3], [4], [5]], packing=5)
        .train_dataloader()
        .examples.name(0)
        .endswith(" and 2 more)")
    )


# ── what is refused ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"packing": 0}, "packing is 0; give at least 1"),
        ({"packing": None, "window": 0}, "window is 0; give at least 1"),
        ({"packing": None, "batch_size": 0}, "batch_size is 0; give at least 1"),
        ({"packing": True}, "packing is True; give at least 1"),
        ({"objective": Classify()}, "which Classify cannot tell apart"),
        ({"objective": Regress()}, "which Regress cannot tell apart"),
        ({"window": 7}, "leave out window"),
        ({"augment": [lambda raw: raw]}, "leave out window, augment"),
    ],
)
def test_what_cannot_be_packed_is_refused(options, said):
    with pytest.raises(ValueError, match=said):
        module(raws(7), **options)


def test_an_example_longer_than_a_row_is_named():
    with pytest.raises(ValueError, match="packing is 3 tokens a row"):
        module([[1, 2, 3], [1, 2, 3, 4]], packing=3).train_dataloader()


# ── packed equals unpacked ───────────────────────────────────────────────────────────────────────────────────────────

BACKBONES = (RNN, LSTM, GRU, TCN, S4D, Mamba, MeanPool)
POSITIONS = {
    "none": lambda: {"added": NoPosition},
    "rotary": lambda: {"in_attention": Rotary()},
    "alibi": lambda: {"in_attention": ALiBi()},
    "t5": lambda: {"in_attention": T5Bias(2)},
    "sinusoidal": lambda: {"added": Sinusoidal},
    "concatenated": lambda: {"added": partial(SinusoidalConcat, channels=4)},
    "learned": lambda: {"added": partial(Learned, sizes=[19])},
}


def by_content(example):
    """Which tokens of an example are masked: the same ones wherever it is."""
    return [(7 * token + 3 * i) % 5 < 2 for i, token in enumerate(example)]


def loss_and_gradients(model, objective, batch, masked):
    model.zero_grad()
    if masked is None:
        ready = objective.prepare(batch, None)
        inputs, target = ready.batch, ready.target
    else:
        inputs, target = batch, batch.content.masked_fill(~masked, IGNORE)
    score = objective.loss(model(inputs, masked), target)
    score.loss.backward()
    return (
        score.loss.detach(),
        score.count,
        {name: p.grad.clone() for name, p in model.named_parameters()},
    )


def language_model(objective, *, causal, backbone=None, in_attention=None, added=None):
    """A model, by default a Transformer, whose weights are so large that attention is far from uniform."""
    if backbone is None:
        backbone = Transformer(24, depth=2, num_heads=2, causal=causal, position=in_attention)
    for weight in backbone.parameters():
        if weight.ndim == 2:
            torch.nn.init.normal_(weight, std=0.3)
    return Model(TokenSpec(vocab_size=VOCAB), backbone, objective, position=added).double()


OBJECTIVE = pytest.mark.parametrize("causal", [True, False], ids=["next token", "masked"])


@OBJECTIVE
@pytest.mark.parametrize("position", POSITIONS)
def test_loss_and_gradients_of_packed_rows_are_those_of_the_examples(position, causal):
    torch.manual_seed(0)
    assert_as_unpacked(causal=causal, **POSITIONS[position]())


@OBJECTIVE
@pytest.mark.parametrize("backbone", BACKBONES)
def test_a_backbone_trains_on_packed_rows_as_on_the_examples(backbone, causal):
    torch.manual_seed(0)
    assert_as_unpacked(causal=causal, backbone=backbone(24, 2, causal=causal))


def assert_as_unpacked(*, causal, **settings):
    objective = NextToken() if causal else Masked()
    model = language_model(objective, causal=causal, **settings)
    given = raws(29)
    data = module(given, objective=objective, batch_size=100)
    data.check_supported(model.backbone)
    packed, _ = next(iter(data.train_dataloader()))
    alone = TokenBatch.collate([Numbers().encode(raw) for raw in given])
    assert len(packed) < 15
    assert not packed.valid.all()
    masks = (None, None)
    if not causal:
        masks = torch.zeros_like(packed.valid), torch.zeros_like(alone.valid)
        for content, row, columns in documents(packed):
            masks[0][row, columns] = torch.tensor(by_content(content))
        for i, raw in enumerate(given):
            masks[1][i, : len(raw)] = torch.tensor(by_content(raw))
    got = loss_and_gradients(model, objective, packed, masks[0])
    expected = loss_and_gradients(model, objective, alone, masks[1])
    assert_close(got, expected, rtol=1e-6, atol=1e-5)  # the loss is taken of float32
    mixed = loss_and_gradients(model, objective, packed.replace(segments=None), masks[0])
    assert abs(mixed[0] - expected[0]) > 1e-3  # without segments they are not


def test_graphs_that_are_packed_keep_their_edges():
    torch.manual_seed(0)
    backbone = Transformer(24, depth=2, num_heads=2)
    model = Model(Rings.spec, backbone, Masked()).double()
    packed, _ = next(
        iter(
            module(
                raws(11), tokenizer=Rings(), objective=Masked(), batch_size=100
            ).train_dataloader()
        )
    )
    got = model(packed)
    for content, row, columns in documents(packed):
        assert_close(got[row, columns], model(TokenBatch.collate([Rings().encode(content)]))[0])


def test_as_many_tokens_of_a_packed_example_are_masked_as_of_one_alone():
    objective = Masked(fraction=0.3)
    for batch, _ in module(raws(101), objective=objective).train_dataloader():
        masked = objective.prepare(batch, None).masked
        assert not (masked & ~batch.valid).any()
        for content, row, columns in documents(batch):
            assert int(masked[row, columns].sum()) == max(1, round(len(content) * 0.3))
    assert objective.prepare(batch, None).masked.ne(masked).any()


# ── a run ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def settings(tmp_path):
    path = tmp_path / "lines.jsonl"
    texts = [
        "".join(chr(97 + (i * j * j + j) % 7) for j in range(2 + i * 5 % 17)) for i in range(67)
    ]
    path.write_text("".join(dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")

    def configuration(*words):
        return complete(
            "text/char-lm", "debug",
            ["--data", str(path), "--data.window", "null", "--data.limit", "null", "--data.packing", "29",
             "--data.batch_size", "2", "--model.dropout", "0.2",
             "--trainer.max_steps", "-1", "--trainer.max_epochs", "3", "--trainer.log_every_n_steps", "1",
             "--trainer.enable_progress_bar", "false", *words],
        )  # fmt: skip

    return configuration


@pytest.mark.slow
def test_a_packed_run_that_was_stopped_ends_as_one_that_was_not(tmp_path, settings):
    config = settings()
    summary = run(config, tmp_path / "whole")
    steps = summary["steps"] // 3
    with with_callback(Kick(steps + steps // 2)), pytest.raises(Interrupted):
        run(config, tmp_path / "stopped")
    resume_run(tmp_path / "stopped", {})
    assert steps > 5
    assert not differences(tmp_path / "whole", tmp_path / "stopped")


def test_a_backbone_that_mixes_the_examples_of_a_row_is_refused():
    said = (
        "packing puts examples into a row, which this GIN cannot tell apart .*; use a backbone that"
    )
    with pytest.raises(ValueError, match=said):
        module(raws(3)).check_supported(GIN(8))
    module(raws(3), packing=None).check_supported(GIN(8))


def test_backbones_and_convolutions_of_a_packed_run_are_supported(settings):
    for given in (
        ("--model.backbone", "LSTM"),
        ("--model.backbone.block.attention.convolution", "CausalConvolution"),
    ):
        assert prepare(settings(*given)).data.loading.packing
