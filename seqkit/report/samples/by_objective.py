"""The sections of a report that fit a run's objective."""

from functools import singledispatch

from seqkit.interfaces import Objective
from seqkit.report.samples.classes import of_class, of_labels
from seqkit.report.samples.masked import of_masked
from seqkit.report.samples.nearest import of_ranking
from seqkit.report.samples.picker import Picker
from seqkit.report.samples.section import Section
from seqkit.report.samples.targets import of_number
from seqkit.report.samples.texts import of_next_token, of_text


@singledispatch
def samples(_objective: Objective, _picker: Picker) -> list[Section]:
    """Sections of a report, by a run's objective. An objective that is not known here has none."""
    return []


# by the annotation of its objective, of which the later one counts
samples.register(of_text)
samples.register(of_next_token)
samples.register(of_class)
samples.register(of_labels)
samples.register(of_number)
samples.register(of_masked)
samples.register(of_ranking)
