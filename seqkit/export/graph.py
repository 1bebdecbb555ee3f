"""A model as one graph over tensors, for every batch size and length, by torch.export or as ONNX.

b batch · n tokens · k fields · f features · p position axes · e edges
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn

from seqkit.errors import DataError, UsageError, one_line
from seqkit.files import write_atomic
from seqkit.interfaces import Adjacency, TokenBatch, Tokenizer, Tokens, TokenSpec
from seqkit.interfaces.finite import check_computed
from seqkit.interfaces.parts import Part, Parts
from seqkit.model import Model
from seqkit.nn.attention.linformer import LinformerAttention
from seqkit.nn.pooling import FeaturesHead, SequenceHead
from seqkit.nn.position.absolute import Learned
from seqkit.tokenizers import Join

MAX_BATCH = 1 << 16
MAX_TOKENS = 1 << 20
MAX_EDGES = 1 << 26
"""Sizes up to which a graph says that it takes inputs."""

EXAMPLE = (3, 8, True)
"""Examples, tokens, and whether there is padding, of the batch with which the model is traced."""
CHECKED = (
    (2, 7, False), (4, 5, True), (1, 11, False), (5, 12, True), (1, 1, False), (6, 1, False), (2, 70, True),
)  # fmt: skip
"""The same of the batches on which the written file is compared with the model."""
TOLERANCE = 1e-4
"""Largest difference, in units of the largest output."""


class OfTensors(nn.Module):
    """A model as a function of the tensors of a batch, in the order of `names`.

    content: [b n], [b n k] or [b n f]. positions: [b n p]. valid: [b n] bool, True = real. features: [b n f], where the
    tokens have numbers beside ids. edge_index [2 e] and edge_type [e], where they have edges; nodes count through the
    whole batch, i * n + t. Of joined tokens of one part they are the part's. Gives what the head gives.
    """

    def __init__(self, model: Model):
        super().__init__()
        self.model = model

    def forward(self, *tensors: Tensor) -> Tensor:
        """The head's prediction."""
        given: dict[str, Any] = dict(zip(names(self.model.spec), tensors, strict=True))
        if "edge_index" in given:
            given["adjacency"] = Adjacency(given.pop("edge_index"), given.pop("edge_type"))
        batch = TokenBatch(**given)
        if self.model.spec.is_joined:
            batch = _joined(batch, *self.model.spec.parts[0])
        prediction: Tensor = self.model(batch)
        return prediction


def _joined(part: TokenBatch, name: str, spec: TokenSpec) -> TokenBatch:
    """Joined tokens of a single part, which every example has once, as `TokenBatch.collate` makes them."""
    b, n = part.valid.shape
    columns = torch.arange(b * n).reshape(b, n).where(part.valid, 0)
    parts = Parts({name: Part(part, columns, part.valid.new_zeros(b))})
    graphs = None
    if spec.num_edge_types:
        graphs = torch.arange(1, b + 1).reshape(b, 1).where(part.valid, 0)
    return part.replace(
        content=torch.zeros_like(columns), features=None, parts=parts, graphs=graphs
    )


def of_part(spec: TokenSpec) -> TokenSpec:
    """Shape of the tokens that a graph takes: of joined ones, of their single part."""
    return spec.parts[0][1] if spec.is_joined else spec


AXES = {
    "content": "b n", "positions": "b n p", "valid": "b n", "features": "b n f", "edge_index": "2 e", "edge_type": "e",
}  # fmt: skip
"""Axes of each input, as the top of this file names them; content that is no ids, or several, has one more."""


def names(spec: TokenSpec) -> tuple[str, ...]:
    """Names of the inputs of a graph over tokens of that shape."""
    spec = of_part(spec)
    found = ["content", "positions", "valid"]
    if spec.vocab_sizes and spec.num_features:
        found.append("features")
    if spec.num_edge_types:
        found += ["edge_index", "edge_type"]
    return tuple(found)


COLUMNS = {
    "FromFile": ("index", "token type"), "Patches": ("row", "column"),
}  # fmt: skip
"""Names of the columns of positions that have several axes, by the name of the tokenizer."""


