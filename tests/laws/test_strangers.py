"""The tokenizers that docs/write-a-tokenizer.md shows go through every backbone and objective that fits."""

import re
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
import torch
from conftest import backbones

from seqkit.interfaces import TokenBatch
from seqkit.model import Model
from seqkit.objectives import Classify, Masked, NextToken, Regress
from seqkit.testing import check_tokenizer

PAGE = Path(__file__).parents[2] / "docs" / "write-a-tokenizer.md"
STRANGERS = {"codons": "Codons", "seismograms": "Seismogram", "board": "Board"}
OBJECTIVES = {"NextToken": NextToken, "Masked": Masked, "Classify": Classify, "Regress": Regress}


def source_of(module):
    (found,) = re.findall(
        rf"```python\n(# {module}\.py\n.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL
    )
    return found


@pytest.fixture(params=STRANGERS)
def stranger(request, tmp_path, monkeypatch):
    """A tokenizer of the page."""
    file = tmp_path / f"{request.param}.py"
    file.write_text(source_of(request.param), encoding="utf-8")
    spec = spec_from_file_location(request.param, file)
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, request.param, module)
    spec.loader.exec_module(module)
    return getattr(module, STRANGERS[request.param])()


@pytest.mark.parametrize("module", STRANGERS)
def test_a_strangers_tokenizer_has_at_most_25_lines(module):
    body = source_of(module).split("@register")[1]
    assert len([line for line in body.splitlines() if line.strip()]) <= 25


def test_a_strangers_tokenizer_keeps_the_laws(stranger):
    check_tokenizer(stranger, stranger.examples, other_process=False)


@pytest.mark.parametrize(
    ("backbone", "name"),
    [
        (backbone, name)
        for i, backbone in enumerate(sorted(backbones()))
        for j, name in enumerate(OBJECTIVES)
        if backbone in ("Transformer", "GRU") or (i + j) % len(OBJECTIVES) == 0
    ],
)
def test_a_strangers_tokens_go_through_every_backbone_or_are_refused_with_a_reason(
    stranger, backbone, name
):
    objective, spec = OBJECTIVES[name](), stranger.spec
    backbone = backbones()[backbone](24, causal=bool(objective.causal))
    batch = TokenBatch.collate([stranger.encode(raw) for raw in stranger.examples])
    label = torch.arange(2.0) if name == "Regress" else torch.arange(2)
    if objective.needs_labels:
        objective.fit([0, 1], None)
    reasons = []
    if spec.is_set and (backbone.is_recurrent or backbone.causal):
        reasons.append("these tokens are a set")
    if name == "NextToken" and not spec.is_categorical:
        reasons.append("vectors")
    if reasons:
        with pytest.raises(ValueError, match="|".join(reasons)):
            Model(spec, backbone, objective)
        if reasons == ["vectors"]:
            return
    model = Model(spec, backbone, objective, set_as_sequence=True)
    given = objective.prepare(batch, label if objective.needs_labels else None)
    output = objective.loss(model(given.batch, given.masked), given.target, training=True)
    output.loss.backward()
    assert bool(torch.isfinite(output.loss))
    assert all(
        p.grad is not None and bool(torch.isfinite(p.grad).all()) for p in model.parameters()
    )
