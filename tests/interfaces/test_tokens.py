"""The data types: what is right passes, what is wrong is refused where it is made, with what would be right."""

import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from seqkit.errors import DataError
from seqkit.interfaces import Adjacency, Embedded, TokenBatch, Tokens, TokenSpec
from seqkit.interfaces.batch import Padding, rounded_up


def graph(*triples):
    """Edges (source, target, type)."""
    source, target, edge_type = zip(*triples) if triples else ((), (), ())
    return Adjacency(
        torch.tensor([source, target], dtype=torch.int64),
        torch.tensor(edge_type, dtype=torch.int64),
    )


def vectors(n, f=3, p=2, adjacency=None):
    return Tokens(torch.randn(n, f), torch.randn(n, p), adjacency)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "num_features=0"),
        ({"vocab_size": 5, "num_features": 3}, "content is one id a token"),
        ({"vocab_size": -1}, "vocab_size is -1; it counts"),
        ({"num_features": 2.0}, "num_features is 2.0"),
        ({"vocab_size": 5, "num_axes": -2}, "num_axes is -2"),
        ({"vocab_sizes": (3, 2), "num_features": 1, "number_places": (0,)}, "for each first id"),
        (
            {"vocab_sizes": (3, 2), "num_features": 1, "number_places": (0, 1, -1)},
            "for each first id",
        ),
        ({"num_features": 4, "number_places": (0,)}, "for each first id"),
    ],
)
def test_a_spec_that_contradicts_itself_is_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        TokenSpec(**fields)


IDS = TokenSpec(vocab_size=5)
VECTORS = TokenSpec(num_features=3, num_axes=2)
NODES = TokenSpec(num_features=3, num_axes=0, num_edge_types=2)


@pytest.mark.parametrize(
    ("spec", "tokens", "message"),
    [
        (IDS, lambda: vectors(4, p=1), r"the spec says \[n\] int64 ids"),
        (
            IDS,
            lambda: Tokens(torch.tensor([1, 5]), torch.zeros(2, 1)),
            "holds id 5, outside its vocabulary of 5",
        ),
        (IDS, lambda: Tokens(torch.tensor([-1, 2]), torch.zeros(2, 1)), "holds id -1"),
        (
            IDS,
            lambda: Tokens(torch.tensor([1]), torch.zeros(1, 2)),
            "positions have 2 axes; the spec says 1",
        ),
        (
            VECTORS,
            lambda: vectors(4, f=7),
            r"content is \[4, 7\] float32; the spec says float vectors \[n 3\]",
        ),
        (
            VECTORS,
            lambda: vectors(4, adjacency=graph((0, 1, 1))),
            "come with an adjacency, but the spec has num_edge_types=0",
        ),
        (
            NODES,
            lambda: vectors(4, p=0),
            "come without adjacency, but the spec has num_edge_types=2",
        ),
        (
            NODES,
            lambda: vectors(4, p=0, adjacency=graph((0, 1, 3))),
            "an edge has type 3; the spec has edge types 1 to 2",
        ),
    ],
)
def test_tokens_that_differ_from_the_spec_are_bad_data(spec, tokens, message):
    with pytest.raises(DataError, match=message):
        spec.check(tokens())


def test_tokens_that_agree_with_the_spec_pass():
    IDS.check(Tokens(torch.tensor([0, 4]), torch.zeros(2, 1)))
    VECTORS.check(vectors(4))
    NODES.check(vectors(4, p=0, adjacency=graph((3, 0, 2))))
    NODES.check(vectors(4, p=0, adjacency=graph()))
    assert IDS.ids
    assert not VECTORS.ids


