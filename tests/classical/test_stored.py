"""Stored classical methods predict bit for bit as before; a file that holds anything but their data is refused."""

import io
import json
import math
import zipfile

import numpy as np
import pytest
import skops.io._audit
import torch
from tiers import one_in

from seqkit.classical import methods
from seqkit.classical.features import Counts
from seqkit.classical.member import Member, NodeMember, OtherGraphError, digest_of, kind_of, read
from seqkit.classical.method import wanted_of
from seqkit.classical.stored import load, save
from seqkit.errors import DataError
from seqkit.objectives import Classify, MultiLabel, Regress
from seqkit.raw import GraphData, Waveform
from seqkit.tokenizers import Cells, Ids, Join, LogMel, Molecule, Patches, Series, Words
from seqkit.tokenizers.video import Tubelets

GENERATOR = torch.Generator().manual_seed(0)


def noise(*shape):
    return torch.rand(*shape, generator=GENERATOR)


def tone(i):
    time = torch.arange(800) / 8000
    return Waveform(torch.sin(2 * math.pi * (400 + 50 * i) * time)[None] * 0.5, 8000)


def in_parts(i):
    """A row of every kind of part, of which some are missing."""
    row = {
        "cells": {"x": float(i), "kind": "ab"[i % 2]}, "text": f"thing {i % 5}", "smiles": "C" * (1 + i % 4),
        "image": noise(1, 8, 8), "sound": tone(i), "series": noise(12).tolist(), "ids": [i % 3],
    }  # fmt: skip
    missing = list(row)[i % 11 : i % 11 + 1]
    return {name: part for name, part in row.items() if name not in missing}


PARTS = {
    "cells": Cells(), "text": Words(), "smiles": Molecule(), "image": Patches(4), "sound": LogMel(8000, num_mels=40),
    "series": Series(), "ids": Ids(5),
}  # fmt: skip

KINDS = {
    "texts": (lambda i: f"{'good' if i % 2 else 'bad'} thing number {i} " + "ab" * (i % 3), Words),
    "images": (lambda i: noise(1 + 2 * (i % 2), 9, 8 + i % 3), lambda: Patches(4)),
    "clips": (lambda i: noise(4, 1, 8, 8), lambda: Tubelets((2, 4, 4), frames=4)),
    "sounds": (tone, lambda: LogMel(8000, num_mels=40)),
    "molecules": (lambda i: "C" * (1 + i % 5) + ("O" if i % 2 else "Cl"), Molecule),
    "cells": (
        lambda i: {"size": float(i % 7), "kind": "abc"[i % 3]} if i % 8 else {"kind": "b"},
        Cells,
    ),
    "series": (lambda i: noise(20 + i % 3).tolist(), Series),
    "tokens": (lambda i: [i % 2, *range(2, 2 + i % 5)], lambda: Ids(7)),
    "parts": (in_parts, lambda: Join(PARTS)),
}


def objective_of(kind, m):
    """A fitted objective and targets [m] or [m k], some of which are unknown, or a class of none."""
    draw = np.random.default_rng(0)
    if kind == "classes":
        objective = Classify()
        objective.fit(list(range(3)), ["a", "b", "c", "never"])
        return objective, torch.from_numpy(np.arange(m) % 3)
    if kind == "labels":
        objective = MultiLabel()
        target = draw.integers(2, size=(m, 3)).astype(np.float32)
        target[:, 2] = 0
        target[::5, 0] = np.nan
    else:
        objective = Regress()
        target = draw.normal(size=(m, 2)).astype(np.float32) * 3 + 5
    objective.fit([list(map(float, row)) for row in target], None)
    return objective, torch.from_numpy(target)


def members(kind, objective, target, rows=24):
    """Every method of the table, fitted; raw examples of it."""
    make, tokenizer = KINDS[kind]
    tokenizer = tokenizer()
    raws = [make(i) for i in range(rows)]
    if hasattr(tokenizer, "fit"):
        tokenizer.fit(raws)
    assert kind_of(tokenizer, raws[0]) == kind
    given = [read(kind, tokenizer, raw) for raw in raws]
    for method, features, transformer in methods.candidates(kind, given, tokenizer, objective):
        yield Member(kind, transformer, method.fit(features, target.numpy()), tokenizer), raws


