"""Message passing keeps the laws of every backbone on graphs, goes along the right edges only, and refuses the rest."""

from dataclasses import replace

import networkx
import pytest
import torch
from torch.testing import assert_close

from seqkit.backbones import APPNP, GCN, GIN
from seqkit.backbones.message_passing import SumOverEdges, edges_of
from seqkit.config import builder, complete
from seqkit.interfaces import Adjacency, Embedded, TokenBatch, TokenSpec
from seqkit.model import Model
from seqkit.objectives import Classify, Masked, NextToken, Regress
from seqkit.testing import EmbeddedBackbone, check_backbone, check_embedded_backbone, synthetic
from seqkit.testing.laws import (
    attends_along_edges,
    is_permutation_equivariant,
    nothing_crosses_components,
)
from seqkit.tokenizers import Graph, Molecule

DIM = 12
ALL = pytest.mark.parametrize("cls", [GIN, GCN, APPNP])
MOLECULES = ["CC(=O)O", "c1ccccc1O", "[Na+].[Cl-]", "C"]


@ALL
def test_it_keeps_the_laws_on_synthetic_graphs(cls):
    check_backbone(lambda dim, causal: cls(dim, 2), dim=DIM, causal=[False])


@ALL
@pytest.mark.parametrize("encodings", [[], None])
def test_it_keeps_the_laws_on_molecules(cls, encodings):
    tokenizer = Molecule(encodings=encodings)
    examples = [tokenizer.encode(raw) for raw in MOLECULES[:3]]
    checked = check_embedded_backbone(tokenizer.spec, cls(DIM, 2), examples)
    of_graphs = {is_permutation_equivariant, nothing_crosses_components, attends_along_edges}
    assert of_graphs < set(checked)


@ALL
@pytest.mark.parametrize("objective", [Masked(fraction=0.5), Classify(), Regress()])
def test_the_gradient_of_every_objective_reaches_every_parameter(cls, objective):
    tokenizer = Molecule()
    batch = TokenBatch.collate([tokenizer.encode(raw) for raw in MOLECULES])
    label = torch.arange(len(batch)) % 3
    if not isinstance(objective, Masked):
        objective.fit([0, 1, 2], None)
    model = Model(tokenizer.spec, cls(DIM), objective)
    task = objective.prepare(batch, label.float() if isinstance(objective, Regress) else label)
    objective.loss(model(task.batch, task.masked), task.target, training=True).loss.backward()
    for name, p in model.named_parameters():
        assert p.grad is not None, name
        assert bool(torch.isfinite(p.grad).all()), name
        assert bool((p.grad != 0).any()), name


# ── which edges, and their types ─────────────────────────────────────────────────────────────────────────────────────


def embedded(n, edges, types, d=DIM):
    adjacency = Adjacency(
        torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).T,
        torch.tensor(types, dtype=torch.int64),
    )
    real = torch.ones(1, n, dtype=torch.bool)
    return Embedded(
        torch.randn(1, n, d, dtype=torch.float64), torch.zeros(1, n, 0), real, adjacency
    )


def made(cls, num_edge_types, depth=2, **settings):
    backbone = cls(DIM, depth, **settings)
    backbone.add_edge_bias(num_edge_types)
    backbone.double()
    with torch.no_grad():
        for p in backbone.parameters():
            p += 0.3 * torch.randn_like(p)
    return backbone


@ALL
def test_a_message_takes_one_layer_a_hop(cls):
    x = embedded(7, [(i, i + 1) for i in range(6)], [1] * 6)
    leaf = x.hidden.requires_grad_()
    for depth in (1, 2, 3):
        hops = {"num_steps": depth} if cls is APPNP else {"depth": depth}
        hidden = made(cls, 1, **hops)(x.replace(hidden=leaf))
        (gradient,) = torch.autograd.grad(
            hidden[0, 5] @ torch.randn(DIM, dtype=torch.float64), leaf
        )
        assert gradient[0].abs().amax(dim=-1).nonzero().flatten().tolist() == list(
            range(5 - depth, 6)
        )