@pytest.mark.parametrize(
    ("edge_index", "edge_type", "message"),
    [
        (
            torch.zeros(3, 2, dtype=torch.int64),
            torch.ones(2, dtype=torch.int64),
            r"edge_index is \[3, 2\] int64",
        ),
        (torch.zeros(2, 2), torch.ones(2, dtype=torch.int64), r"edge_index is \[2, 2\] float32"),
        (
            torch.zeros(2, 2, dtype=torch.int64),
            torch.ones(3, dtype=torch.int64),
            r"edge_type is \[3\] int64; give \[2\]",
        ),
        (
            torch.zeros(2, 1, dtype=torch.int64),
            torch.zeros(1, dtype=torch.int64),
            "edge_type goes down to 0",
        ),
    ],
)
def test_edges_of_a_wrong_shape_dtype_or_type_are_refused(edge_index, edge_type, message):
    with pytest.raises(ValueError, match=message):
        Adjacency(edge_index, edge_type)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Tokens(torch.zeros(0, 3), torch.zeros(0, 1)), "content has no tokens"),
        (
            lambda: Tokens(torch.zeros(3, dtype=torch.int32), torch.zeros(3, 1)),
            r"content is \[3\] int32",
        ),
        (lambda: Tokens(torch.zeros(3), torch.zeros(3, 1)), r"content is \[3\] float32"),
        (
            lambda: Tokens(torch.zeros(3, 2), torch.zeros(2, 1)),
            r"positions are \[2, 1\] float32; give \[3 p\]",
        ),
        (
            lambda: Tokens(torch.zeros(3, 2), torch.zeros(3, 1).long()),
            r"positions are \[3, 1\] int64",
        ),
        (
            lambda: Tokens(torch.tensor([[0.0], [torch.nan]]), torch.zeros(2, 1)),
            "content of token 1 is not finite",
        ),
        (
            lambda: Tokens(torch.zeros(2, 1), torch.tensor([[torch.inf], [0.0]])),
            "positions of token 0 are not finite",
        ),
        (
            lambda: vectors(3, adjacency=graph((0, 3, 1))),
            "names token 3, but there are tokens 0 to 2",
        ),
        (lambda: vectors(3, adjacency=graph((-1, 0, 1))), "names token -1"),
        (
            lambda: vectors(3, adjacency=graph((0, 1, 1), (0, 1, 2))),
            r"two edges join the same \(source, target\) pair",
        ),
    ],
)
def test_empty_infinite_or_misshapen_tokens_are_bad_data(make, message):
    with pytest.raises(DataError, match=message):
        make()


@given(st.lists(st.integers(1, 7), min_size=1, max_size=5), st.booleans(), st.booleans(), st.data())
def test_a_batch_holds_each_example_and_zeros(lengths, ids, has_adjacency, data):
    examples = []
    for n in lengths:
        pairs = st.lists(
            st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), unique=True, max_size=5
        )
        adjacency = (
            graph(*((i, j, 1 + (i + j) % 3) for i, j in data.draw(pairs)))
            if has_adjacency
            else None
        )
        content = torch.randint(1, 11, (n,)) if ids else torch.randn(n, 3)
        examples.append(Tokens(content, torch.randn(n, 2), adjacency))
    batch = TokenBatch.collate(examples)
    n = max(lengths)
    assert len(batch) == len(lengths)
    assert batch.num_tokens == sum(lengths)
    for i, x in enumerate(examples):
        assert batch.valid[i].tolist() == [t < len(x) for t in range(n)]
        assert_close(batch.content[i, : len(x)], x.content)
        assert_close(batch.positions[i, : len(x)], x.positions)
        assert not batch.content[i, len(x) :].any()
        assert not batch.positions[i, len(x) :].any()
    if has_adjacency:
        right = [
            (i * n + a, i * n + b)
            for i, x in enumerate(examples)
            for a, b in zip(*x.adjacency.edge_index.tolist())
        ]
        assert list(zip(*batch.adjacency.edge_index.tolist())) == right
        assert batch.adjacency.edge_type.tolist() == [
            k for x in examples for k in x.adjacency.edge_type.tolist()
        ]
    else:
        assert batch.adjacency is None


@pytest.mark.parametrize(
    "others",
    [
        lambda: vectors(2, f=5),
        lambda: vectors(2, p=1),
        lambda: vectors(2, adjacency=graph()),
        lambda: Tokens(torch.tensor([1]), torch.zeros(1, 2)),
    ],
)
def test_one_batch_holds_one_tokenizers_tokens(others):
    with pytest.raises(ValueError, match="example 1"):
        TokenBatch.collate([vectors(3), others()])