def inputs(tokenizer: Tokenizer) -> dict[str, dict[str, Any]]:
    """Shape and type of each input of a graph over a tokenizer's tokens; for positions, also what each column is.

    The names of axes are those of the top of this file. Positions on one axis count the tokens, unless the tokenizer
    measures them.
    """
    if isinstance(tokenizer, Join):
        tokenizer = next(iter(tokenizer.parts.values()))
    spec = tokenizer.spec
    found: dict[str, dict[str, Any]] = {
        name: {"axes": AXES[name].split(), "type": "float32"} for name in names(spec)
    }
    content = found["content"]
    if not spec.is_categorical:
        content["axes"].append("f")
    elif spec.vocab_sizes:
        content["axes"].append("k")
    if spec.is_categorical:
        content["type"] = "int64"
    found["valid"] |= {"type": "bool", "padding": "right"}
    for name in found.keys() & {"edge_index", "edge_type"}:
        found[name]["type"] = "int64"
    columns = ["index"]
    if spec.num_axes != 1:
        unknown = tuple(f"axis {i}" for i in range(spec.num_axes))
        columns = [*COLUMNS.get(type(tokenizer).__name__, unknown)[: spec.num_axes]]
    found["positions"]["columns"] = columns
    return found


def export(model: Model, out: Path, to: str, notes: Mapping[str, str]) -> float:
    """Write a model in evaluation mode to a file, and compare the file with the model at other sizes.

    to: "torch", a program for `torch.export.load`, or "onnx". notes: texts that the file carries beside the graph.
    Gives the largest difference of outputs. Raises UsageError, with the reason, where the model cannot be exported, the
    format's packages are missing, or the file gives other numbers; DataError where the model computes no numbers. Then
    nothing is written, and a file at `out` stays as it is.
    """
    model = model.eval()
    _check(model, to)
    name = type(model.backbone).__name__
    function = OfTensors(model)
    spec = model.spec
    try:
        with _quiet(), torch.no_grad(), TemporaryDirectory() as folder:
            part = Path(folder) / out.name
            program = torch.export.export(
                function, _batch(model, *EXAMPLE), dynamic_shapes=(_sizes(model),), strict=False
            )
            run = WRITERS[to](program, part, spec, notes)
            differences = [_difference(run, function, _batch(model, *sizes)) for sizes in CHECKED]
            written = part.read_bytes()
    except DataError:
        raise
    except Exception as error:  # what torch cannot export is told by a dozen kinds of errors
        raise UsageError(
            f"{name} cannot be exported to {to} with these settings ({_reason(error)}); a Transformer with "
            "ScaledDotProductAttention can (docs/export.md has the table)"
        ) from error
    # NaN is the largest: `max` alone passes it over
    worst = max(differences, key=lambda x: (x != x, x))
    if not worst <= TOLERANCE:
        raise UsageError(
            f"{name} gives other numbers from the {to} file, by {worst:.1e} of the largest; not exported"
        )
    write_atomic(out, written)
    return worst


def _reason(error: BaseException) -> str:
    """The error that came first, in one line; torch's exporters say it last, below advice for their developers."""
    while error.__cause__ is not None:
        error = error.__cause__
    return one_line(error)[:300]


def _check(model: Model, to: str) -> None:
    """Raise UsageError for models of more inputs than one sequence, and for missing packages."""
    if model.source_embedder is not None:
        raise UsageError(
            "an encoder–decoder generates token by token, and is not exported; export an encoder or a GPT"
        )
    if len(model.spec.parts) > 1:
        parts = ", ".join(name for name, _ in model.spec.parts)
        raise UsageError(
            f"this model joins the parts of an example ({one_line(parts)}), and a graph takes one; "
            "use `seqkit serve` or `seqkit predict`, or seqkit.load in Python"
        )
    needed = ("onnx", "onnxscript", "onnxruntime") if to == "onnx" else ()
    missing = [each for each in needed if find_spec(each) is None]
    if missing:
        raise UsageError(f"ONNX needs {', '.join(missing)}; pip install 'seqkit[export]'")


def _max_tokens(model: Model) -> int:
    """Tokens of the longest example that the graph takes."""
    limits = [x.max_tokens for x in model.modules() if isinstance(x, LinformerAttention)]
    return min([MAX_TOKENS, *limits])


def _sizes(model: Model) -> tuple[dict[int, Any], ...]:
    """Sizes of each input that may vary."""
    sizes = {
        "b": torch.export.Dim("b", min=1, max=MAX_BATCH),
        "n": torch.export.Dim("n", min=1, max=_max_tokens(model)),
        "e": torch.export.Dim("e", min=0, max=MAX_EDGES),
    }
    return tuple(
        {i: sizes[axis] for i, axis in enumerate(AXES[name].split()) if axis in sizes}
        for name in names(model.spec)
    )


