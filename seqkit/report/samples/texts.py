"""A text that the model writes: a continuation, or beside its references."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from seqkit.generation import Sampling, stream_text
from seqkit.interfaces import IGNORE
from seqkit.objectives.ctc import CTC
from seqkit.objectives.next_token import NextToken
from seqkit.objectives.seq2seq import Seq2Seq
from seqkit.report.samples.picker import MAX_CHARACTERS, Picker
from seqkit.report.samples.section import Section, Shown

NUM_PROMPT_TOKENS = 24
NUM_GENERATED = 400


def of_next_token(objective: NextToken, picker: Picker) -> list[Section]:
    if objective.part is not None:
        return of_text(objective, picker, str(objective.part))
    if not picker.renderer.is_text:
        return []
    trained = picker.trained
    tokenizer: Any = trained.tokenizer
    prompt = str(tokenizer.decode(picker.first(1)[0].content[0][:NUM_PROMPT_TOKENS]))
    sampling = Sampling(temperature=0.8, seed=1)
    text = "".join(stream_text(trained, prompt, NUM_GENERATED, sampling=sampling))
    note = (
        "The model continues the underlined text, which is the beginning of the test data. It draws "
        f"{NUM_GENERATED} tokens at temperature 0.8, with seed 1."
    )
    return [Section("Sample", note, examples=[Shown("", spans=((prompt, "prompt"), (text, "")))])]


def of_text(objective: Seq2Seq | CTC | NextToken, picker: Picker, part: str = "") -> list[Section]:
    """The first test examples without the part that is written, each with what the model writes for it."""
    batch, label = picker.first()
    rights = objective.references((batch, label))
    assert rights is not None
    write = partial(objective.predict, picker.trained.model)
    texts = objective.decode(picker.trained.predictor.run(write, batch))
    references = [
        [objective.decode(row[None])[0] for row in rows if int(row[0]) != IGNORE] for rows in rights
    ]
    examples = []
    for place, (text, right) in enumerate(zip(texts, references)):
        shown = picker.shown(place, without=part)
        written = str(text)[:MAX_CHARACTERS] or "(nothing)"
        spans = [(f"{before}\n", mark) for before, mark in shown.spans]
        if text in right:
            spans.append((written, "right"))
        else:
            wanted = " | ".join(map(str, right))[:MAX_CHARACTERS]
            spans += [(written, "wrong"), (f"\n{wanted}", "")]
        examples.append(replace(shown, spans=spans))
    note = (
        "The first test examples, each with the text that the model writes. Green is equal to a reference; otherwise "
        "the references follow."
    )
    return picker.gallery("Generated", note, examples)