@ALL
def test_max_edge_type_leaves_out_all_edges_above_it(cls):
    edges, types = [(0, 1), (1, 0), (2, 1), (0, 3), (3, 0)], [1, 2, 2, 3, 4]
    x, few = embedded(5, edges, types), made(cls, 4, max_edge_type=2)
    assert_close(few(x), few(x.replace(adjacency=embedded(5, edges[:3], types[:3]).adjacency)))
    assert (
        few(x) - few(x.replace(adjacency=embedded(5, edges[:1], types[:1]).adjacency))
    ).abs().max() > 1e-3
    every = made(cls, 4)
    assert (
        every(x) - every(x.replace(adjacency=embedded(5, edges[:3], types[:3]).adjacency))
    ).abs().max() > 1e-3


@ALL
def test_molecules_with_max_edge_type_at_bonds_equal_molecules_of_bonds_alone(cls):
    bonds, every = Molecule(encodings=[]), Molecule()
    assert bonds.spec.num_edge_types == 5
    backbone = cls(DIM, max_edge_type=5)
    model = EmbeddedBackbone(every.spec, backbone)
    for raw in MOLECULES:
        got, right = (
            model(TokenBatch.collate([tokenizer.encode(raw)])) for tokenizer in (every, bonds)
        )
        assert_close(got, right)


@ALL
def test_a_self_loop_has_its_type_and_is_left_out_beyond_max_edge_type(cls):
    x = embedded(3, [(0, 1), (1, 2)], [1, 2])
    first, second = (
        embedded(3, [(0, 1), (1, 2), (1, 1)], [1, 2, kind]).adjacency for kind in (1, 2)
    )
    backbone = made(cls, 2)
    without, one, two = (
        backbone(x.replace(adjacency=which))[0, 1] for which in (x.adjacency, first, second)
    )
    assert min((one - two).abs().max(), (two - without).abs().max()) > 1e-3
    few = made(cls, 2, max_edge_type=1)
    assert_close(few(x.replace(adjacency=second)), few(x))


@ALL
def test_edge_types_are_told_apart_and_one_type_has_no_parameters(cls):
    x = embedded(3, [(0, 1), (2, 1)], [1, 2])
    backbone = made(cls, 2)
    swapped = Adjacency(x.adjacency.edge_index, x.adjacency.edge_type.flip(0))
    assert (backbone(x) - backbone(x.replace(adjacency=swapped)))[0, 1].abs().max() > 1e-3

    def size(num_edge_types):
        return sum(p.numel() for p in made(cls, num_edge_types).parameters())

    assert size(1) == sum(p.numel() for p in cls(DIM, 2).parameters())
    assert size(3) - size(1) == 3 * {GIN: 2 * DIM, GCN: 1, APPNP: 1}[cls]


@ALL
def test_a_graph_without_edges_is_a_set_of_tokens(cls):
    backbone, x = made(cls, 2), embedded(3, [], [])
    for t in range(3):
        alone = embedded(1, [], []).replace(hidden=x.hidden[:, t : t + 1])
        assert_close(backbone(x)[:, t], backbone(alone)[:, 0])


def test_a_layer_of_gin_adds_to_its_input_and_a_norm_comes_last():
    backbone, x = made(GIN, 1), embedded(5, [(0, 1), (1, 2), (2, 0), (3, 1)], [1] * 4)
    edges, hidden = edges_of(x.adjacency, x.valid, backbone.max_edge_type), x.hidden[0]
    for norm, convolution in zip(backbone.norms, backbone.convolutions):
        hidden = hidden + convolution(norm(hidden), edges)
    assert_close(backbone(x)[0], backbone.norm(hidden))


@ALL
def test_dropout_acts_on_every_layer_while_training_only(cls):
    backbone, x = made(cls, 1, depth=1, dropout=0.5), embedded(3, [(0, 1), (1, 2)], [1, 1])
    assert not torch.equal(backbone(x), backbone(x))
    backbone.eval()
    assert_close(backbone(x), backbone(x))


