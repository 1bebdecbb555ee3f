"""Joined tokens: an absent part is as if it had not been given, one part joined is that part alone, and each is placed.

b batch · n tokens
"""

from dataclasses import replace

import pytest
import torch
from graphs import graph_of
from torch.testing import assert_close

from seqkit.backbones.message_passing import GIN
from seqkit.backbones.rnn import LSTM
from seqkit.backbones.transformer import Transformer
from seqkit.data.encoding import tokenizer_fingerprint
from seqkit.data.token_rows import Stored, batch_of, row_of
from seqkit.errors import DataError
from seqkit.interfaces import TokenBatch, Tokens, TokenSpec
from seqkit.model import Model
from seqkit.nn.attention.context import attention_context
from seqkit.nn.join_embedder import JoinEmbedder
from seqkit.nn.position.bias import ALiBi
from seqkit.nn.position.rotary import Rotary
from seqkit.objectives import Classify, Masked, NextToken
from seqkit.testing import EmbeddedBackbone, synthetic
from seqkit.tokenizers import Bytes, Graph, Join, Patches

DIM = 24


def join() -> Join:
    return Join({"image": Patches(4), "text": Bytes(), "graph": Graph(0, num_edge_types=1)})


IMAGE, TRIANGLE = (
    torch.rand(1, 8, 12, generator=torch.Generator().manual_seed(0)),
    graph_of(3, [(0, 1), (1, 2)]),
)
RAWS = [
    {"image": IMAGE, "text": "hello", "graph": TRIANGLE},
    {"text": "ab", "image": None},
    {"graph": TRIANGLE, "image": IMAGE[:, :4]},
    [("graph", TRIANGLE), ("text", "ab"), ("graph", graph_of(2, [(0, 1)])), ("image", IMAGE)],
]


def classifier(spec: TokenSpec, backbone=None, **settings) -> Model:
    objective = Classify()
    objective.fit([0, 1], None)
    backbone = backbone or Transformer(DIM, 2, num_heads=3, position=Rotary(interleaved=True))
    return Model(spec, backbone, objective, **settings).double().eval()


def batch_of_all() -> TokenBatch:
    return TokenBatch.collate([join().encode(raw) for raw in RAWS])


# ── the contract ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_tokens_come_back_from_their_tensors_from_a_batch_and_from_the_disk():
    examples, batch = [join().encode(raw) for raw in RAWS], batch_of_all()
    assert len({row_of(x)["digest"] for x in examples}) == len(examples)
    import pyarrow as pa

    stored = Stored(pa.Table.from_batches([batch_of(examples[:2]), batch_of(examples[2:])]))
    for i, x in enumerate(examples):
        join().spec.check(x)
        assert Tokens.of(x.tensors()).equals(x)
        assert batch.example(i).equals(x)
        assert stored[i].equals(x)


def test_parts_stand_in_the_order_of_the_recipe_or_of_the_list():
    assert [name for name, _ in join().encode({"graph": TRIANGLE, "image": IMAGE}).parts] == [
        "image",
        "graph",
    ]
    assert [name for name, _ in join().encode(RAWS[3]).parts] == ["graph", "text", "graph", "image"]


def test_positions_of_a_mapping_begin_at_zero_and_those_of_a_list_run_on():
    spec = TokenSpec(
        parts={"a": TokenSpec(vocab_size=5), "b": TokenSpec(num_features=2, num_axes=2)}
    )
    text = Tokens(torch.tensor([1, 2]), torch.tensor([[0.0], [4.0]]))
    image = Tokens(torch.zeros(2, 2), torch.tensor([[0.0, 0.0], [0.0, 1.0]]))
    runs = [("a", text), ("b", image), ("a", text)]
    assert spec.join(runs).positions.tolist() == [[0, 0], [4, 4], [0, 0], [0, 1], [0, 0], [4, 4]]
    on = spec.join(runs, runs_on=True)
    assert on.positions.tolist() == [[0, 0], [4, 4], [5, 5], [5, 6], [7, 7], [11, 11]]
    assert on.parts[2][1].positions.tolist() == [[7], [11]], (
        "the run's own positions are those of the sequence"
    )


