"""How much a loss fell at the end of training."""

import pytest

from seqkit.runs.curves import late_fall


@pytest.mark.parametrize(
    ("losses", "fall"),
    [
        ([2.0, 1.5, 1.2, 1.0, 0.8], 1 - 0.8 / 1.2),  # of steps 10 to 50, 30 is the last before three quarters
        ([2.0, 1.0, 1.2, 1.1, 1.05], None),  # it was lower before
        ([2.0, 1.5, 1.0, 1.0, 1.0], None),
        ([2.0, 1.5, 1.0], None),  # too few
        ([], None),
    ],
)
def test_a_loss_falls_at_the_end_where_its_last_value_is_the_lowest(losses, fall):
    found = late_fall([(10.0 * i, loss) for i, loss in enumerate(losses, start=1)])
    assert found == (fall if fall is None else pytest.approx(fall))
