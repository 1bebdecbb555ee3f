"""The model is embedder, backbone and head in a row; what is not compatible is refused when it is built."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from seqkit.backbones import LSTM, EncoderDecoder, Transformer
from seqkit.data.dataset import collate_targets
from seqkit.interfaces import TokenBatch, Tokens, TokenSpec
from seqkit.model import Model
from seqkit.nn.block import PreNormBlock
from seqkit.nn.embedder import EmbeddingSettings
from seqkit.nn.position.absolute import Learned, NoPosition, Sinusoidal
from seqkit.nn.position.rotary import Rotary
from seqkit.objectives import Classify, Masked, NextToken, Regress, Seq2Seq
from seqkit.testing import synthetic
from seqkit.tokenizers import Characters
from seqkit.training.optim import AdamW

DIM = 24
IDS = TokenSpec(vocab_size=11)
GRAPH = TokenSpec(num_features=3, num_axes=0, num_edge_types=2)


def classify():
    objective = Classify()
    objective.fit([0, 1], ["no", "yes"])
    return objective


def test_the_model_is_embedder_backbone_and_head_in_a_row():
    spec, examples = synthetic()["text"]
    batch = TokenBatch.collate(examples)
    model = Model(spec, Transformer(DIM, 1), Masked())
    masked = torch.rand(batch.valid.shape) < 0.5
    embedded = model.embedder(batch, masked)
    assert_close(model(batch, masked), model.head(model.backbone(embedded), embedded))
    assert (model(batch, masked) - model(batch)).abs().max() > 1e-4


@pytest.mark.parametrize(
    ("spec", "backbone", "encoding"),
    [
        (IDS, lambda: Transformer(DIM, 1), Sinusoidal),
        (IDS, lambda: Transformer(DIM, 1, position=Rotary()), NoPosition),
        (IDS, lambda: LSTM(DIM), NoPosition),
        (TokenSpec(num_features=3, num_axes=2), lambda: LSTM(DIM), Sinusoidal),
        (GRAPH, lambda: Transformer(DIM, 1), NoPosition),
    ],
)
def test_positions_are_added_where_the_backbone_does_not_use_them(spec, backbone, encoding):
    assert type(Model(spec, backbone(), Masked()).embedder.position) is encoding


def test_source_and_target_have_positions_added_where_their_own_side_does_not_use_them():
    cross = partial(PreNormBlock, cross_attention=True)
    rotary = Transformer(DIM, 1, num_heads=3, position=Rotary())
    plain = Transformer(DIM, 1, num_heads=3, causal=True, block=cross)
    model = Model(IDS, EncoderDecoder(rotary, plain), seq2seq("abc"))
    assert type(model.source_embedder.position) is NoPosition
    assert type(model.embedder.position) is Sinusoidal


def test_dropout_is_of_the_embeddings_on_both_sides():
    model = Model(IDS, encoder_decoder(), seq2seq("abc"), dropout=0.3)
    assert (model.source_embedder.dropout.p, model.embedder.dropout.p) == (0.3, 0.3)


def test_another_positional_encoding_can_be_passed_in():
    model = Model(
        IDS, LSTM(DIM), Masked(), position=lambda dim, num_axes: Learned(dim, num_axes, sizes=[7])
    )
    assert isinstance(model.embedder.position, Learned)


@pytest.mark.parametrize(
    ("spec", "backbone", "objective", "message"),
    [
        (
            IDS,
            lambda: LSTM(DIM),
            NextToken,
            r"NextToken needs a causal backbone, and this LSTM is not; build it with causal=True",
        ),
        (
            IDS,
            lambda: LSTM(DIM, causal=True),
            Masked,
            "Masked needs a bidirectional backbone, and this LSTM is not; build it with causal=False",
        ),
        (
            GRAPH,
            lambda: LSTM(DIM),
            Masked,
            r"LSTM does not support adjacency \(these tokens have 2 edge types\); use Transformer or GIN, or .*=ignore",
        ),
        (
            GRAPH,
            lambda: Transformer(DIM, 1, causal=True),
            NextToken,
            "NextToken needs an order from left to right, which nodes without positions",
        ),
        (
            TokenSpec(num_features=3, num_axes=2),
            lambda: Transformer(DIM, 1, position=Rotary()),
            Masked,
            "a head_dim of 3 has no channel pair for each of 2 axes",
        ),
        (IDS, lambda: LSTM(DIM), Classify, "Classify does not know its labels yet"),
        (IDS, lambda: LSTM(DIM), Regress, "Regress does not know its labels yet"),
        (
            TokenSpec(num_features=3),
            lambda: LSTM(DIM, causal=True),
            NextToken,
            "these tokens are vectors",
        ),
    ],
)
def test_what_is_not_compatible_is_refused_with_what_to_change(spec, backbone, objective, message):
    with pytest.raises(ValueError, match=message):
        Model(spec, backbone(), objective())


def test_adjacency_is_ignored_only_where_that_is_set():
    spec, examples = synthetic()["graph"]
    batch = TokenBatch.collate(examples)
    model = Model(spec, LSTM(DIM), classify(), adjacency="ignore")
    assert model.ignores_adjacency
    assert model.spec.num_edge_types == 0
    assert model(batch).shape == (2, 2)
    torch.manual_seed(0)
    ignoring = Model(spec, Transformer(DIM, 1), classify(), adjacency="ignore")
    torch.manual_seed(0)
    using = Model(spec, Transformer(DIM, 1), classify())
    assert len(ignoring.backbone.edge_biases) == 0
    assert using.backbone.edge_biases["8"].weight.shape == (3, 8)
    assert (ignoring(batch) - using(batch)).abs().max() > 1e-5


def test_the_adjacency_of_a_source_is_ignored_too_where_that_is_set():
    """The model has the weights of one that uses it: no edge has a bias, so what differs is the mask alone."""
    spec, examples = synthetic()["graph"]
    objective, source = seq2seq("abc"), TokenBatch.collate(examples)
    label = collate_targets([objective.encode_target(word) for word in ("bac", "cc")])
    batch = objective.prepare(source, label).batch
    without = batch.replace(source=source.replace(adjacency=None))
    ignoring = Model(spec, encoder_decoder(), objective, adjacency="ignore")
    for p in ignoring.parameters():
        nn.init.normal_(p, std=0.3)
    assert_close(ignoring(batch), ignoring(without))
    ignoring.ignores_adjacency = False  # and these edges do matter to such an encoder
    assert (ignoring(batch) - ignoring(without)).abs().max() > 1e-3


def test_shared_weights_count_once_and_frozen_ones_not_at_all():
    untied = Model(IDS, LSTM(DIM, causal=True, residual=False), NextToken(bias=False))
    tied = Model(IDS, LSTM(DIM, causal=True, residual=False), NextToken(tied=True))
    assert untied.num_parameters - tied.num_parameters == 11 * DIM
    lstm = sum(p.numel() for p in nn.LSTM(DIM, DIM, 2).parameters())
    assert tied.num_parameters == 11 * DIM + lstm
    tied.embedder.requires_grad_(False)
    assert tied.num_parameters == lstm


# ── edge types ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_bias_of_edge_types_is_the_backbones_and_changes_its_scores():
    spec, examples = synthetic()["graph"]
    batch = TokenBatch.collate(examples)
    model = Model(spec, Transformer(DIM, 1, num_heads=3), classify())
    (name,) = (name for name, _ in model.named_parameters() if "edge" in name)
    assert name == "backbone.edge_biases.3.weight"
    before = model(batch)
    nn.init.normal_(model.get_parameter(name))
    assert (model(batch) - before).abs().max() > 1e-5
    model(batch).square().sum().backward()
    assert model.get_parameter(name).grad.abs().max() > 0


def test_in_an_encoder_decoder_the_encoder_has_the_bias_of_edge_types():
    spec, _ = synthetic()["graph"]
    objective = seq2seq("abc")
    model = Model(spec, encoder_decoder(), objective)
    names = [name for name, _ in model.named_parameters() if "edge_biases" in name]
    assert names == ["backbone.encoder.edge_biases.3.weight"]
    assert model.get_parameter(names[0]).shape == (1 + spec.num_edge_types, 3)


# ── embeddings that are shared, or narrower than the backbone ────────────────────────────────────────────────────────


def seq2seq(alphabet):
    objective = Seq2Seq(Characters(alphabet))
    objective.fit([alphabet], None)
    return objective


def encoder_decoder():
    cross = partial(PreNormBlock, cross_attention=True)
    return EncoderDecoder(
        Transformer(DIM, 1, num_heads=3), Transformer(DIM, 1, num_heads=3, causal=True, block=cross)
    )


def spelling(objective):
    letters = Characters("abc")
    batch = TokenBatch.collate([letters.encode(word) for word in ("cab", "a")])
    label = collate_targets([objective.encode_target(word) for word in ("bac", "cc")])
    return letters.spec, objective.prepare(batch, label)


def test_a_shared_table_is_one_parameter_that_both_sides_train():
    objective = seq2seq("abc")
    spec, task = spelling(objective)
    separate = Model(spec, encoder_decoder(), objective)
    model = Model(
        spec, encoder_decoder(), objective, embedding=EmbeddingSettings(share_embeddings=True)
    )
    assert model.source_embedder.content is model.embedder.content
    assert separate.num_parameters - model.num_parameters == 3 * DIM
    assert [name for name, p in model.named_parameters() if p is model.embedder.table.weight] == [
        "source_embedder.content.weight"
    ]
    task = task.batch.replace(source=task.batch.source), task.target
    gradients = {}
    for name, silenced in (
        ("both", None),
        ("target", model.source_embedder),
        ("source", model.embedder),
    ):
        model.zero_grad()
        handle = silenced and silenced.register_forward_hook(
            lambda module, given, got: got.replace(hidden=got.hidden.detach())
        )
        hidden = model.backbone(
            model.embedder(task[0]).replace(source=model.source_embedder(task[0].source))
        )
        hidden.square().sum().backward()  # without the head, which has the table too
        gradients[name] = model.embedder.table.weight.grad.clone()
        if handle:
            handle.remove()
    assert gradients["source"].abs().max() > 0
    assert gradients["target"].abs().max() > 0
    assert_close(gradients["both"], gradients["source"] + gradients["target"])


def test_a_step_of_training_moves_a_shared_table_once():
    objective = seq2seq("abc")
    spec, task = spelling(objective)
    model = Model(
        spec, encoder_decoder(), objective, embedding=EmbeddingSettings(share_embeddings=True)
    )
    table = model.embedder.table.weight
    optimizer = AdamW(0.01, weight_decay=0.0).build(model)
    assert sum(p is table for group in optimizer.param_groups for p in group["params"]) == 1
    before = table.detach().clone()
    objective.loss(model(task.batch), task.target, training=True).loss.backward()
    optimizer.step()
    # one step of AdamW is at most its rate
    assert 0.005 < float((table.detach() - before).abs().max()) < 0.011
    assert model.source_embedder.content.weight is table


@pytest.mark.parametrize(
    ("spec", "backbone", "objective", "message"),
    [
        (IDS, lambda: LSTM(DIM), Masked, "is for an encoder–decoder over ids; leave it out"),
        (
            TokenSpec(num_features=3),
            encoder_decoder,
            lambda: seq2seq("abc"),
            "is for an encoder–decoder over ids",
        ),
        (
            IDS,
            encoder_decoder,
            lambda: seq2seq("abc"),
            "the source has 11 ids and the target 5; use the same tok",
        ),
    ],
)
def test_a_table_that_cannot_be_shared_is_refused(spec, backbone, objective, message):
    with pytest.raises(ValueError, match=message):
        Model(spec, backbone(), objective(), embedding=EmbeddingSettings(share_embeddings=True))


def test_a_source_of_as_many_ids_as_the_target_has_may_share_its_table():
    objective = seq2seq("abc")
    spec = TokenSpec(vocab_size=objective.target_spec.vocab_size)
    model = Model(
        spec, encoder_decoder(), objective, embedding=EmbeddingSettings(share_embeddings=True)
    )
    assert model.source_embedder.content is model.embedder.content


def test_embeddings_may_have_a_norm():
    model = Model(
        IDS,
        Transformer(DIM, 1),
        classify(),
        embedding=EmbeddingSettings(embedding_dim=6, embedding_norm=nn.RMSNorm),
    )
    assert isinstance(model.embedder.norm, nn.RMSNorm)
    assert model.embedder.norm.weight.shape == (6,)


def test_embeddings_may_be_narrower_than_the_backbone():
    objective = seq2seq("abc")
    spec, task = spelling(objective)
    model = Model(
        spec,
        encoder_decoder(),
        replaced(objective, tied=False),
        embedding=EmbeddingSettings(embedding_dim=6),
    )
    for embedder in (model.embedder, model.source_embedder):
        assert embedder.content.embedding_dim == embedder.position.dim == 6
        assert embedder.projection.weight.shape == (DIM, 6)
    assert model(task.batch).shape == (2, 4, 5)
    with pytest.raises(ValueError, match=r"hidden states \(6 of 24\)"):
        Model(spec, encoder_decoder(), seq2seq("abc"), embedding=EmbeddingSettings(embedding_dim=6))


def replaced(objective, **changes):
    """The same objective with other attributes."""
    for name, value in changes.items():
        setattr(objective, name, value)
    return objective


# ── one objective, several models ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("objective", [NextToken(), NextToken(tied=True), Masked(fraction=0.5)])
def test_one_objective_serves_models_of_different_vocabularies(objective):
    """In turns, so that nothing of the model that was built last is used for the first."""
    specs = TokenSpec(vocab_size=5), TokenSpec(vocab_size=11)
    models = [Model(spec, LSTM(DIM, causal=bool(objective.causal)), objective) for spec in specs]
    for spec, model in (*zip(specs, models), *zip(specs, models)):
        ids = torch.arange(spec.vocab_size).expand(2, -1)
        batch = TokenBatch(
            ids, torch.zeros(2, spec.vocab_size, 1), torch.ones_like(ids, dtype=torch.bool)
        )
        task = objective.prepare(batch, None)
        logits = model(task.batch, task.masked)
        assert logits.shape[-1] == spec.vocab_size
        assert bool(objective.loss(logits, task.target).loss.isfinite())
        constant = objective.baseline([task.target], model.spec)(task.target)
        assert constant.shape == logits.shape
        assert_close(constant.exp().sum(dim=-1), torch.ones(task.target.shape))
        assert "accuracy" in objective.metrics(model.spec)


def test_one_objective_serves_models_over_ids_and_over_vectors():
    objective = Masked(fraction=0.5)
    ids, vectors = IDS, TokenSpec(num_features=3)
    models = [Model(spec, LSTM(DIM), objective) for spec in (ids, vectors)]
    valid, positions = torch.ones(2, 7, dtype=torch.bool), torch.zeros(2, 7, 1)
    contents = torch.randint(11, (2, 7)), torch.randn(2, 7, 3)
    for model, content, name in zip(models, contents, ("accuracy", "explained")):
        task = objective.prepare(TokenBatch(content, positions, valid), None)
        output = objective.loss(model(task.batch, task.masked), task.target)
        assert int(output.count) == int(task.masked.sum())
        assert list(objective.metrics(model.spec)) == [name]
        objective.baseline([task.target], model.spec)(task.target)


@pytest.mark.slow
def test_the_loss_of_next_token_compiles_as_one_graph():
    spec, objective = TokenSpec(num_axes=1, vocab_size=7), NextToken()
    model = Model(spec, Transformer(8, 1, num_heads=2, causal=True, position=Rotary()), objective)
    batch = TokenBatch.collate(
        [Tokens(torch.randint(7, (5,)), torch.arange(5.0)[:, None]) for _ in range(2)]
    )

    def loss(batch):
        return objective.step(model, (batch, None), training=True).loss

    torch.testing.assert_close(
        torch.compile(loss, fullgraph=True, backend="eager")(batch), loss(batch)
    )
