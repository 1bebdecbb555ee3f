"""Masked tokens, and what is predicted in their places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from seqkit.objectives.masked import Masked
from seqkit.report.samples.picker import Picker, example
from seqkit.report.samples.section import Section, Shown, Span


def of_masked(objective: Masked, picker: Picker) -> list[Section]:
    batch, label = picker.first()
    renderer = picker.renderer
    if not (renderer.is_text or batch.content.is_floating_point()):
        return []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        output = picker.trained.predictor.step(objective, (batch, label))
    assert output.inputs is not None
    assert output.prediction is not None
    assert output.inputs.masked is not None
    masked = output.inputs.masked.cpu()
    prediction = output.prediction.cpu()
    if renderer.is_text:
        contents = [batch.content, prediction.argmax(dim=-1)]
    else:
        where = masked[..., None]
        seen = batch.content.masked_fill(where, 0.0)
        filled = torch.where(where, prediction.float(), batch.content)
        contents = [batch.content, seen, filled]
    examples = []
    for i in range(len(batch)):
        versions = [example(replace(batch, content=content), i) for content in contents]
        shown = Shown("", picker.origin(i))
        if renderer.is_text:
            original, predicted = map(renderer.pieces, versions)
            spans = _masked_text(original, predicted, masked[i][batch.valid[i]].tolist())
            shown = replace(shown, spans=spans)
        else:
            shown = replace(shown, figures=[renderer.small_svg(None, one) for one in versions])
        examples.append(shown)
    note = (
        f"The first test examples. {100 * objective.fraction:.0f} % of their tokens are masked, and the model predicts "
        "these from the rest. Below each other or side by side are the example, what the model sees of it, and its "
        "predictions in the masked places."
    )
    return picker.gallery("Masked and predicted", note, examples, pictures=3)


def _masked_text(
    original: Sequence[str], predicted: Sequence[str], masked: Sequence[bool]
) -> list[Span]:
    """The pieces of a text, the input with masked tokens as lines, and the predictions, one below the other."""
    whole = list[Span]()
    seen = list[Span]()
    filled = list[Span]()
    for text, guess, is_masked in zip(original, predicted, masked):
        whole.append((text, ""))
        if is_masked:
            seen.append(("▁" * len(text), "masked"))
            filled.append((guess, "right" if guess == text else "wrong"))
        else:
            seen.append((text, ""))
            filled.append((text, ""))
    gap = ("\n\n", "")
    return [*whole, gap, *seen, gap, *filled]
