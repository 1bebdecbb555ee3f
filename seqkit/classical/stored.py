"""Files of fitted classical methods, which hold data alone: skops builds no object whose type is not listed here.

What native code walks unchecked, such as the nodes of a tree, is checked before it does. k classes, labels or targets
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Iterator
from importlib.metadata import version
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.svm import SVC, SVR

from seqkit.classical.forecasts import Repeated
from seqkit.classical.member import Member, NodeMember
from seqkit.classical.method import Method
from seqkit.errors import DataError, described
from seqkit.interfaces import Tokenizer
from seqkit.objectives import Regress

Node = dict[str, Any]
"""Description of one object in a file."""

MAX_BYTES = 2**30
"""Most bytes that a file may hold, unpacked."""

_OURS = {
    "features": ["Cells", "Counts", "OfEach", "Parts", "Tfidf"],
    "forecasts": ["Repeated", "Ridge", "Windows"],
    "images": ["Images"],
    "series": ["Kernels", "Values"],
}

_SKLEARN = {
    "_loss._loss": ["CyHalfBinomialLoss", "CyHalfMultinomialLoss", "CyHalfSquaredError"],
    "_loss.link": ["IdentityLink", "Interval", "LogitLink", "MultinomialLogit"],
    "_loss.loss": ["HalfBinomialLoss", "HalfMultinomialLoss", "HalfSquaredError"],
    "ensemble._forest": ["RandomForestClassifier", "RandomForestRegressor"],
    "ensemble._hist_gradient_boosting.binning": ["_BinMapper"],
    "ensemble._hist_gradient_boosting.gradient_boosting": [
        "HistGradientBoostingClassifier",
        "HistGradientBoostingRegressor",
    ],
    "ensemble._hist_gradient_boosting.predictor": ["TreePredictor"],
    "feature_extraction._dict_vectorizer": ["DictVectorizer"],
    "feature_extraction.text": ["TfidfTransformer"],
    "impute._base": ["MissingIndicator", "SimpleImputer"],
    "linear_model._logistic": ["LogisticRegression"],
    "linear_model._ridge": ["RidgeCV", "RidgeClassifierCV"],
    "neighbors._classification": ["KNeighborsClassifier"],
    "neighbors._regression": ["KNeighborsRegressor"],
    "pipeline": ["FeatureUnion", "Pipeline"],
    "preprocessing._data": ["StandardScaler"],
    "preprocessing._label": ["LabelBinarizer", "LabelEncoder"],
    "svm._classes": ["LinearSVC", "SVC", "SVR"],
    "tree._classes": ["DecisionTreeClassifier", "DecisionTreeRegressor"],
    "tree._tree": ["Tree"],
}

TRUSTED = [
    f"{package}.{module}.{name}"
    for package, modules in {"seqkit.classical": _OURS, "sklearn": _SKLEARN}.items()
    for module, names in modules.items()
    for name in names
] + ["numpy.dtype"]
"""Types of objects that a file may hold."""

PLAIN = {
    "DictNode": {"builtins.dict"},
    "ListNode": {"builtins.list"},
    "TupleNode": {"builtins.tuple"},
    "TypeNode": {"builtins.str", "numpy.float64", "numpy.int64"},
    "NdArrayNode": {
        f"numpy.{name}" for name in ("ndarray", "float32", "float64", "int32", "int64", "uint64")
    },
}
"""Nodes of a file that are no objects of a trusted type, and the types that each may name."""

PARAMETERS = {
    "C", "add_indicator", "algorithm", "alphas", "analyzer", "binary", "error_on_new", "is_categorical",
    "keep_empty_features", "max_features", "max_iter", "min_samples_leaf", "n_estimators", "n_neighbors", "n_threads",
    "neg_label", "ngram_range", "random_state", "sparse", "sublinear_tf",
}  # fmt: skip
"""Parameters that may have another value than scikit-learn's own; a file that names others could start processes."""


def save(member: Member | NodeMember, path: Path) -> None:
    """Write what a member was fitted to, without its tokenizer and objective."""
    from skops.io import dump

    state: dict[str, Any] = {"scikit-learn": version("scikit-learn")}
    if isinstance(member, NodeMember):
        state |= {"table": member.table.numpy(), "digest": member.digest}
    else:
        for one in _objects(member.method.fitted):
            vars(one).pop("_feature_subsample_rng", None)  # a generator, which fitting alone reads
        state |= {
            "kind": member.kind,
            "transformer": member.transformer,
            "name": member.method.name,
            "scale": member.method.scale,
            "fitted": member.method.fitted,
        }
    dump(state, path, compression=zipfile.ZIP_DEFLATED)