def test_gcn_is_kipfs_network_whose_first_and_last_weights_are_the_embedders_and_the_heads():
    """softmax's argument A relu(A X W0) W1 of equation 9, with a dense adjacency; a third layer has weights between."""
    n, edges = 5, [(0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2), (0, 2), (2, 0)]
    x, head = embedded(n, edges, [1] * len(edges)), torch.randn(DIM, 3, dtype=torch.float64)
    loops = torch.eye(n, dtype=torch.float64)
    loops[tuple(torch.tensor(edges).T)] = 1
    root = loops.sum(1).rsqrt()
    a, features, first = (
        root[:, None] * loops * root,
        torch.randn(n, 7).double(),
        torch.randn(7, DIM).double(),
    )
    x = x.replace(hidden=(features @ first)[None])
    two, three = made(GCN, 1, 2), made(GCN, 1, 3)
    assert_close(two(x)[0] @ head, a @ (a @ features @ first).relu() @ head)
    between = three.layers[0]((a @ features @ first).relu())
    assert_close(three(x)[0] @ head, a @ (a @ between).relu() @ head)


def test_personalised_propagation_comes_to_personalised_pagerank():
    """After many steps h = alpha (1 - (1 - alpha) A)^-1 z (Gasteiger et al. 2019, eq. 4); with alpha=0.3, 99 do."""
    n, edges = 5, [(0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2), (0, 2), (2, 0)]
    x, backbone = embedded(n, edges, [1] * len(edges)), made(APPNP, 1, 1, num_steps=99, alpha=0.3)
    loops = torch.eye(n, dtype=torch.float64)
    loops[tuple(torch.tensor(edges).T)] = 1
    root = loops.sum(1).rsqrt()
    z = backbone.layers[0](x.hidden[0].relu()).relu()
    right = 0.3 * torch.linalg.solve(torch.eye(n).double() - 0.7 * root[:, None] * loops * root, z)
    assert_close(backbone(x)[0], right)


def test_learned_weights_of_hops_begin_as_personalised_pagerank_and_are_learned():
    x = embedded(5, [(0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2)], [1] * 6)
    fixed, learned = (
        APPNP(DIM, num_steps=4, alpha=0.2),
        APPNP(DIM, num_steps=4, alpha=0.2, learn_weights=True),
    )
    learned.load_state_dict(fixed.state_dict(), strict=False)
    fixed, learned = fixed.double(), learned.double()
    assert_close(learned(x), fixed(x), atol=1e-6, rtol=1e-6)
    (learned(x) * torch.randn(DIM).double()).sum().backward()
    assert learned.weights.shape == (5,)
    assert bool((learned.weights.grad != 0).all())


def test_sums_tell_regular_graphs_of_other_degree_apart_and_normalised_means_do_not():
    """Equal nodes: a ring has degree 2, a complete graph of four 3 (Xu et al. 2019, section 5.2)."""
    outputs = {}
    for cls in (GIN, GCN):
        backbone, row = made(cls, 1), torch.randn(DIM, dtype=torch.float64)
        for name, graph in (
            ("ring", networkx.cycle_graph(4)),
            ("complete", networkx.complete_graph(4)),
        ):
            x = embedded(4, list(graph.to_directed().edges), [1] * graph.number_of_edges() * 2)
            outputs[cls, name] = backbone(x.replace(hidden=row.expand(1, 4, DIM)))
    assert_close(outputs[GCN, "ring"], outputs[GCN, "complete"])
    assert (outputs[GIN, "ring"] - outputs[GIN, "complete"]).abs().max() > 1e-3


