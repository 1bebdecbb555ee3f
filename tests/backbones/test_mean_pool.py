"""The bag of tokens: means by definition, no order, no positions unless they are given, its cache."""

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from seqkit.backbones import MeanPool, Transformer
from seqkit.interfaces import Adjacency, Embedded, TokenSpec
from seqkit.model import Model
from seqkit.nn.position.absolute import NoPosition, Sinusoidal
from seqkit.objectives import Masked

DIM = 7


def embedded(lengths):
    n = max(lengths)
    valid = torch.arange(n) < torch.tensor(lengths)[:, None]
    hidden = torch.randn(len(lengths), n, DIM, dtype=torch.float64).masked_fill(
        ~valid[..., None], 0.0
    )
    return Embedded(hidden, torch.zeros(len(lengths), n, 1), valid)


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("causal", [False, True])
def test_an_output_is_an_mlp_of_the_mean_of_mlps(causal, depth):
    pool, x = MeanPool(DIM, depth, causal=causal).double(), embedded([5, 3])
    assert (len(pool.phi), len(pool.rho)) == (depth, depth)
    got = pool(x)
    for i, n in enumerate([5, 3]):
        each = [pool.phi(token[None])[0] for token in x.hidden[i, :n]]
        for t in range(n):
            over = each[: t + 1] if causal else each
            assert_close(got[i, t], pool.norm(pool.rho(sum(over) / len(over))))
        assert not got[i, n:].any()


def test_without_mlps_an_output_is_the_normalised_mean_of_the_embeddings():
    pool, x = MeanPool(DIM, mlp=None).double(), embedded([5, 3])
    assert_close(pool(x)[1, 0], F.layer_norm(x.hidden[1, :3].mean(0), [DIM]))
    with pytest.raises(ValueError, match="depth=2"):
        MeanPool(DIM, 2, mlp=None)


@pytest.mark.parametrize("depth", [1, 3])
def test_the_order_of_earlier_tokens_changes_nothing(depth):
    pool, x = MeanPool(DIM, depth, causal=True).double(), embedded([7])
    order = torch.tensor([4, 2, 0, 3, 1])
    permuted = x.replace(hidden=torch.cat([x.hidden[:, order], x.hidden[:, 5:]], dim=1))
    assert_close(pool(permuted)[:, 4:], pool(x)[:, 4:])
    assert (pool(permuted)[:, :4] - pool(x)[:, :4]).abs().max() > 1e-3


def test_a_model_adds_no_positions_unless_they_are_given():
    spec = TokenSpec(vocab_size=11)
    assert type(Model(spec, MeanPool(8), Masked()).embedder.position) is NoPosition
    assert (
        type(Model(spec, MeanPool(8), Masked(), position=Sinusoidal).embedder.position)
        is Sinusoidal
    )


def test_the_cache_is_one_sum_however_long_the_past():
    pool, x, more = MeanPool(DIM, 2, causal=True).double(), embedded([5, 3]), embedded([2, 2])
    cache, rows = pool.init_cache(7), torch.tensor([1, 0])
    pool(x, cache)
    cache.reorder(rows)
    got = pool(more, cache)
    assert cache.num_tokens == 7
    total, count = cache.states[0]
    assert (total.shape, count.flatten().tolist()) == ((2, 1, DIM), [5, 7])
    for i, row in enumerate(rows.tolist()):
        whole = torch.cat([x.hidden[row, : [5, 3][row]], more.hidden[i]])[None]
        valid = torch.ones(1, whole.shape[1], dtype=torch.bool)
        assert_close(
            got[i], pool(Embedded(whole, torch.zeros(1, whole.shape[1], 1), valid))[0, -2:]
        )


def test_a_bfloat16_mean_of_many_tokens_counts_them_all():
    """In bfloat16 a running sum of ones would stop at 256."""
    pool, one = MeanPool(DIM, causal=True), torch.ones(1, 1, DIM, dtype=torch.bfloat16)
    cache = pool.init_cache(600)
    for _ in range(600):
        mean = pool.mean(one, torch.ones(1, 1, dtype=torch.bool), cache)
    assert_close(mean, one)


def test_invalid_arguments_and_unsupported_input_are_refused():
    x = embedded([3, 2])
    with pytest.raises(ValueError, match="depth=0"):
        MeanPool(DIM, 0)
    adjacency = Adjacency(torch.zeros(2, 0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64))
    with pytest.raises(ValueError, match="does not support adjacency"):
        MeanPool(DIM).double()(x.replace(adjacency=adjacency))
    with pytest.raises(ValueError, match="not causal"):
        MeanPool(DIM).init_cache(5)
    with pytest.raises(ValueError, match="TransformerCache"):
        MeanPool(DIM, causal=True).double()(
            x, Transformer(DIM, 1, num_heads=1, causal=True).init_cache(3)
        )