def test_edges_are_shifted_to_their_tokens_and_types_to_their_part():
    graphs = {
        "one": TokenSpec(num_features=1, num_axes=0, num_edge_types=3),
        "two": TokenSpec(num_features=1, num_axes=0, num_edge_types=2),
    }
    spec = TokenSpec(parts=graphs)
    run = Graph(1).encode(graph_of([[0.5], [1.0]], [(0, 1)]))
    joined = spec.join([("two", run), ("one", run), ("two", run)])
    assert spec.num_edge_types == 5
    assert joined.adjacency is not None
    pairs = dict(
        zip(map(tuple, joined.adjacency.edge_index.T.tolist()), joined.adjacency.edge_type.tolist())
    )
    assert pairs == {(0, 1): 4, (1, 0): 4, (2, 3): 1, (3, 2): 1, (4, 5): 4, (5, 4): 4}


def test_a_batch_is_the_same_after_select_and_pad():
    model, batch = classifier(join().spec), batch_of_all().with_dtype(torch.float64)
    expected = model(batch)
    assert_close(model(batch.pad(3)), expected)
    assert_close(model(batch.select(torch.tensor([2, 0, 0, 3]))), expected[[2, 0, 0, 3]])
    assert "text" not in (batch.select(torch.tensor([2])).parts or {}), (
        "a part that no example has has no row"
    )


def test_columns_of_joined_tokens_cannot_be_cut_off():
    with pytest.raises(ValueError, match="cannot be cut off"):
        batch_of_all().columns(slice(-1))


def test_tokens_at_indices_keep_their_runs():
    x = join().encode(RAWS[3])
    part = x.at(slice(1, 6))
    assert [(name, len(run)) for name, run in part.parts] == [
        ("graph", 2),
        ("text", 2),
        ("graph", 1),
    ]
    join().spec.check(part)
    with pytest.raises(ValueError, match="run by run"):
        x.at(torch.tensor([4, 0]))


@pytest.mark.parametrize(
    ("raw", "fault"),
    [
        ({}, "none of the parts image, text, graph"),
        ({"text": None}, "none of the parts"),
        ({"txt": "a"}, "'txt' is no part; did you mean text"),
        ([("txt", "a")], "'txt' is no part; did you mean text"),
        ({"text": ""}, "part text: "),
        ("hello", "a str; give {part: raw example}"),
    ],
)
def test_a_raw_example_with_a_fault_is_named_by_its_part(raw, fault):
    with pytest.raises(DataError, match=fault):
        join().encode(raw)


@pytest.mark.parametrize("name", ["a b", "a.b", "", "keys", "type", "forward"])
def test_a_name_that_no_module_can_have_is_refused(name):
    with pytest.raises(ValueError, match="cannot be the name of a part"):
        Join({name: Bytes()})


def test_content_of_a_part_at_the_wrong_place_is_refused():
    x = join().encode(RAWS[1])
    with pytest.raises(DataError, match="not where content says"):
        join().spec.check(replace(x, content=x.content * 0))


# ── models ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_absent_part_is_as_if_it_had_not_been_given():
    """The hidden states of text and image are those of a tokenizer without the graph."""
    both = Join({"image": Patches(4), "text": Bytes()})
    three = classifier(join().spec)
    two = classifier(both.spec)
    two.load_state_dict(
        {name: x for name, x in three.state_dict().items() if name in two.state_dict()}
        | {"embedder.modality": three.embedder.modality[:2]}
    )
    raw = {"image": IMAGE, "text": "hello"}
    batches = [
        TokenBatch.collate([tokenizer.encode(raw)]).with_dtype(torch.float64)
        for tokenizer in (join(), both)
    ]
    assert_close(three(batches[0]), two(batches[1]))
    given = TokenBatch.collate([join().encode({**raw, "graph": None})]).with_dtype(torch.float64)
    assert torch.equal(three(given), three(batches[0]))