def test_bfloat16_messages_are_summed_in_float32():
    """A CPU does so by itself; on CUDA a running sum of bfloat16 ones would stop at 256."""
    dtypes = []

    class Sums(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func.overloadpacket.__name__ == "index_add":
                dtypes.append(args[0].dtype)
            return func(*args, **(kwargs or {}))

    with Sums():
        total = SumOverEdges()(
            torch.ones(7, 2, dtype=torch.bfloat16), torch.zeros(7, dtype=torch.int64), 1
        )
    assert dtypes == [torch.float32]
    assert_close(total, torch.full((1, 2), 7.0, dtype=torch.bfloat16))


@ALL
def test_memory_and_work_grow_with_edges_and_not_with_pairs_of_nodes(cls):
    """20,003 nodes in a ring: a tensor of all pairs would hold 400 million numbers."""
    n = 20_003
    nodes = torch.arange(n)
    index = torch.cat(
        [torch.stack([nodes, (nodes + 1) % n]), torch.stack([(nodes + 1) % n, nodes])], dim=1
    )
    adjacency = Adjacency(index, torch.ones(2 * n, dtype=torch.int64))
    largest = 0

    class Sizes(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            tensors = [
                x for x in torch.utils._pytree.tree_leaves(out) if isinstance(x, torch.Tensor)
            ]
            largest = max([largest, *(x.untyped_storage().nbytes() for x in tensors)])
            return out

    x = Embedded(
        torch.randn(1, n, DIM), torch.zeros(1, n, 0), torch.ones(1, n, dtype=torch.bool), adjacency
    )
    with torch.no_grad(), Sizes():
        cls(DIM)(x)
    assert largest <= 2 * n * DIM * 4


# ── what is refused ──────────────────────────────────────────────────────────────────────────────────────────────────


@ALL
def test_tokens_without_adjacency_are_refused_when_the_model_is_built(cls):
    name = cls.__name__
    with pytest.raises(ValueError, match=f"{name}.* edges"):
        Model(TokenSpec(vocab_size=11), cls(DIM), Masked())
    with pytest.raises(ValueError, match=r"leave out model\.adjacency=ignore"):
        Model(Molecule().spec, cls(DIM), Masked(), adjacency="ignore")
    with pytest.raises(ValueError, match="causal"):
        Model(TokenSpec(vocab_size=11), cls(DIM), NextToken())


@ALL
def test_invalid_arguments_and_unsupported_input_are_refused(cls):
    x = embedded(3, [(0, 1)], [1])
    with pytest.raises(ValueError, match="depth=0"):
        cls(DIM, 0)
    with pytest.raises(ValueError, match="max_edge_type=0"):
        cls(DIM, max_edge_type=0)
    with pytest.raises(ValueError, match="num_steps=0"):
        APPNP(DIM, num_steps=0)
    with pytest.raises(ValueError, match="alpha=1"):
        APPNP(DIM, alpha=1)
    with pytest.raises(ValueError, match=r"max_edge_type=6.* 5"):
        cls(DIM, max_edge_type=6).check_supported(Molecule(encodings=[]).spec)
    # the last type is one of them
    cls(DIM, max_edge_type=5).check_supported(Molecule(encodings=[]).spec)
    backbone = made(cls, 2)
    with pytest.raises(ValueError, match="other edge types"):
        backbone.add_edge_bias(3)
    with pytest.raises(ValueError, match="no adjacency"):
        backbone(x.replace(adjacency=None))
    with pytest.raises(ValueError, match="segments or a cache"):
        backbone(x.replace(segments=torch.zeros(1, 3, dtype=torch.int64)))
    with pytest.raises(ValueError, match="has no cache"):
        backbone.init_cache(3)


@ALL
def test_it_is_chosen_by_name_in_a_recipe(cls):
    config = complete("graph/molecules", "debug", ["--model.backbone", cls.__name__])
    keys = {"type": cls.__name__, "dim": 96, "depth": 4, "dropout": 0.1, "max_edge_type": None}
    assert {key: config["model"]["backbone"][key] for key in keys} == keys
    backbone = builder.build({"model": config["model"]}).model["backbone"]
    assert isinstance(backbone, cls)


def test_a_graph_tokenizer_of_neighbours_needs_no_edge_types():
    tokenizer = Graph(3)
    assert tokenizer.spec.num_edge_types == 1
    model = Model(tokenizer.spec, GIN(DIM), Masked(fraction=0.5))
    assert not [name for name, _ in model.named_parameters() if "edge" in name]


def test_laws_notice_a_message_that_goes_the_wrong_way():
    class Reversed(GIN):
        def run(self, x, edges):
            return super().run(x, edges._replace(source=edges.target, target=edges.source))

    class ByColumn(GIN):
        def forward(self, embedded, cache=None):
            # LayerNorm drops a constant
            column = torch.arange(embedded.hidden.shape[1])[:, None] * torch.arange(DIM)
            return super().forward(replace(embedded, hidden=embedded.hidden + column.sin()))

    spec, examples = synthetic()["graph"]
    with pytest.raises(AssertionError, match="does not attend to the source"):
        attends_along_edges(EmbeddedBackbone(spec, Reversed(DIM, 1)), examples)
    with pytest.raises(AssertionError, match="permuted tokens"):
        is_permutation_equivariant(EmbeddedBackbone(spec, ByColumn(DIM)), examples)