@pytest.mark.parametrize("task", one_in(3, ["classes", "labels", "numbers"]))
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=[pytest.mark.slow] * (kind in ("parts", "images")))
        for kind in KINDS
    ],
)
def test_each_method_predicts_after_loading_bit_for_bit_as_before(
    kind, task, tmp_path, monkeypatch
):
    for key in ("forest", "boosting"):
        found = []
        for name, estimator in methods.ESTIMATORS[key]:
            own = {"forest": {"n_estimators": 3}, "boosting": {"max_iter": 3}}[key]
            found.append((name, type(estimator)(**{**estimator.get_params(), **own})))
        monkeypatch.setitem(methods.ESTIMATORS, key, tuple(found))
    objective, target = objective_of(task, 24)
    for member, raws in members(kind, objective, target):
        path = tmp_path / "classical.skops"
        save(member, path)
        loaded = load(path, objective, member.tokenizer)
        expected = member.predict(raws[::-1])
        assert torch.equal(loaded.predict(raws[::-1]), expected), member.method.name
        assert loaded.method.name == member.method.name
        assert expected.isfinite().all()
        torch.testing.assert_close(member.predict([raws[-1]]), expected[:1])


@pytest.mark.parametrize("columns", [1, 2])
def test_each_forecast_predicts_after_loading_bit_for_bit_as_before(columns, tmp_path):
    objective = Regress(forecast=True)
    target = torch.randn(30, 3, generator=GENERATOR) * 2 + 1
    objective.fit(target.tolist(), None)
    raws = [noise(14 + i % 2, columns).tolist() for i in range(30)]
    found = methods.candidates("series", raws, Series(columns), objective)
    wanted = wanted_of(target, objective)
    for method, features, transformer in found:
        member = Member("series", transformer, method.fit(features, wanted), Series(columns))
        save(member, tmp_path / "classical.skops")
        loaded = load(tmp_path / "classical.skops", objective, Series(columns))
        assert torch.equal(loaded.predict(raws), member.predict(raws)), method.name
    other = Regress(forecast=True)
    other.fit(target[:, :2].tolist(), None)
    with pytest.raises(DataError, match="do not fit 2 values"):
        load(tmp_path / "classical.skops", other, Series(columns))


def test_nodes_are_known_of_the_graph_alone_that_they_were_fitted_to(tmp_path):
    objective, _ = objective_of("classes", 5)
    graph = GraphData(noise(5, 2), torch.tensor([[0, 1], [1, 4]]))
    member = NodeMember(noise(5, 4).log(), digest_of(graph))
    save(member, tmp_path / "classical.skops")
    loaded = load(tmp_path / "classical.skops", objective, Ids(5))
    assert torch.equal(loaded.predict([graph]), member.table)
    for other in (
        GraphData(graph.nodes, torch.tensor([[0, 1], [1, 3]])),
        GraphData(graph.nodes + 1, graph.edges),
    ):
        with pytest.raises(OtherGraphError):
            loaded.predict([other])


def stored(kind, key, tmp_path, task="classes"):
    """A file with a member whose estimator is the named one; objective and tokenizer; the member."""
    objective, target = objective_of(task, 24)
    name, _ = methods.ESTIMATORS[key][task != "numbers"]
    member = next(x for x, _ in members(kind, objective, target) if x.method.name.startswith(name))
    path = tmp_path / "classical.skops"
    save(member, path)
    return path, objective, member


def assert_refused(path, objective, member, match):
    with pytest.raises(DataError, match=match) as error:
        load(path, objective, member.tokenizer)
    assert "\n" not in str(error.value)


def rewritten(path, change):
    """The file with another schema and other arrays; `change` gets both, arrays by name."""
    with zipfile.ZipFile(path) as archive:
        held = {name: archive.read(name) for name in archive.namelist()}
    schema = json.loads(held.pop("schema.json"))
    arrays = {name: np.load(io.BytesIO(data)) for name, data in held.items()}
    change(schema, arrays)
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            data = io.BytesIO()
            np.save(data, array)
            archive.writestr(name, data.getvalue())
        archive.writestr("schema.json", json.dumps(schema))


