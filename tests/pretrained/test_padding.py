"""Every imported type, whatever is beside an example: padding, other rows, parts of a prompt, packed rows, beams.

An example gives what it gives alone, to 1e-5 of the largest number. A batch with padding before or inside an example is
refused; a cache has it inside, where prompts of unlike lengths come in parts.
"""

import pytest
import torch
from every_type import FAST, asked, model_of, save, small_models
from parity import SLACK

from seqkit.generation import BeamSearch, generate
from seqkit.interfaces import TokenBatch
from seqkit.nn.position.convolutional import ConvolutionalPosition
from seqkit.pretrained.families import FAMILIES
from seqkit.testing.embedded_backbone import EmbeddedBackbone, has_cache
from seqkit.testing.laws import assert_steps, packed_equals_separate, padding_may_hold_anything


class Imported(EmbeddedBackbone):
    """Embedder and backbone of an imported model, in float64."""

    def __init__(self, model):
        torch.nn.Module.__init__(self)
        self.spec = model.spec
        self.embedder = model.embedder
        self.backbone = model.backbone
        self.causal = bool(model.causal)
        self.dtype = torch.float64
        self.double().eval()


@pytest.fixture(
    params=[pytest.param(kind, marks=() if kind in FAST else pytest.mark.slow) for kind in FAMILIES]
)
def both(request, tmp_path):
    """Both models of the first row of a type, and examples."""
    name, settings = small_models()[request.param][0]
    model = model_of(name, settings)
    save(tmp_path / "theirs", model)
    return asked(tmp_path, model)


def rows(both):
    """The batch of each example alone."""
    for i in range(len(both.batch)):
        own = TokenBatch.collate([both.batch.example(i)])
        source = both.batch.source
        if source is not None:
            own = own.replace(source=TokenBatch.collate([source.example(i)]))
        yield own


def test_an_example_gives_what_it_gives_alone(both):
    batch = both.batch.pad(4)
    if batch.source is not None:
        batch = batch.replace(source=batch.source.pad(3))
    for found, row in zip(both.ours(batch), rows(both), strict=True):
        right = both.ours(row)[0]
        assert (found[: len(right)] - right).abs().max() <= SLACK * right.abs().max()
    _assert_parts_and_packed_rows_change_nothing(both)
    if both.run.summary["objective"] in ("NextToken", "Seq2Seq"):
        _assert_beams_are_as_alone(both)


def _assert_parts_and_packed_rows_change_nothing(both):
    """Laws of `seqkit check`, of this model and its own embeddings. Those of two sequences are of their backbones."""
    if both.batch.source is not None or both.batch.parts is not None:
        return
    model = Imported(both.run.model)
    examples = [both.batch.example(i) for i in range(len(both.batch))]
    padding_may_hold_anything(model, examples)
    longer = [x for x in examples if len(x) > 5]  # a prompt in two parts, and four more tokens
    if model.causal and has_cache(model.backbone) and longer:
        for in_parts in (False, True):
            assert_steps(model, longer, (1, 2, 1), in_parts=in_parts)
    if model.backbone.supports_segments:
        if isinstance(model.embedder.position, ConvolutionalPosition):
            with pytest.raises(ValueError, match="mixes tokens of packed sequences"):
                packed_equals_separate(model, examples)
        else:
            packed_equals_separate(model, examples)


def _assert_beams_are_as_alone(both):
    beams = {"max_new_tokens": 6, "strategy": BeamSearch(3)}
    prompts = [both.batch.example(i).content for i in range(len(both.batch))]
    found = generate(both.run.model, prompts, source=both.batch.source, **beams)
    for ids, prompt, row in zip(found, prompts, rows(both), strict=True):
        (right,) = generate(both.run.model, [prompt], source=row.source, **beams)
        assert ids.equal(right)


@pytest.mark.parametrize("valid", [[False, True, True], [True, False, True]])
def test_padding_before_or_inside_an_example_is_refused(valid):
    with pytest.raises(ValueError, match="padding before a real token; pad on the right"):
        TokenBatch(torch.ones(1, 3, dtype=torch.int64), torch.zeros(1, 3, 1), torch.tensor([valid]))