def test_no_examples_make_no_batch():
    with pytest.raises(ValueError, match="given no examples"):
        TokenBatch.collate([])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"valid": torch.ones(2, 3)}, r"valid is \[2, 3\] float32; give \[b n\] bool"),
        (
            {"content": torch.zeros(2, 5, 4)},
            r"content is \[2, 5, 4\] float32; let it begin with \[2, 3\]",
        ),
        ({"positions": torch.zeros(3, 2, 1)}, r"positions is \[3, 2, 1\]"),
        ({"segments": torch.zeros(2, 2).long()}, r"segments is \[2, 2\] int64"),
    ],
)
def test_a_batch_whose_fields_do_not_agree_is_refused(change, message):
    sound = {
        "content": torch.zeros(2, 3, 4),
        "positions": torch.zeros(2, 3, 1),
        "valid": torch.ones(2, 3).bool(),
    }
    with pytest.raises(ValueError, match=message):
        TokenBatch(**(sound | change))


def test_batches_move_with_all_their_fields():
    batch = TokenBatch.collate(
        [vectors(3, adjacency=graph((0, 1, 1))), vectors(2, adjacency=graph())]
    )
    moved = batch.to("cpu", copy=True)
    assert isinstance(moved, TokenBatch)
    both = [
        (x.content, x.positions, x.valid, x.adjacency.edge_index, x.adjacency.edge_type)
        for x in (batch, moved)
    ]
    for before, after in zip(*both):
        assert_close(after, before)
        assert after.data_ptr() != before.data_ptr()
    assert moved.segments is None


# ── what is known of padding ─────────────────────────────────────────────────────────────────────────────────────────

FULL, RAGGED = (
    torch.ones(2, 3, dtype=torch.bool),
    torch.tensor([[True, True, True], [True, False, False]]),
)
ZEROS = torch.zeros(2, 3, 1)


def make(valid):
    return TokenBatch(
        torch.zeros(*valid.shape, 5, device=valid.device), ZEROS.to(valid.device), valid
    )


def test_padding_is_looked_up_on_the_cpu():
    assert not make(FULL).is_padded
    assert make(RAGGED).is_padded


@pytest.mark.parametrize("valid", [FULL, RAGGED])
def test_what_is_known_of_padding_goes_along_to_a_device_without_values_to_look_at(valid):
    moved = make(valid).to("meta")
    assert moved.valid.device.type == "meta"
    assert moved.is_padded == make(valid).is_padded
    assert moved.to("meta").is_padded == make(valid).is_padded
    assert (
        moved.replace(positions=torch.zeros(2, 3, 2, device="meta")).is_padded
        == make(valid).is_padded
    )


@pytest.mark.parametrize("cut", [slice(2), slice(1, None), slice(0, 3)])
def test_columns_of_a_batch_without_padding_have_none_on_a_device_either(cut):
    for valid in (FULL, RAGGED):
        moved = TokenBatch(torch.zeros(2, 3, 5), ZEROS, valid).to("meta")
        assert moved.columns(cut).is_padded == moved.is_padded
        assert moved.pad(1).is_padded


def test_padding_that_was_not_looked_up_counts_as_padding():
    assert make(FULL.to("meta")).is_padded
    assert make(FULL.to("meta")).to("meta").is_padded


@pytest.mark.parametrize(
    "how", [replace, lambda x, **changes: x.replace(**changes)], ids=["dataclasses", "method"]
)
def test_another_valid_is_looked_up_anew(how):
    assert how(make(FULL), valid=RAGGED).is_padded
    assert not how(make(RAGGED), valid=FULL.clone()).is_padded
    moved = make(FULL).to("meta")
    assert how(moved, valid=RAGGED.to("meta")).is_padded
    assert how(moved, valid=moved.valid.clone()).is_padded


def test_another_process_knows_of_padding_what_this_one_does():
    """A data loader's workers pickle their batches."""
    for valid in (FULL, RAGGED):
        x = pickle.loads(pickle.dumps(make(valid)))
        assert x.is_padded == make(valid).is_padded


COUNTED = torch.arange(40) < torch.tensor([40, 9])[:, None]