def _batch(model: Model, b: int, n: int, is_padded: bool) -> tuple[Tensor, ...]:
    """Random tokens of that shape, the same at every call, at positions that learned tables have."""
    spec = of_part(model.spec)
    n = min(n, _max_tokens(model))
    learned = [x for x in model.embedder.modules() if isinstance(x, Learned)]
    sizes = None
    if learned:
        sizes = [learned[0].sizes[0] - learned[0].first, *learned[0].sizes[1:]]
    random = torch.Generator().manual_seed(b * 1000 + n)
    lengths = [n] * b
    if is_padded:
        lengths[1:] = [int(torch.randint(1, n + 1, (), generator=random)) for _ in range(1, b)]
    examples = [_tokens(spec, length, random, sizes) for length in lengths]
    tensors = TokenBatch.collate(examples).tensors()
    return tuple(tensors[name] for name in names(spec))


def _tokens(
    spec: TokenSpec, n: int, random: torch.Generator, sizes: Sequence[int] | None
) -> Tokens:
    """Random tokens. sizes: positions of each axis; None: any."""
    tokens = spec.without_edges().random(n, random)
    if sizes is not None:
        tokens = replace(tokens, positions=tokens.positions % torch.tensor(sizes))
    if not spec.num_edge_types:
        return tokens
    edges = (torch.rand(n, n, generator=random) < 0.4).triu(1)
    edges = edges | edges.T
    types = torch.randint(1, spec.num_edge_types + 1, (n, n), generator=random)
    return replace(tokens, adjacency=Adjacency(edges.nonzero().T.contiguous(), types[edges]))


def _difference(run: Callable[..., Tensor], model: OfTensors, given: tuple[Tensor, ...]) -> float:
    """Largest difference of outputs at real tokens, or of whole examples, in units of the largest output."""
    got = run(*given)
    right = model(*given)
    valid = given[2]
    if got.shape != right.shape:
        raise ValueError(f"the file gives {list(got.shape)}, the model {list(right.shape)}")
    is_of_examples = isinstance(model.model.head, SequenceHead | FeaturesHead)
    if right.shape[:2] == valid.shape and not is_of_examples:
        got = got[valid]
        right = right[valid]
    check_computed(right)
    return float((got - right).abs().max() / right.abs().max().clamp(min=1e-6))


def _write_torch(
    program: Any, out: Path, _spec: TokenSpec, notes: Mapping[str, str]
) -> Callable[..., Tensor]:
    torch.export.save(program, out, extra_files=dict(notes))
    loaded: Callable[..., Tensor] = torch.export.load(out).module()
    return loaded


def _write_onnx(
    program: Any, out: Path, spec: TokenSpec, notes: Mapping[str, str]
) -> Callable[..., Tensor]:
    import onnxruntime

    known = list(names(spec))
    written = torch.onnx.export(
        program,
        (),
        dynamo=True,
        verbose=False,
        input_names=known,
        output_names=["prediction"],
        custom_translation_table={torch.ops.aten.index_add.default: _sum_over_rows},
    )
    assert written is not None
    written.model.metadata_props.update(notes)
    written.save(out, external_data=False)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors alone
    session = onnxruntime.InferenceSession(out, options, providers=["CPUExecutionProvider"])
    taken = {each.name for each in session.get_inputs()}  # a model may use no positions

    def run(*given: Tensor) -> Tensor:
        by_name = {name: x.numpy() for name, x in zip(known, given) if name in taken}
        return torch.from_numpy(session.run(None, by_name)[0])

    return run


def _sum_over_rows(own: Any, dim: int, index: Any, source: Any) -> Any:
    """`index_add` in ONNX, of one order: the ScatterND that torch 2.11 writes loses sums between threads.

    onnxruntime 1.32 adds rows of the same index in several threads without a lock, and differed by 6 % of the largest
    output in a batch of 140 nodes.
    """
    from onnxscript import opset18 as ops

    shape = [1] * len(source.shape)
    shape[dim] = -1
    column: Any = ops.Constant(value_ints=shape)
    rows = ops.Expand(ops.Reshape(index, column), ops.Shape(source))
    return ops.ScatterElements(own, rows, source, axis=dim, reduction="add")


WRITERS: dict[str, Callable[..., Callable[..., Tensor]]] = {
    "torch": _write_torch,
    "onnx": _write_onnx,
}
"""Formats of `export`: each writes a program to a file, and gives the file as a function of tensors."""


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence of torch, which speaks to those who develop its exporters."""
    speakers = ("torch.onnx", "onnxscript", "onnx_ir", "torch.export", "torch._export")
    before = {logging.getLogger(name): logging.getLogger(name).level for name in speakers}
    try:
        for each in before:
            each.setLevel(logging.CRITICAL)
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        for each, level in before.items():
            each.setLevel(level)
