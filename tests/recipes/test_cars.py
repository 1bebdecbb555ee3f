import logging

import numpy as np

from seqkit.recipes.multimodal.cars import Cars


def test_cars_are_as_they_ship(caplog):
    with caplog.at_level(logging.WARNING):
        splits = Cars().splits()
    assert (len(splits.train), len(splits.test)) == (318, 80)
    found = [*splits.train, *splits.test]
    assert sum("Horsepower" not in raw["cells"] for raw, _, *_ in found) == 6
    assert abs(np.mean([label for _, label, *_ in found]) - 23.5146) < 1e-3
    assert {round(70 + raw["cells"]["Year"]) for raw, _, *_ in found} == set(range(70, 81)) | {82}
    assert not [record for record in caplog.records if "pip downloads" not in record.message]
    assert Cars(target_kind="classes").splits().names == ["Europe", "Japan", "USA"]