def test_padding_before_a_real_token_is_refused():
    valid = torch.ones(3, 4, dtype=torch.bool)
    valid[0, 2:] = False
    for row in ([False, True, True, True], [True, False, True, True]):
        valid[1] = torch.tensor(row)
        with pytest.raises(ValueError, match="row 1 of valid has padding before a real token"):
            TokenBatch(torch.zeros(3, 4, 5), torch.zeros(3, 4, 1), valid)


def test_real_tokens_are_counted_on_the_cpu_and_the_bound_goes_along():
    batch = TokenBatch(torch.zeros(2, 40, 5), torch.zeros(2, 40, 1), COUNTED)
    moved = batch.to("meta")
    assert 49 <= batch.padding.most_real == moved.padding.most_real <= 56
    assert (
        moved.replace(features=torch.zeros(2, 40, 3, device="meta")).padding.most_real
        == batch.padding.most_real
    )
    assert (
        moved.columns(slice(30)).padding.most_real == batch.padding.most_real
    )  # at most 39 are left
    assert moved.columns(slice(20)).padding.most_real == 40  # and there are no more
    assert moved.pad(5).padding.most_real == batch.padding.most_real
    assert moved.replace(valid=moved.valid.clone()).padding.most_real == 80
    assert batch.replace(valid=~COUNTED.flip(1)).padding.most_real == 32  # 31 are
    assert pickle.loads(pickle.dumps(batch)).padding.most_real == batch.padding.most_real


@pytest.mark.parametrize("count", [0, 1, 8, 9, 511, 513, 17_408, 1_000_003])
def test_a_rounded_count_is_little_more(count):
    assert count <= rounded_up(count) <= max(count + 7, count * 33 / 32)


def test_embeddings_know_of_padding_what_they_are_told_until_valid_changes():
    told = Padding(False, 6)
    x = Embedded(torch.zeros(2, 3, 7), ZEROS, FULL).know(told)
    assert x.replace(hidden=torch.ones(2, 3, 7)).padding == told
    assert pickle.loads(pickle.dumps(x)).padding == told
    nothing = Padding(True, 6)
    assert Embedded(x.hidden, x.positions, x.valid).padding == nothing
    assert x.replace(valid=FULL.clone()).padding == nothing
    assert replace(x, valid=RAGGED).padding == nothing


def test_a_source_moves_with_what_it_knows():
    source, ragged = (TokenBatch(torch.zeros(2, 3, 5), ZEROS, valid) for valid in (FULL, RAGGED))
    moved = ragged.replace(source=source).to("meta")
    assert (moved.is_padded, moved.source.is_padded) == (True, False)


def test_edge_types_are_looked_at_on_the_cpu_alone():
    wrong = torch.zeros(1, dtype=torch.int64)
    with pytest.raises(ValueError, match="edge_type goes down to 0"):
        Adjacency(torch.zeros(2, 1, dtype=torch.int64), wrong)
    assert (
        len(Adjacency(torch.zeros(2, 1, dtype=torch.int64, device="meta"), wrong.to("meta"))) == 1
    )


# ── several ids a token, numbers beside them, sets ───────────────────────────────────────────────────────────────────

FIELDS = TokenSpec(vocab_sizes=[7, 3], num_features=2)


def fields(*rows, features=2):
    ids = torch.tensor(rows)
    return Tokens(
        ids, torch.arange(float(len(rows)))[:, None], features=torch.randn(len(rows), features)
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"vocab_sizes": [5, 0]}, r"vocab_sizes\[1\] is 0; it counts"),
        ({"vocab_sizes": [5, 2.0]}, r"vocab_sizes\[1\] is 2.0"),
        ({"vocab_sizes": [5], "vocab_size": 3}, "vocab_size=3, vocab_sizes="),
    ],
)
def test_a_spec_of_fields_that_contradicts_itself_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        TokenSpec(**settings)


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (lambda: fields([6, 3]), "id 3 in field 1, outside its vocabulary of 3"),
        (lambda: fields([-1, 0]), "id -1 in field 0"),
        (lambda: fields([1, 1, 1]), r"content is \[1, 3\] int64; the spec says 2 ids a token"),
        (lambda: fields([1, 1], features=3), "tokens have 3 features; the spec says 2"),
        (
            lambda: Tokens(torch.tensor([[1, 1]]), torch.zeros(1, 1)),
            "tokens have 0 features; the spec says 2",
        ),
        (lambda: vectors(2, f=2, p=1), r"content is \[2, 2\] float32; the spec says 2 ids a token"),
    ],
)
def test_fields_that_differ_from_the_spec_are_bad_data(tokens, message):
    with pytest.raises(DataError, match=message):
        FIELDS.check(tokens())