def nodes_of(schema, loader):
    found = []
    stack = [schema]
    while stack:
        one = stack.pop()
        if isinstance(one, dict):
            if one.get("__loader__") == loader:
                found.append(one)
            stack += one.values()
        elif isinstance(one, list):
            stack += one
    return found


PLANTED = {
    "FunctionNode": {"__class__": "system", "__module__": "os", "__loader__": "FunctionNode"},
    "MethodNode": {
        "__class__": "Path", "__module__": "pathlib", "__loader__": "MethodNode",
        "content": {
            "func": "unlink", "obj": {"__class__": "Path", "__module__": "pathlib", "__loader__": "ObjectNode"},
        },
    },
    "OperatorFuncNode": {"__class__": "attrgetter", "__module__": "operator", "__loader__": "OperatorFuncNode"},
    "PartialNode": {"__class__": "partial", "__module__": "functools", "__loader__": "PartialNode"},
    "ConstructorFromReduceNode": {
        "__class__": "Popen", "__module__": "subprocess", "__loader__": "ConstructorFromReduceNode",
    },
    "subprocess.Popen": {"__class__": "Popen", "__module__": "subprocess", "__loader__": "ObjectNode"},
    "sklearn.cluster._kmeans.KMeans": {
        "__class__": "KMeans", "__module__": "sklearn.cluster._kmeans", "__loader__": "ObjectNode",
    },
    "builtins.map": {"__class__": "map", "__module__": "builtins", "__loader__": "TypeNode"},
    "array of objects": {
        "__class__": "ndarray", "__module__": "numpy", "__loader__": "NdArrayNode", "type": "json", "content": [],
    },
}  # fmt: skip


@pytest.mark.parametrize("what", PLANTED)
def test_what_a_file_may_not_hold_is_refused_before_anything_is_built(what, tmp_path, monkeypatch):
    path, objective, member = stored("cells", "linear", tmp_path)
    monkeypatch.setattr(skops.io._audit, "get_tree", None)

    def plant(schema, arrays):
        schema["content"]["planted"] = PLANTED[what]

    rewritten(path, plant)
    assert_refused(path, objective, member, what)


