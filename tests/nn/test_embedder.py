"""The Embedder: content to embeddings, positional encoding, mask token, padding."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from seqkit.backbones import GRU, LSTM, RNN, EncoderDecoder, RNNDecoder, Transformer
from seqkit.interfaces import Adjacency, Embedded, TokenBatch, Tokens, TokenSpec
from seqkit.model import Model
from seqkit.nn.embedder import Embedder, EmbeddingSettings
from seqkit.nn.position.absolute import Learned, NoPosition, Sinusoidal, default_position
from seqkit.nn.position.rotary import Rotary
from seqkit.objectives import Masked, NextToken, Seq2Seq
from seqkit.registry import components
from seqkit.tokenizers import Characters

IDS = TokenSpec(vocab_size=11)
VECTORS = TokenSpec(num_features=3, num_axes=2)


def ids(*lengths):
    return TokenBatch.collate(
        [Tokens(torch.randint(11, (n,)), torch.arange(float(n))[:, None]) for n in lengths]
    )


def vectors(*lengths):
    return TokenBatch.collate([Tokens(torch.randn(n, 3), torch.randn(n, 2)) for n in lengths])


def test_ids_are_looked_up_and_their_positions_added():
    embedder, batch = Embedder(IDS, 14), ids(5, 3)
    embedded = embedder(batch)
    right = embedder.content.weight[batch.content] + Sinusoidal(14, 1)(batch.positions)
    assert_close(embedded.hidden[batch.valid], right[batch.valid])
    assert not embedded.hidden[~batch.valid].any()
    assert embedded.valid is batch.valid


@pytest.mark.parametrize(
    ("backbone", "num_axes", "encoding"),
    [
        (Transformer(6, 1, num_heads=1), 1, Sinusoidal),
        (Transformer(6, 1, num_heads=1), 0, NoPosition),
        (LSTM(6), 1, NoPosition),
        (LSTM(6), 2, Sinusoidal),  # it knows the order of columns, not the second axis
        (Transformer(6, 1, num_heads=1, position=Rotary()), 2, NoPosition),
        (None, 1, Sinusoidal),
    ],
)
def test_positions_are_added_where_the_backbone_does_not_use_them(backbone, num_axes, encoding):
    assert default_position(backbone, TokenSpec(num_features=3, num_axes=num_axes)) is encoding


def test_vectors_go_through_a_linear_layer():
    embedder, batch = Embedder(VECTORS, 12, position=NoPosition), vectors(5, 3)
    right = batch.content @ embedder.content.weight.T + embedder.content.bias
    assert_close(embedder(batch).hidden[batch.valid], right[batch.valid])


def test_tokens_without_content_are_learned_vectors_wherever_they_stand():
    embedder = Embedder(
        TokenSpec(num_features=5, num_prefix_tokens=2, num_axes=2), 12, position=NoPosition
    )
    content = torch.block_diag(torch.eye(2), torch.randn(4, 3))
    order = torch.tensor([3, 1, 5, 0, 4, 2])
    batch = TokenBatch.collate(
        [Tokens(x, torch.randn(len(x), 2)) for x in (content[order], content[:3])]
    )
    layer = embedder.content
    right = torch.cat([layer.prefix, layer.projection(content[2:, 2:])])
    assert_close(embedder(batch).hidden[0], right[order])
    assert_close(embedder(batch).hidden[1, :3], right[:3])
    assert not embedder(batch).hidden[1, 3:].any()
    assert {name for name, _ in layer.named_parameters()} == {
        "prefix",
        "projection.weight",
        "projection.bias",
    }


@pytest.mark.parametrize(
    "sizes", [{"num_features": 2}, {"vocab_size": 7}, {"vocab_sizes": (2, 3), "num_features": 5}]
)
def test_tokens_without_content_need_vectors_with_a_flag_each(sizes):
    with pytest.raises(ValueError, match="flag"):
        TokenSpec(**sizes, num_prefix_tokens=2)


def test_random_tokens_begin_with_those_without_content():
    tokens = TokenSpec(num_features=5, num_prefix_tokens=2).random(7)
    assert torch.equal(tokens.content[:, :2], torch.eye(7, 2))
    assert not tokens.content[:2, 2:].any()
    assert tokens.content[2:, 2:].all()


def test_a_tokenizers_own_embedder_takes_the_place_of_both():
    spec = replace(VECTORS, embedder=lambda dim: nn.Conv1d(5, 5, 1) if dim == 3 else None)
    batch = vectors(5, 5)
    embedder = Embedder(spec, 3, position=NoPosition)
    assert_close(embedder(batch).hidden, embedder.content(batch.content))


@pytest.mark.parametrize(("position", "std"), [(Sinusoidal, 1.0), (NoPosition, 0.02)])
def test_looked_up_content_starts_as_large_as_positions(position, std):
    embedder = Embedder(TokenSpec(vocab_size=503), 64, position=position)
    assert float(embedder.content.weight.detach().std()) == pytest.approx(std, rel=0.05)
    masked = Embedder(
        TokenSpec(vocab_size=2), 1000, position=position, uses_mask_token=True
    ).mask_token
    assert float(masked.detach().std()) == pytest.approx(std, rel=0.1)


def test_a_masked_token_keeps_its_position_and_nothing_of_its_content():
    embedder, batch = Embedder(VECTORS, 12, uses_mask_token=True), vectors(5, 3)
    masked = torch.zeros(2, 5, dtype=torch.bool)
    masked[0, 1] = masked[1, 2] = True
    embedded = embedder(batch, masked).hidden
    right = embedder.mask_token + Sinusoidal(12, 2)(batch.positions)
    assert_close(embedded[masked], right[masked])
    other = replace(batch, content=batch.content.masked_fill(masked[..., None], 7.0))
    assert_close(embedder(other, masked).hidden, embedded)
    assert_close(embedded[~masked], embedder(batch).hidden[~masked])


def test_masking_without_a_mask_token_is_refused():
    with pytest.raises(ValueError, match="uses_mask_token"):
        Embedder(IDS, 14)(ids(3), torch.ones(1, 3, dtype=torch.bool))


def test_an_embedder_of_graphs_has_no_weights_of_edges():
    embedder = Embedder(TokenSpec(num_features=3, num_axes=0, num_edge_types=2), 6)
    assert {name for name, _ in embedder.named_parameters()} == {"content.weight", "content.bias"}


class MeanOfTwo(nn.Linear):
    """One embedding for every two tokens."""

    def forward(self, x):
        return super().forward(x.unflatten(1, (-1, 2)).mean(dim=2))


def test_an_embedder_that_changes_the_number_of_tokens_is_refused():
    embedder = Embedder(replace(VECTORS, embedder=partial(MeanOfTwo, 3)), 12)
    with pytest.raises(ValueError, match=r"\[2, 2\] tokens of \[2, 4\]"):
        embedder(vectors(4, 3))


def test_vectors_take_the_dtype_of_the_weights():
    embedder = Embedder(VECTORS, 12, uses_mask_token=True).double()
    batch = vectors(5, 3)
    masked = torch.zeros(2, 5, dtype=torch.bool)
    masked[0, 1] = True
    hidden = embedder(batch, masked).hidden
    assert hidden.dtype == torch.float64
    assert_close(
        hidden[0, 1], embedder.mask_token + Sinusoidal(12, 2).double()(batch.positions)[0, 1]
    )


@pytest.mark.parametrize("lengths", [(5, 5), (5, 3)])
def test_embeddings_know_whether_there_is_padding_on_a_device_that_has_no_values(lengths):
    batch = vectors(*lengths).to("meta")
    assert Embedder(VECTORS, 12).to("meta")(batch).is_padded == (lengths == (5, 3))


def test_adjacency_segments_and_positions_are_passed_on():
    adjacency = Adjacency(torch.tensor([[1], [0]]), torch.tensor([1]))
    batch = replace(vectors(2, 1), adjacency=adjacency, segments=torch.zeros(2, 2).long())
    embedded = Embedder(VECTORS, 12)(batch)
    assert embedded.adjacency is adjacency
    assert embedded.segments is batch.segments
    assert_close(embedded.positions, batch.positions)


def test_dropout_acts_while_training_only():
    embedder, batch = Embedder(IDS, 14, dropout=0.5), ids(5, 3)
    assert not torch.equal(embedder(batch).hidden, embedder(batch).hidden)
    embedder.eval()
    assert_close(embedder(batch).hidden, embedder(batch).hidden)


def test_positions_of_padding_are_never_looked_up():
    embedder = Embedder(IDS, 14, position=lambda dim, num_axes: Learned(dim, num_axes, sizes=[5]))
    batch = ids(5, 3)
    wild = replace(batch, positions=batch.positions.masked_fill(~batch.valid[..., None], 99.0))
    assert_close(embedder(wild).hidden, embedder(batch).hidden)


def test_a_head_may_share_the_table_where_it_is_as_wide_as_hidden_states():
    embedder = Embedder(IDS, 14)
    assert embedder.table is embedder.content
    with pytest.raises(ValueError, match="own embedder"):
        _ = Embedder(VECTORS, 12).table


# ── embeddings narrower than the backbone ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("spec", [IDS, VECTORS])
def test_narrow_embeddings_are_projected_after_positions_and_norm(spec):
    embedder = Embedder(
        spec,
        14,
        embedding=EmbeddingSettings(embedding_dim=8, embedding_norm=nn.LayerNorm),
        uses_mask_token=True,
    )
    nn.init.normal_(embedder.norm.weight)
    batch = ids(5, 3) if spec.ids else vectors(5, 3)
    masked = torch.zeros(2, 5, dtype=torch.bool)
    masked[0, 1] = True
    content = torch.where(masked[..., None], embedder.mask_token, embedder.content(batch.content))
    right = embedder.projection(
        embedder.norm(content + Sinusoidal(8, spec.num_axes)(batch.positions))
    )
    got = embedder(batch, masked).hidden
    assert got.shape == (2, 5, 14)
    assert_close(got[batch.valid], right[batch.valid])
    assert not got[~batch.valid].any()


def test_embeddings_are_projected_only_where_they_are_narrower():
    for embedding_dim in (None, 14):
        embedder = Embedder(IDS, 14, embedding=EmbeddingSettings(embedding_dim=embedding_dim))
        assert embedder.projection is None
        assert embedder.norm is None
        assert [name for name, _ in embedder.named_parameters()] == ["content.weight"]
    assert Embedder(IDS, 14, embedding=EmbeddingSettings(embedding_dim=6)).dim == 14
    with pytest.raises(ValueError, match="embedding_dim=0"):
        Embedder(IDS, 14, embedding=EmbeddingSettings(embedding_dim=0))


def test_a_table_narrower_than_hidden_states_is_not_shared_with_a_head():
    with pytest.raises(ValueError, match="6 of 14"):
        _ = Embedder(IDS, 14, embedding=EmbeddingSettings(embedding_dim=6)).table


# ── embeddings with a scale ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("position", [Sinusoidal])
@pytest.mark.parametrize("spec", [IDS, VECTORS, TokenSpec(vocab_sizes=(11, 3), num_features=2)])
def test_a_scale_is_of_content_and_mask_token_not_of_positions(spec, position):
    torch.manual_seed(1)
    scaled = Embedder(
        spec,
        12,
        position=position,
        uses_mask_token=True,
        embedding=EmbeddingSettings(embedding_scale=3.5),
    )
    torch.manual_seed(1)
    plain = Embedder(spec, 12, position=position, uses_mask_token=True)
    plain.load_state_dict(scaled.state_dict())
    batch = ids(5, 3) if spec.ids else vectors(5, 3)
    if spec.vocab_sizes:
        content = torch.randint(3, (2, 5, 2))
        batch = replace(ids(5, 3), content=content, features=torch.randn(2, 5, 2))
    masked = torch.zeros(2, 5, dtype=torch.bool)
    masked[0, 1] = True
    positions = plain.position(batch.positions)
    content = plain(batch, masked).hidden - positions
    assert_close(
        scaled(batch, masked).hidden[batch.valid], (3.5 * content + positions)[batch.valid]
    )


@pytest.mark.parametrize(("position", "std"), [(Sinusoidal, 1.0), (NoPosition, 0.02)])
def test_scaled_content_starts_as_large_as_positions(position, std):
    embedder = Embedder(
        TokenSpec(vocab_size=503),
        64,
        position=position,
        embedding=EmbeddingSettings(embedding_scale=8.0),
    )
    assert float(embedder.content.weight.detach().std()) * 8 == pytest.approx(std, rel=0.05)
    assert embedder.logit_scale == 1.0  # sqrt(d) smaller, so that d of them need no scale


@pytest.mark.parametrize("scale", [0, -1.0, float("inf"), float("nan")])
def test_a_scale_that_is_no_factor_is_refused(scale):
    with pytest.raises(ValueError, match=f"scale={scale}"):
        Embedder(IDS, 14, embedding=EmbeddingSettings(embedding_scale=scale))


# ── inputs of about unit variance ────────────────────────────────────────────────────────────────────────────────────

FIELDS = {"vocab_sizes": (11, 3, 7)}
CONTENTS = {
    "ids": TokenSpec(vocab_size=101),
    "fields": TokenSpec(**FIELDS),
    "fields and numbers": TokenSpec(**FIELDS, num_features=5),
    "numbers": TokenSpec(num_features=5),
    "many numbers": TokenSpec(num_features=97),
    "prefix and numbers": TokenSpec(num_features=2 + 5, num_prefix_tokens=2),
}
POSITIONS = {"none": NoPosition, "sinusoidal": Sinusoidal, "learned": partial(Learned, sizes=[13])}


def batch_of(spec, n=13):
    """Three examples of n tokens, numbers of size 1."""
    return TokenBatch.collate([spec.random(n) for _ in range(3)])


def size(x):
    return float(x.detach().square().mean().sqrt())


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("scale", [1.0, 3.5])
@pytest.mark.parametrize("content", CONTENTS)
def test_tokens_begin_with_a_size_of_about_1_where_they_are_taken_as_they_are(
    content, position, scale
):
    torch.manual_seed(0)
    spec = CONTENTS[content]
    made = partial(
        Embedder,
        spec,
        64,
        position=POSITIONS[position],
        unit=True,
        embedding=EmbeddingSettings(embedding_scale=scale),
        uses_mask_token=True,
    )
    embedder, batch = made(), batch_of(spec)
    masked = torch.arange(13).repeat(3, 1) >= 8
    hidden = embedder(batch, masked).hidden
    # prefix tokens, if there are any, others, and masked ones
    for columns in (slice(2), slice(2, 8), slice(8, 13)):
        assert 0.5 < size(hidden[:, columns]) < 2


@pytest.mark.parametrize("content", CONTENTS)
def test_content_and_learned_positions_each_begin_with_unit_variance(content):
    torch.manual_seed(0)
    spec = CONTENTS[content]
    embedder = Embedder(spec, 64, position=partial(Learned, sizes=[101]), unit=True)
    batch = batch_of(spec, 101)
    assert size(embedder.position.tables[0]) == pytest.approx(1, rel=0.1)
    assert size(embedder.content(batch.content)) == pytest.approx(1, rel=0.2)
    if embedder.features is not None:
        assert size(embedder.features(batch.features)) == pytest.approx(1, rel=0.2)


def test_elsewhere_numbers_begin_as_torch_says_and_learned_positions_small():
    position = partial(Learned, sizes=[101])
    for spec in (CONTENTS["numbers"], CONTENTS["prefix and numbers"]):
        embedder = Embedder(spec, 64, position=position)
        linear = (
            embedder.content
            if isinstance(embedder.content, nn.Linear)
            else embedder.content.projection
        )
        bound = 5**-0.5  # of torch's own start, for five numbers
        for weights in (linear.weight, linear.bias):
            assert 0.9 * bound < weights.abs().max() <= bound
    assert (
        size(Embedder(CONTENTS["prefix and numbers"], 64, position=position).content.prefix) < 0.03
    )
    features = Embedder(CONTENTS["fields and numbers"], 64, position=position).features
    assert 0.9 * bound < features.weight.abs().max() <= bound
    assert size(Embedder(IDS, 64, position=position).position.tables[0]) == pytest.approx(
        0.02, rel=0.1
    )


TAKES_ANY_SIZE = {
    "APPNP", "AttentionDecoder", "GCN", "GIN", "GRU", "LSTM", "Mamba", "MeanPool", "RNN", "Reversible", "S4D",
    "TCN", "Transformer",
}  # fmt: skip
WITH_SOURCE = {
    "AttentionDecoder": lambda cls: EncoderDecoder(GRU(64, 1), cls(GRU(64, 1, causal=True))),
    "EncoderDecoder": lambda cls: cls(Transformer(64, 1), RNNDecoder(64)),
    "RNNDecoder": lambda cls: EncoderDecoder(GRU(64, 1), cls(64)),
}


# whose parts have their own
@pytest.mark.parametrize("name", sorted(set(components("backbone")) - {"Towers"}))
def test_a_backbone_gets_inputs_of_about_1_unless_a_norm_stands_before_what_reads_them(name):
    cls, spec, objective = components("backbone")[name].load(), TokenSpec(vocab_size=101), Masked()
    if name in ("APPNP", "GCN", "GIN"):
        spec = replace(spec, num_axes=0, num_edge_types=2)
    if name in WITH_SOURCE:
        objective = Seq2Seq(Characters("abcdefghijk"), tied=False)
    backbone = WITH_SOURCE[name](cls) if name in WITH_SOURCE else cls(64, 1)
    assert backbone.needs_unit_inputs == (name not in TAKES_ANY_SIZE)
    embedder = Model(spec, backbone, objective).embedder
    right = embedder.position.std if name in TAKES_ANY_SIZE else 1.0
    assert size(embedder.table.weight) == pytest.approx(right, rel=0.1)


@pytest.mark.parametrize("cls", [GRU, LSTM, RNN])
def test_a_bare_recurrent_network_gets_inputs_of_about_1(cls):
    embedder = Model(TokenSpec(vocab_size=101), cls(64, 1, residual=False), Masked()).embedder
    assert size(embedder.table.weight) == pytest.approx(1, rel=0.1)


@pytest.mark.parametrize(("scale", "logit_scale"), [(1.0, 64**-0.5), (8.0, 1.0)])
def test_a_tied_head_is_scaled_where_entries_of_the_table_are_about_1_without_positions(
    scale, logit_scale
):
    embedder = Embedder(
        IDS, 64, position=NoPosition, unit=True, embedding=EmbeddingSettings(embedding_scale=scale)
    )
    assert embedder.logit_scale == pytest.approx(logit_scale)


# ── tied heads ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("dim", [14, 4096])
@pytest.mark.parametrize(("position", "scaled"), [(NoPosition, False), (Sinusoidal, True)])
def test_logits_of_a_tied_head_are_scaled_only_where_the_tables_entries_are_about_1(
    position, scaled, dim
):
    """Whatever the width: entries of 0.02 are so small that 4096 of them still need no scale."""
    embedder = Embedder(IDS, dim, position=position)
    assert embedder.logit_scale == (dim**-0.5 if scaled else 1.0)
    hidden = torch.randn(2, 3, dim)
    embedded = Embedded(hidden, torch.zeros(2, 3, 1), torch.ones(2, 3, dtype=torch.bool))
    logits = NextToken(tied=True).head(embedder)(hidden, embedded)
    right = hidden @ embedder.table.weight.T
    assert_close(logits, right * dim**-0.5 if scaled else right, rtol=1e-4, atol=1e-4)
    if not scaled:
        assert float(embedder.table.weight.detach().std()) == pytest.approx(0.02, rel=0.25)