def test_fields_collate_with_their_numbers():
    first, second = fields([6, 2], [0, 1], [1, 1]), fields([5, 0])
    FIELDS.check(first)
    batch = TokenBatch.collate([first, second])
    assert batch.content.shape == (2, 3, 2)
    assert_close(batch.features[0], first.features)
    assert_close(batch.features[1, :1], second.features)
    assert not batch.features[1, 1:].any()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Tokens(torch.tensor([1]), torch.zeros(1, 1), features=torch.zeros(1, 2)),
            "beside the ids of fields",
        ),
        (
            lambda: Tokens(torch.tensor([[1, 2]]), torch.zeros(1, 1), features=torch.zeros(2, 2)),
            r"give \[1 f\] float",
        ),
        (
            lambda: Tokens(
                torch.tensor([[1]]), torch.zeros(1, 1), features=torch.full((1, 1), torch.nan)
            ),
            "features of",
        ),
        (lambda: Tokens([1], torch.zeros(1, 1)), "content is of type list; give a torch.Tensor"),
    ],
)
def test_numbers_beside_ids_that_do_not_fit_are_bad_data(make, message):
    with pytest.raises(DataError, match=message):
        make()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_numbers_of_another_precision_become_float32(dtype):
    tokens = Tokens(torch.ones(2, 3, dtype=dtype), torch.ones(2, 1, dtype=dtype))
    assert {tokens.content.dtype, tokens.positions.dtype} == {torch.float32}


def test_a_number_that_float32_cannot_hold_is_refused():
    with pytest.raises(DataError, match="content of token 0 is not finite"):
        Tokens(torch.full((1, 1), 1e300, dtype=torch.float64), torch.zeros(1, 1))


@pytest.mark.slow
def test_a_field_that_is_added_is_forgotten_nowhere():
    script = Path(__file__).with_name("planted_field.py")
    found = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
    assert found.stdout.split() == [
        "in_batches", "in_examples", "in_digest_and_cache", "in_windows", "in_packed_rows", "in_objectives",
        "in_checks",
    ]  # fmt: skip


def test_edges_go_with_their_tokens():
    given = replace(vectors(5), adjacency=graph((0, 1, 1), (4, 2, 2), (2, 2, 1), (3, 0, 2)))
    chosen = given.at(torch.tensor([4, 2, 0]))
    assert chosen.content.equal(given.content[[4, 2, 0]])
    assert chosen.adjacency.edge_index.T.tolist() == [[0, 1], [1, 1]]
    assert chosen.adjacency.edge_type.tolist() == [2, 1]
    batch = TokenBatch.collate([given, replace(vectors(2), adjacency=graph((1, 0, 2)))])
    cut = batch.columns(slice(1, 4))  # 3 columns: tokens 1, 2, 3
    assert cut.adjacency.edge_index.T.tolist() == [[1, 1]]
    longer = batch.pad(2)
    assert longer.adjacency.edge_index.T.tolist() == [[0, 1], [4, 2], [2, 2], [3, 0], [8, 7]]
    assert longer.columns(slice(5)).adjacency.edge_index.equal(batch.adjacency.edge_index)


