"""A ranking: the nearest examples to some queries, in every direction of retrieval."""

from __future__ import annotations

from itertools import islice, permutations

import torch

from seqkit.objectives.contrastive import Contrastive
from seqkit.objectives.losses import is_positive
from seqkit.report.samples.picker import Picker
from seqkit.report.samples.section import Section

NUM_QUERIES = 3
NUM_NEAREST = 5
NUM_DIRECTIONS = 6
"""Queries of each direction of retrieval that are shown, how many of the nearest, and most directions."""


def of_ranking(objective: Contrastive, picker: Picker) -> list[Section]:
    found = list(picker.outputs())
    order = torch.tensor([place for places, _, _ in found for place in places]).argsort()
    vectors, keys = (
        torch.cat([getattr(one, name) for *_, one in found])[order] for name in ("preds", "target")
    )
    same = "the example itself, or one with an equal part"
    if objective.has_classes:
        same = "an example of the same class"
    note = (
        f"A row begins with one part of a test example. Beside it are those of {len(order):,} test examples whose "
        f"other part is nearest, with the cosine of the two vectors. ✓ marks {same}."
    )
    sections = []
    for i, j in islice(permutations(range(len(objective.parts)), 2), NUM_DIRECTIONS):
        query = objective.parts[i]
        answer = objective.parts[j]
        known = (~vectors[:, j, 0].isnan()).nonzero()[:, 0]
        queries = known[~vectors[known, i, 0].isnan()][:NUM_QUERIES]
        if not len(queries):
            continue
        most = min(NUM_NEAREST, len(known))
        cosines, nearest = (vectors[queries, i] @ vectors[known, j].T).topk(most, dim=1)
        right = is_positive(keys[queries], keys[known], i, j).gather(1, nearest)
        examples = []
        for row, place in enumerate(queries.tolist()):
            examples.append(picker.shown(place, "query", only=query))
            answers = known[nearest[row]].tolist()
            for other, cosine, is_right in zip(answers, cosines[row], right[row]):
                mark = "✓" if is_right else "✗"
                examples.append(picker.shown(other, f"{mark} {cosine:.2f}", only=answer))
        title = f"Nearest examples: {query} → {answer}"
        sections.append(Section(title, note, examples=examples, points=72, per_row=1 + most))
        note = ""
    return sections