def load(path: Path, objective: Any, tokenizer: Tokenizer) -> Member | NodeMember:
    """The member that was written, for the objective and the tokenizer of its run.

    Raises DataError for a file that is damaged, is none of a member, does not fit to the objective, or was written by a
    scikit-learn that this one cannot read.
    """
    state: Any = {}
    try:
        state = _unpacked(path.read_bytes())
        return _member(state, objective, tokenizer)
    except Exception as error:  # whatever skops, NumPy and scikit-learn raise for what a file holds
        why = str(error) if isinstance(error, DataError) else described(error)
        written = state.get("scikit-learn") if isinstance(state, dict) else None
        own = version("scikit-learn")
        if isinstance(written, str) and written != own:
            why += (
                f"; scikit-learn {written[:20]!r} wrote it, and this is {own}: install that version"
            )
        raise DataError(
            f"{path.name} is no fitted classical method of this run: {why}; train the run again"
        ) from error


def _unpacked(data: bytes) -> Any:
    """The objects of a file whose types are all trusted."""
    from skops.io._audit import audit_tree, get_tree
    from skops.io._protocol import PROTOCOL
    from skops.io._utils import LoadContext

    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        sizes = {one.filename: one.file_size for one in archive.infolist()}
        foreign = [name for name in sizes if not re.fullmatch(r"schema\.json|\d+\.npy", name)]
        if foreign:
            raise DataError(f"it holds {foreign[0]!r}")
        _check_size(sum(sizes.values()))
        schema = json.loads(archive.read("schema.json"))
        if schema["protocol"] != PROTOCOL:
            raise DataError(f"it has skops' protocol {schema['protocol']!r}, not {PROTOCOL}")
        nodes = list(_nodes(schema))
        for node in nodes:
            _check_node(node)
            node.pop("__id__", None)  # one object in many places could grow without bound
        # one file of the archive may be named often, and is read each time
        _check_size(sum(sizes[node["file"]] for node in nodes if "file" in node))
        # as `skops.io.load`, which would read the schema again
        tree = get_tree(schema, LoadContext(archive, PROTOCOL), TRUSTED)
        audit_tree(tree, TRUSTED)
        return tree.construct()


def _check_node(node: Node) -> None:
    loader = node["__loader__"]
    name = f"{node['__module__']}.{node['__class__']}"
    if loader not in (*PLAIN, "JsonNode", "DTypeNode", "LossNode", "ObjectNode", "TreeNode"):
        raise DataError(f"it holds a {loader}")
    if loader != "JsonNode" and name not in PLAIN.get(loader, TRUSTED):
        raise DataError(f"it holds a {name}")
    if loader == "NdArrayNode" and node["type"] != "numpy":
        raise DataError("it holds an array of objects")


def _check_size(size: int) -> None:
    if size > MAX_BYTES:
        raise DataError(f"it unpacks to {size} bytes; at most {MAX_BYTES} are read")


def _nodes(schema: Any) -> Iterator[Node]:
    """Yields each description of an object in the schema."""
    found = [schema]
    while found:
        one = found.pop()
        if isinstance(one, dict):
            if "__loader__" in one:
                yield one
            found += one.values()
        elif isinstance(one, list):
            found += one


def _objects(given: Any) -> Iterator[Any]:
    """Yields each object with attributes, within lists and other objects, too."""
    if isinstance(given, list | tuple):
        inner = list(given)
    elif isinstance(given, dict):
        inner = list(given.values())
    elif hasattr(given, "__dict__") and not isinstance(given, type):
        yield given
        inner = list(vars(given).values())
    else:
        return
    for one in inner:
        yield from _objects(one)


def _member(state: Any, objective: Any, tokenizer: Tokenizer) -> Member | NodeMember:
    """The member, after its objects are checked."""
    num_outputs = objective.num_outputs
    if "table" in state:
        table = state["table"]
        _fits(table.ndim == 2 and table.shape[1] == num_outputs, f"{num_outputs} classes")
        _fits(isinstance(state["digest"], str), "a graph")
        return NodeMember(torch.from_numpy(table).float(), state["digest"])
    method = Method(str(state["name"]), None, objective)
    method.scale = float(state["scale"])
    method.fitted = list(state["fitted"])
    for one in _objects([state["transformer"], method.fitted]):
        _check(one)
    _fits(hasattr(state["transformer"], "transform"), "features")
    if getattr(objective, "follows_time", False):
        (one,) = method.fitted
        places = one.places_ if isinstance(one, Repeated) else one.ridge_[-1].coef_
        _fits(len(places) == num_outputs, f"{num_outputs} values")
    else:
        num_fitted = 1 if method.is_classifier else num_outputs
        _fits(len(method.fitted) == num_fitted, f"{num_outputs} outputs")
        for one in method.fitted:
            _check_outputs(one, method)
        widths = [one.n_features_in_ for one in method.fitted if hasattr(one, "n_features_in_")]
        method.predict(np.zeros((1, *widths[:1])))
    return Member(str(state["kind"]), state["transformer"], method, tokenizer)


