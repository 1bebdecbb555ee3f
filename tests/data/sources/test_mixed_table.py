"""Named tables are as they ship."""

import logging
from collections import Counter

import numpy as np
import pytest

from seqkit.data import Cars, SmsSpam
from seqkit.errors import DataError


def test_cars_are_as_they_ship(caplog):
    with caplog.at_level(logging.WARNING):
        splits = Cars().splits()
    assert (len(splits.train), len(splits.test)) == (318, 80)
    found = [*splits.train, *splits.test]
    assert sum("Horsepower" not in raw["cells"] for raw, _, *_ in found) == 6
    assert abs(np.mean([label for _, label, *_ in found]) - 23.5146) < 1e-3
    assert {round(70 + raw["cells"]["Year"]) for raw, _, *_ in found} == set(range(70, 81)) | {82}
    assert not [record for record in caplog.records if "pip downloads" not in record.message]
    classes = Cars(target_kind="classes")
    assert classes.splits().names == ["Europe", "Japan", "USA"]
    assert classes.decided()["target"] == "Origin"


def test_sms_spam_is_split_by_class_into_a_fifth(shared_data, caplog):
    with caplog.at_level(logging.WARNING, "seqkit"):
        splits = SmsSpam().splits()
    assert (len(splits.train), len(splits.test)) == (4460, 1114)
    assert splits.names == ["ham", "spam"]
    assert Counter(splits.test.labels) == {0: 965, 1: 149}
    lines = (shared_data / "sms-spam" / "messages.tsv").read_text(encoding="utf-8").split("\n")
    found = Counter((splits.names[s.label], s.raw) for part in (splits.train, splits.test) for s in part)
    assert found == Counter(tuple(line.split("\t", 1)) for line in lines if line)
    assert not caplog.records


def test_sms_spam_that_is_missing_is_said(own_folder):
    with pytest.raises(DataError, match=r"sms-spam/messages\.tsv .*SEQKIT_DATA"):
        SmsSpam().splits()
