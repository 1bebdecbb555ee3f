"""Towers: each part is encoded by its own backbone as if it were alone, and what does not fit is refused.

b batch · n tokens · d width
"""

from functools import partial

import pytest
import torch
from graphs import graph_of
from torch.testing import assert_close

from seqkit.backbones import GIN, LSTM, Towers, Transformer
from seqkit.config import complete
from seqkit.config.builder import build, build_model
from seqkit.errors import UsageError
from seqkit.interfaces import TokenBatch
from seqkit.model import Model
from seqkit.nn.position.absolute import Learned, NoPosition, Sinusoidal
from seqkit.nn.position.rotary import Rotary
from seqkit.objectives import Classify, Contrastive, Masked
from seqkit.tokenizers import Graph, Ids, Join, Patches

DIM, PARTS = 24, ["image", "text", "graph"]
IMAGE = torch.rand(1, 4, 12, generator=torch.Generator().manual_seed(0))
RAWS = [
    {"image": IMAGE, "text": [1, 2, 3], "graph": graph_of(3, [(0, 1), (1, 2)])},
    {"text": [4], "graph": graph_of(2, [(0, 1)])},
    {"image": IMAGE[:, :, :8], "text": [0, 2]},
]


def join() -> Join:
    return Join({"image": Patches(4), "text": Ids(5), "graph": Graph(0, num_edge_types=1)})


def batch_of(raws) -> TokenBatch:
    return TokenBatch.collate([join().encode(raw) for raw in raws]).with_dtype(torch.float64)


def towers(**changed) -> Towers:
    torch.manual_seed(0)
    backbones = {
        "image": Transformer(DIM, 2, num_heads=3),
        "text": LSTM(DIM, 2),
        "graph": GIN(DIM, 2),
    }
    return Towers(backbones | changed)


def model_of(backbone: Towers) -> Model:
    objective = Contrastive(PARTS, dim=7)
    objective.fit([None], None)
    return Model(join().spec, backbone, objective).double().eval()


UNLIKE = {"image": Transformer(DIM + 12, 1, num_heads=3), "text": LSTM(DIM - 6, 1, causal=True)}


@pytest.mark.parametrize("changed", [{}, UNLIKE], ids=["alike", "unlike widths and causality"])
def test_hidden_states_of_a_part_are_those_of_its_backbone_on_its_tokens_alone(changed):
    model, batch = model_of(towers(**changed)), batch_of(RAWS)
    embedded = model.embed(batch)
    hidden = model.backbone(embedded)
    assert hidden[~batch.valid].abs().sum() == 0
    for i, raw in enumerate(RAWS):
        start = 0
        for name in PARTS:
            if name not in raw:
                continue
            tokens = join().parts[name].encode(raw[name])
            own = model.embedder.parts[name](TokenBatch.collate([tokens]).with_dtype(torch.float64))
            alone = model.backbone.parts[name](own)[0]
            found = hidden[i, start : start + len(tokens)]
            assert_close(found[:, : alone.shape[1]], alone)
            assert found[:, alone.shape[1] :].abs().sum() == 0
            start += len(tokens)
    assert hidden.shape[-1] == max(DIM, model.backbone.parts["image"].dim)


def test_towers_have_no_vectors_of_modalities_and_positions_of_their_own():
    objective = Contrastive(PARTS, dim=7)
    objective.fit([None], None)
    model = Model(join().spec, towers(), objective, positions={"text": partial(Learned, sizes=[5])})
    assert model.embedder.modality is None
    kinds = [type(model.embedder.parts[name].position) for name in PARTS]
    assert kinds == [Sinusoidal, Learned, NoPosition]
    with pytest.raises(ValueError, match="sound"):
        Model(join().spec, towers(), objective, positions={"sound": Sinusoidal})


def test_the_order_of_the_parts_and_their_neighbours_change_no_vector():
    model = model_of(towers())
    together = model(batch_of(RAWS))
    for i, raw in enumerate(RAWS):
        for k, name in enumerate(PARTS):
            if name in raw:
                assert_close(model(batch_of([{name: raw[name]}]))[0, k], together[i, k])


def test_weights_are_not_shared_and_each_learns_from_its_own_part():
    model = model_of(towers()).train()
    model(batch_of([{"text": [1, 2]}]))[0, 1].sum().backward()
    reached = {
        name: any(
            bool(p.grad.abs().sum())
            for p in model.backbone.parts[name].parameters()
            if p.grad is not None
        )
        for name in PARTS
    }
    assert reached == {"image": False, "text": True, "graph": False}
    assert all(p.grad is not None for p in model.backbone.parameters()), (
        "DistributedDataParallel waits for each"
    )


def test_each_part_has_the_positions_and_edges_that_its_backbone_needs():
    backbone = towers(image=Transformer(DIM, 2, num_heads=3, position=Rotary()))
    model = model_of(backbone)
    added = {name: type(model.embedder.parts[name].position) for name in PARTS}
    assert added == {"image": NoPosition, "text": NoPosition, "graph": NoPosition}
    assert type(model_of(towers()).embedder.parts["image"].position) is Sinusoidal
    edges = [{**RAWS[1], "graph": graph} for graph in (graph_of(2, [(0, 1)]), graph_of(2))]
    with_edge, without = model(batch_of(edges))
    assert not torch.allclose(with_edge[2], without[2])
    assert_close(with_edge[1], without[1])


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: Towers({}), "Towers has no parts"),
        (
            lambda: Model(Join({"image": Patches(4)}).spec, towers(), Contrastive(PARTS)),
            "tokens are joined of image",
        ),
        (lambda: Model(Ids(5).spec, towers(), Contrastive(PARTS)), "one tokenizer"),
        (
            lambda: Model(join().spec, towers(), Masked()),
            "Masked",
        ),
        (lambda: Model(join().spec, towers(), fitted_classify()), "Classify"),
        (
            lambda: Model(join().spec, towers(graph=LSTM(DIM, 2)), Contrastive(PARTS)),
            "LSTM .* adjacency",
        ),
    ],
)
def test_what_does_not_fit_is_refused_when_it_is_built(make, problem):
    with pytest.raises(ValueError, match=problem):
        make()


def fitted_classify() -> Classify:
    objective = Classify()
    objective.fit([0, 1], None)
    return objective


def test_a_recipe_names_a_backbone_for_each_part():
    each = "{type: LSTM, dim: 16, depth: 1}"
    words = [
        f"--model.backbone={{type: Towers, parts: {{image: {each}, sound: {each}, word: {each}}}}}"
    ]
    built = build(complete("multimodal/av-digits", "clip", words))
    built.model["objective"].fit([0, 1], None)
    model = build_model(built, built.tokenizer.spec)
    assert [type(one).__name__ for one in model.backbone.parts.values()] == ["LSTM"] * 3
    with pytest.raises(UsageError, match="LTSM"):
        complete(
            "multimodal/av-digits",
            "clip",
            [words[0].replace("word: {type: LSTM", "word: {type: LTSM")],
        )