def test_a_damaged_foreign_or_missing_file_is_refused(tmp_path, monkeypatch):
    path, objective, member = stored("cells", "linear", tmp_path)
    whole = path.read_bytes()
    for data in (b"", b"PK", whole[:-30], whole[: len(whole) // 2], b"{}"):
        path.write_bytes(data)
        assert_refused(path, objective, member, "no fitted classical method")
    path.unlink()
    assert_refused(path, objective, member, "no fitted classical method")
    path.write_bytes(whole)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("../outside.npy", b"")
    assert_refused(path, objective, member, "outside")
    path.write_bytes(whole)
    assert load(path, objective, member.tokenizer)
    monkeypatch.setattr("seqkit.classical.stored.MAX_BYTES", 1000)
    assert_refused(path, objective, member, "unpacks to")


def test_one_array_that_is_named_often_counts_each_time(tmp_path, monkeypatch):
    path, objective, member = stored("cells", "linear", tmp_path)

    def repeat(schema, arrays):
        node = nodes_of(schema, "NdArrayNode")[0]
        arrays[node["file"]] = np.zeros(1000)
        schema["content"]["more"] = {
            "__class__": "list", "__module__": "builtins", "__loader__": "ListNode",
            "content": [{**node, "__id__": i} for i in range(100)],
        }  # fmt: skip

    rewritten(path, repeat)
    monkeypatch.setattr("seqkit.classical.stored.MAX_BYTES", 500_000)
    assert_refused(path, objective, member, "unpacks to")


@pytest.mark.parametrize("field", one_in(3, ["left_child", "right_child", "feature"]))
@pytest.mark.parametrize("value", [10**6, -7, 0])
def test_a_tree_that_leads_outside_or_back_is_refused(field, value, tmp_path):
    """A child 0 is the root, so that a walk has no end; feature 0 is one of them."""
    path, objective, member = stored("cells", "forest", tmp_path)

    def change(schema, arrays):
        trees = [x for x in arrays.values() if x.dtype.names and "left_child" in x.dtype.names]
        tree = max(trees, key=len)
        tree[field][0] = value

    rewritten(path, change)
    if (field, value) == ("feature", 0):
        load(path, objective, member.tokenizer)
    else:
        assert_refused(path, objective, member, "a tree")


@pytest.mark.parametrize("field", ["left", "right", "feature_idx", "is_categorical"])
def test_boosted_trees_that_lead_outside_are_refused(field, tmp_path):
    path, objective, member = stored("cells", "boosting", tmp_path)

    def change(schema, arrays):
        for tree in arrays.values():
            if tree.dtype.names and "feature_idx" in tree.dtype.names:
                tree["is_leaf"][0] = 0
                tree[field][0] = 200

    rewritten(path, change)
    assert_refused(path, objective, member, "a tree")


@pytest.mark.parametrize("task", ["classes", "numbers"])
@pytest.mark.parametrize(
    "name", ["support_vectors_", "_dual_coef_", "_intercept_", "support_", "_n_support"]
)
def test_an_svm_whose_arrays_are_too_short_is_refused(name, task, tmp_path):
    path, objective, member = stored("cells", "hard", tmp_path, task)

    def change(schema, arrays):
        for node in nodes_of(schema, "ObjectNode"):
            if node["__class__"] in ("SVC", "SVR"):
                file = node["content"]["content"][name]["file"]
                arrays[file] = arrays[file][..., :-1].copy()

    rewritten(path, change)
    assert_refused(path, objective, member, "an SVM")


@pytest.mark.slow
def test_an_attribute_that_hides_a_method_and_another_parameter_are_refused(tmp_path):
    for key, match in (
        ("transform", "do not fit"),
        ("n_jobs", "another n_jobs"),
        ("memory", "another memory"),
    ):
        path, objective, member = stored("cells", "forest", tmp_path)

        def change(schema, arrays, key=key):
            for node in nodes_of(schema, "ObjectNode"):
                if node["__class__"] in ("Pipeline", "RandomForestClassifier"):
                    state = node["content"]["content"]
                    if key not in state:
                        node["content"]["key_types"]["content"].append(
                            node["content"]["key_types"]["content"][0]
                        )
                    state[key] = {
                        "__class__": "str",
                        "__module__": "builtins",
                        "__loader__": "JsonNode",
                        "content": "7",
                    }

        rewritten(path, change)
        assert_refused(path, objective, member, match)


def test_a_method_of_another_number_of_classes_labels_or_numbers_is_refused(tmp_path):
    for task in ("classes", "labels", "numbers"):
        path, objective, member = stored("cells", "linear", tmp_path, task)
        if task == "classes":
            other = Classify()
            other.fit([0, 1], ["a", "b"])
        else:
            other = type(objective)()
            other.fit([[1.0], [0.0]], None)
        assert_refused(path, other, member, "do not fit")


def test_a_file_that_another_scikit_learn_wrote_says_so_where_it_cannot_be_read(
    tmp_path, monkeypatch
):
    path, objective, member = stored("cells", "linear", tmp_path)

    def change(schema, arrays):
        schema["content"]["scikit-learn"]["content"] = '"0.99"'
        for node in nodes_of(schema, "ObjectNode"):
            if node["__class__"] == "LogisticRegression":
                node["content"]["content"]["coefficients"] = node["content"]["content"].pop("coef_")

    rewritten(path, change)
    assert_refused(path, objective, member, "'0.99' wrote it, and this is ")


def test_a_vocabulary_that_names_a_term_twice_is_refused():
    words = Counts().fit(["good thing"])
    state = words.__getstate__()
    with pytest.raises(ValueError, match="twice"):
        Counts().__setstate__({**state, "vocabulary_": '["good", "good"]'})