@pytest.mark.parametrize(
    "make", [lambda: Transformer(DIM, 2, num_heads=3, position=Rotary()), lambda: LSTM(DIM, 1)]
)
@pytest.mark.parametrize(
    ("tokenizer", "raws"), [(Bytes(), ["hello", "ab"]), (Patches(4), [IMAGE, IMAGE[:, :4]])]
)
def test_one_part_joined_is_that_part_alone_bit_for_bit(make, tokenizer, raws):
    torch.manual_seed(1)
    alone = classifier(tokenizer.spec, make())
    torch.manual_seed(1)
    joined = classifier(Join({"x": tokenizer}).spec, make())
    expected = alone(
        TokenBatch.collate([tokenizer.encode(raw) for raw in raws]).with_dtype(torch.float64)
    )
    got = joined(
        TokenBatch.collate([Join({"x": tokenizer}).encode({"x": raw}) for raw in raws]).with_dtype(
            torch.float64
        )
    )
    assert torch.equal(got, expected)


def test_one_graph_joined_is_that_graph_alone():
    graph = Graph(0, num_edge_types=1)
    torch.manual_seed(1)
    alone = classifier(graph.spec, Transformer(DIM, 2, num_heads=3))
    torch.manual_seed(1)
    joined = classifier(Join({"graph": graph}).spec, Transformer(DIM, 2, num_heads=3))
    raws = [TRIANGLE, graph_of(4, [(0, 3)])]
    expected = alone(
        TokenBatch.collate([graph.encode(raw) for raw in raws]).with_dtype(torch.float64)
    )
    pairs = [Join({"graph": graph}).encode({"graph": raw}) for raw in raws]
    assert_close(joined(TokenBatch.collate(pairs).with_dtype(torch.float64)), expected)


def test_the_mask_is_its_definition():
    """By brute force: pairs of one graph attend along edges, all other real pairs attend."""
    batch = batch_of_all()
    embedder = EmbeddedBackbone(join().spec, Transformer(DIM, 1, num_heads=3)).embed(batch)
    context = attention_context(embedder, causal=False, num_heads=3, head_dim=8)
    assert context.attn_mask is not None
    n = batch.valid.shape[1]
    for example, raw in enumerate(RAWS):
        tokens = join().encode(raw)
        owner = [k for k, (_, run) in enumerate(tokens.parts) for _ in range(len(run))]
        is_graph = [run.adjacency is not None for _, run in tokens.parts]
        assert tokens.adjacency is not None
        edges = set(map(tuple, tokens.adjacency.edge_index.T.tolist()))
        for i in range(len(tokens)):
            for j in range(n):
                free = j < len(tokens) and (owner[i] != owner[j] or not is_graph[owner[i]])
                expected = j < len(tokens) and (i == j or free or (j, i) in edges)
                assert bool(context.attn_mask[example, 0, i, j]) == expected, (example, i, j)


def test_a_coordinate_on_every_axis_is_rotated_as_on_one():
    positions = torch.arange(5.0)[None, :, None]
    for axes in (2, 3):
        got = Rotary(interleaved=True).rotary(positions.expand(1, 5, axes), 8)
        assert_close(got, Rotary().rotary(positions, 8))
    assert not torch.equal(
        Rotary().rotary(positions.expand(1, 5, 2), 8), Rotary().rotary(positions, 8)
    ), "the fault"


def test_every_part_gets_its_own_modality_and_a_gradient():
    model, batch = classifier(join().spec), batch_of_all().with_dtype(torch.float64)
    model(batch).square().sum().backward()
    assert isinstance(model.embedder, JoinEmbedder)
    assert not bool(model.embedder.modality.any()), (
        "it starts at zero, so nothing changes where it is not needed"
    )
    assert bool((model.embedder.modality.grad.abs().sum(1) > 0).all())


def test_parameters_of_a_part_that_no_example_has_get_a_gradient_of_zero():
    """Else DistributedDataParallel waits for it for ever."""
    model = classifier(join().spec)
    model(TokenBatch.collate([join().encode(RAWS[1])]).with_dtype(torch.float64)).sum().backward()
    unused = [p for name, p in model.embedder.named_parameters() if ".image." in f".{name}."]
    assert unused
    assert all(p.grad is not None and not bool(p.grad.any()) for p in unused)


# ── what is refused ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("backbone", "fault"),
    [
        (
            lambda: LSTM(DIM, 1),
            "LSTM does not support adjacency .*use Transformer, or set model.adjacency=ignore",
        ),
        (
            lambda: GIN(DIM, 1),
            "tokens of other parts beside a graph would get nothing; use\n? ?Transformer",
        ),
        (
            lambda: Transformer(DIM, 1, num_heads=3, position=Rotary()),
            "image 2, text 1, graph 0; use Rotary with interl",
        ),
        (
            lambda: Transformer(DIM, 1, num_heads=3, position=ALiBi()),
            "ALiBi needs parts with the same number",
        ),
    ],
)
def test_a_backbone_that_cannot_join_is_refused_when_the_model_is_built(backbone, fault):
    with pytest.raises(ValueError, match=fault):
        classifier(join().spec, backbone())