def _check_outputs(one: Any, method: Method) -> None:
    if isinstance(method.objective, Regress):
        _fits(isinstance(one, BaseEstimator), "numbers")
        return
    k = method.num_classes
    if isinstance(one, np.ndarray):
        _fits(one.shape == (k,), f"{k} classes")
        return
    classes = np.asarray(one.classes_)
    is_known = classes.dtype.kind == "i" and len(classes) > 1 and 0 <= classes[0] < classes[-1] < k
    _fits(is_known and bool((np.diff(classes) > 0).all()), f"{k} classes")


def _fits(holds: bool, what: str) -> None:
    if not holds:
        raise DataError(f"its arrays do not fit {what}")


def _check(one: Any) -> None:
    """Whether an object has but data of its own, and sizes that native code may rely on."""
    name = type(one).__name__
    _fits(not [key for key in vars(one) if hasattr(type(one), key)], name)
    usual = signature(type(one).__init__).parameters if isinstance(one, BaseEstimator) else {}
    for key, value in vars(one).items():
        default = usual[key].default if key in usual else Parameter.empty
        is_free = default is Parameter.empty or key in PARAMETERS
        _fits(is_free or repr(value) == repr(default), f"{name} with another {key}")
    _fits(vars(one).get("sparse") is not True, name)
    width = getattr(one, "n_features_in_", 0)
    for tree in getattr(one, "estimators_", ()):
        _fits(tree.n_features_in_ == width, name)
    if hasattr(one, "tree_"):
        _check_tree(one.tree_, width, len(getattr(one, "classes_", [0])))
    if hasattr(one, "_predictors"):
        _check_boosted(one, width)
    if hasattr(one, "_fit_X"):
        _check_nearest(one, width)
    if isinstance(one, SVC | SVR):
        _check_svm(one, width)


def _check_tree(tree: Any, width: int, num_classes: int) -> None:
    """Each inner node has its children behind it, and reads one of the features."""
    _fits(tree.node_count == tree.capacity > 0, "a tree")
    _fits(tree.n_features == width and tree.n_outputs == 1, "a tree")
    _fits(tree.max_n_classes == num_classes, "a tree")
    left = tree.children_left
    _check_nodes(left != -1, left, tree.children_right, tree.feature, width)


def _check_nodes(inner: Any, left: Any, right: Any, feature: Any, width: int) -> None:
    place = np.arange(len(left))[inner]
    for child in (left[inner], right[inner]):
        _fits(bool(((child > place) & (child < len(left))).all()), "a tree")
    _fits(bool(((feature[inner] >= 0) & (feature[inner] < width)).all()), "a tree")


def _check_boosted(one: Any, width: int) -> None:
    from sklearn.ensemble._hist_gradient_boosting.common import PREDICTOR_RECORD_DTYPE

    _fits(one.is_categorical_ is None and not one._bin_mapper.is_categorical_.any(), "boosting")
    _fits(len(one._bin_mapper.is_categorical_) == width, "boosting")
    for tree in (tree for trees in one._predictors for tree in trees):
        nodes = tree.nodes
        _fits(nodes.dtype == PREDICTOR_RECORD_DTYPE and nodes.ndim == 1, "a tree")
        _fits(len(nodes) > 0 and not nodes["is_categorical"].any(), "a tree")
        left, right = (nodes[side].astype(np.int64) for side in ("left", "right"))
        _check_nodes(nodes["is_leaf"] == 0, left, right, nodes["feature_idx"], width)


def _check_nearest(one: Any, width: int) -> None:
    m = len(one._fit_X)
    _fits(one._fit_method == "brute" and one.effective_metric_ == "euclidean", "neighbours")
    _fits(one.n_neighbors == 1 and one._fit_X.shape == (m, width) and m > 0, "neighbours")
    _fits(one.n_samples_fit_ == len(one._y) == m, "neighbours")
    if hasattr(one, "classes_"):
        is_known = (one._y >= 0) & (one._y < len(one.classes_))
        _fits(one._y.dtype.kind == "i" and bool(is_known.all()), "neighbours")


def _check_svm(one: Any, width: int) -> None:
    """Sizes as libsvm stores them: m support vectors, a decision for each pair of classes."""
    m = len(one.support_vectors_)
    counts = one._n_support
    num_classes = len(one.classes_) if isinstance(one, SVC) else 2
    pairs = num_classes * (num_classes - 1) // 2
    _fits(one._sparse is False and one.support_vectors_.shape == (m, width), "an SVM")
    _fits(one.support_.shape == (m,) and one._dual_coef_.shape == (num_classes - 1, m), "an SVM")
    _fits(one._intercept_.shape == (pairs,) and len(counts) == num_classes, "an SVM")
    total = counts.sum() if isinstance(one, SVC) else counts[0]
    _fits(bool((counts >= 0).all()) and total == m, "an SVM")
    _fits(one._probA.size == one._probB.size == 0, "an SVM")