@pytest.mark.parametrize("spec", [
    TokenSpec(vocab_size=7), TokenSpec(num_features=3, num_axes=2), TokenSpec(num_features=2, num_axes=0),
    TokenSpec(vocab_sizes=(3, 5)), TokenSpec(vocab_sizes=(3, 5), num_features=2, num_axes=3),
])  # fmt: skip
def test_random_tokens_keep_their_spec(spec):
    drawn = [spec.random(11, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1)]
    for tokens in drawn:
        spec.check(tokens)
        assert len(tokens) == 11
        assert len(set(map(tuple, tokens.positions.tolist()))) == (11 if spec.num_axes else 1)
    assert drawn[0].equals(drawn[1])
    assert not drawn[0].equals(drawn[2])
    assert spec.ids_of(drawn[0]).shape == (11, len(spec.id_sizes))
    assert spec.numbers_of(drawn[0]).shape == (11, spec.num_features)


def test_a_token_is_appended_with_its_numbers_and_edges():
    plain = Tokens(torch.tensor([3, 4]), torch.tensor([[0.0], [1.5]]))
    longer = plain.append(torch.tensor(5), torch.tensor([2.0]))
    assert longer.equals(Tokens(torch.tensor([3, 4, 5]), torch.tensor([[0.0], [1.5], [2.0]])))
    node = replace(plain, adjacency=graph((0, 1, 1)))
    alone = node.append(torch.tensor(5), torch.tensor([2.0]))
    assert alone.adjacency.edge_index.T.tolist() == [[0, 1]]
    joined = node.append(torch.tensor(5), torch.tensor([2.0]), edges=graph((2, 0, 3)))
    assert joined.adjacency.edge_index.T.tolist() == [[0, 1], [2, 0]]
    assert joined.adjacency.edge_type.tolist() == [1, 3]
    first = plain.append(torch.tensor(5), torch.tensor([2.0]), edges=graph((2, 0, 3)))
    assert first.adjacency.edge_index.T.tolist() == [[2, 0]]
    with pytest.raises(DataError, match="token 3"):
        plain.append(torch.tensor(5), torch.tensor([2.0]), edges=graph((3, 0, 3)))
    notes = Tokens(torch.tensor([[1, 2]]), torch.zeros(1, 1), features=torch.tensor([[0.5]]))
    two = notes.append(torch.tensor([3, 4]), torch.ones(1), features=torch.tensor([0.25]))
    assert two.content.tolist() == [[1, 2], [3, 4]]
    assert two.features.tolist() == [[0.5], [0.25]]


def test_different_positions_that_are_all_the_same_in_float32_are_refused():
    content = torch.ones(3, 1)
    seconds = 1.7e9 + torch.tensor([0.0, 7.0, 20.0], dtype=torch.float64)[:, None]
    with pytest.raises(DataError, match="float32"):
        Tokens(content, seconds)
    assert Tokens(content, seconds - seconds[0]).positions[:, 0].tolist() == [0.0, 7.0, 20.0]
    # as they were given
    assert len(Tokens(content, torch.full((3, 1), 1.7e9 + 7, dtype=torch.float64))) == 3


def test_the_first_points_of_a_set_are_no_part_of_it():
    tokens = Tokens(torch.arange(3), torch.zeros(3, 0))
    assert len(tokens.first(2)) == 2
    assert len(tokens.first(3, is_set=True)) == 3
    with pytest.raises(DataError, match="cut to 2"):
        tokens.first(2, is_set=True)


def test_the_verb_fits_numbers_that_are_not_finite():
    with pytest.raises(DataError, match=r"^features of token 1 are not finite"):
        Tokens(
            torch.zeros(2, 1).long(),
            torch.ones(2, 1),
            features=torch.tensor([[1.0], [float("nan")]]),
        )


CUTS = {
    "columns": lambda x: x.columns(slice(1, 3)),
    "select": lambda x: x.select(torch.tensor([1])),
}


@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
def test_a_part_of_a_batch_without_padding_is_known_to_have_none_where_values_are_not_read(
    cut, monkeypatch
):
    tokens = [Tokens(torch.arange(4), torch.arange(4.0)[:, None])] * 2
    full, padded = TokenBatch.collate(tokens), TokenBatch.collate([tokens[0], tokens[0].first(2)])
    monkeypatch.setattr("seqkit.interfaces.batch.may_read", lambda _: False)
    assert not cut(full).is_padded
    assert cut(padded).is_padded
    assert full.pad(1).is_padded