def test_an_objective_per_token_does_not_predict_numbers_of_parts():
    spec = Join({"a": Bytes(), "b": Bytes()}).spec
    with pytest.raises(ValueError, match="part to predict"):
        Model(spec, Transformer(DIM, 1, num_heads=3, causal=True), NextToken())
    with pytest.raises(ValueError, match="part 'c'"):
        Model(spec, Transformer(DIM, 1, num_heads=3, causal=True), NextToken(part="c"))
    with pytest.raises(ValueError, match="no parts"):
        Model(Bytes().spec, Transformer(DIM, 1, num_heads=3), Masked(part="a"))


def test_a_fingerprint_covers_the_code_and_the_settings_of_each_part():
    class Own(Bytes):
        pass

    assert tokenizer_fingerprint(Join({"a": Patches(4)})) != tokenizer_fingerprint(
        Join({"a": Patches(2)})
    )
    assert tokenizer_fingerprint(Join({"a": Patches(4)})) != tokenizer_fingerprint(
        Join({"b": Patches(4)})
    )


def test_synthetic_tokens_are_those_of_their_specs():
    for spec, examples in synthetic().values():
        for x in examples:
            spec.check(x)


# ── encoders of parts ────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_encoder_encodes_the_tokens_of_its_part_before_they_are_joined():
    """By hand: the part through its embedder and encoder, alone."""
    gin = GIN(DIM, 2)
    model = classifier(join().spec, LSTM(DIM, 1), adjacency="ignore", encoders={"graph": gin})
    batch = batch_of_all().with_dtype(torch.float64)
    embedded = model.embed(batch)
    assert isinstance(model.embedder, JoinEmbedder)
    assert batch.parts is not None
    part = batch.parts["graph"]
    expected = gin(model.embedder.parts["graph"](part.batch))
    got = embedded.hidden.flatten(0, 1)[part.columns]
    assert_close(got[part.batch.valid], expected[part.batch.valid])
    model(batch).sum().backward()
    assert all(p.grad is not None for p in gin.parameters())


def test_edges_reach_an_encoder_whatever_the_joined_sequence_does_with_them():
    model = classifier(
        join().spec, LSTM(DIM, 1), adjacency="ignore", encoders={"graph": GIN(DIM, 2)}
    )
    one, other = (
        {"graph": graph_of(3, edges), "text": "a"} for edges in ([(0, 1)], [(0, 1), (1, 2)])
    )
    got = [
        model(TokenBatch.collate([join().encode(raw)]).with_dtype(torch.float64))
        for raw in (one, other)
    ]
    assert not torch.allclose(*got)


@pytest.mark.parametrize(
    ("encoders", "fault"),
    [
        (lambda: {"grph": GIN(DIM, 1)}, "there is no part 'grph'; did you mean graph"),
        (lambda: {"graph": GIN(DIM + 1, 1)}, "dim=25, and the backbone 24"),
        (lambda: {"graph": LSTM(DIM, 1)}, "LSTM, the encoder of graph, does not support adjacency"),
        (lambda: {"text": GIN(DIM, 1)}, "no adjacency"),
    ],
)
def test_an_encoder_that_does_not_fit_its_part_is_refused_when_the_model_is_built(encoders, fault):
    with pytest.raises(ValueError, match=fault):
        classifier(join().spec, encoders=encoders())


def test_an_encoder_must_not_see_the_tokens_that_are_predicted():
    backbone = Transformer(DIM, 1, num_heads=3, causal=None, position=Rotary(interleaved=True))
    objective = NextToken(part="text")
    with pytest.raises(ValueError, match="causal=True"):
        Model(join().spec, backbone, objective, encoders={"text": LSTM(DIM, 1)})
    Model(
        join().spec,
        backbone,
        objective,
        encoders={"text": LSTM(DIM, 1, causal=True), "image": LSTM(DIM, 1)},
    )
