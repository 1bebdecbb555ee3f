"""Positional encodings equal their formulas, axis by axis."""

import math

import pytest
import torch
from einops import rearrange
from torch.testing import assert_close

from seqkit.nn.position.absolute import Learned, NoPosition, Sinusoidal, SinusoidalConcat


@pytest.mark.parametrize(("dim", "num_axes"), [(14, 1), (20, 2), (18, 3)])
def test_sinusoids_equal_the_formula_by_axis(dim, num_axes):
    positions = torch.randn(2, 5, num_axes) * 50
    got = Sinusoidal(dim, num_axes, max_wavelength=1_000.0)(positions)
    share = dim // num_axes
    for b in range(2):
        for n in range(5):
            right = []
            for axis in range(num_axes):
                for i in range(share // 2):
                    angle = float(positions[b, n, axis]) / 1_000.0 ** (2 * i / share)
                    right += [math.sin(angle), math.cos(angle)]
            assert_close(got[b, n], torch.tensor(right), rtol=1e-4, atol=1e-4)


def test_sines_may_come_before_all_cosines():
    positions = torch.randn(2, 5, 2) * 50
    interleaved = rearrange(
        Sinusoidal(20, 2)(positions), "b n (p i two) -> b n (p two i)", p=2, two=2
    )
    assert_close(Sinusoidal(20, 2, interleaved=False)(positions), interleaved)


@pytest.mark.parametrize("dim", [4, 24, 512])
def test_an_endpoint_and_a_first_position_are_those_of_m2m100(dim):
    from transformers.models.m2m_100 import modeling_m2m_100

    theirs = modeling_m2m_100.M2M100SinusoidalPositionalEmbedding.get_embedding(1031, dim)[2:]
    ours = Sinusoidal(dim, 1, interleaved=False, endpoint=True, first=2)
    positions = torch.arange(1029.0)[None, :, None]
    assert_close(ours(positions)[0], theirs, rtol=0, atol=1e-6)


def test_an_endpoint_of_one_pair_is_refused():
    with pytest.raises(ValueError, match="dim=2 has fewer; make it 4 or more"):
        Sinusoidal(2, 1, endpoint=True)


def test_integer_positions_give_the_original_transformers_encoding():
    got = Sinusoidal(6, 1)(torch.arange(3.0)[None, :, None])[0]
    assert_close(got[0], torch.tensor([0.0, 1.0] * 3))
    assert_close(
        got[2, 2:4],
        torch.tensor([math.sin(2 / 10_000 ** (2 / 6)), math.cos(2 / 10_000 ** (2 / 6))]),
    )


@pytest.mark.parametrize(("dim", "num_axes", "multiple"), [(7, 1, 2), (18, 2, 4), (8, 3, 6)])
def test_a_width_that_does_not_split_between_the_axes_is_refused(dim, num_axes, multiple):
    with pytest.raises(ValueError, match=f"dim={dim} .* {num_axes} axes"):
        Sinusoidal(dim, num_axes)


@pytest.mark.parametrize(("channels", "num_axes"), [(14, 1), (8, 2)])
def test_concatenated_sinusoids_take_the_last_channels_of_content(channels, num_axes):
    positions, hidden = torch.randn(2, 5, num_axes), torch.randn(2, 5, 17)
    got = SinusoidalConcat(17, num_axes, channels=channels, max_wavelength=100.0).add(
        hidden, positions
    )
    assert_close(got[..., : 17 - channels], hidden[..., : 17 - channels])
    assert_close(
        got[..., 17 - channels :], Sinusoidal(channels, num_axes, max_wavelength=100.0)(positions)
    )


@pytest.mark.parametrize(
    ("channels", "message"), [(0, "channels=0"), (12, "channels=12"), (6, "dim=6")]
)
def test_channels_that_leave_content_nothing_or_do_not_split_are_refused(channels, message):
    with pytest.raises(ValueError, match=message):
        SinusoidalConcat(12, 2, channels=channels)


@pytest.mark.parametrize(
    "position",
    [Sinusoidal(6, 0), SinusoidalConcat(6, 0, channels=2), NoPosition(6, 0), NoPosition(6, 2)],
)
def test_without_axes_nothing_is_added(position):
    hidden = torch.randn(2, 3, 6)
    assert_close(hidden + position(torch.randn(2, 3, position.num_axes)), hidden)


def test_learned_positions_are_looked_up_and_summed_over_axes():
    learned = Learned(5, 2, sizes=[3, 7])
    positions = torch.tensor([[[0.0, 6.0], [2.0, 1.0]]])
    rows, columns = learned.tables
    assert_close(
        learned(positions), torch.stack([rows[0] + columns[6], rows[2] + columns[1]])[None]
    )


@pytest.mark.parametrize(
    ("positions", "message"),
    [
        ([[0.5, 1.0]], "integer"),
        ([[3.0, 1.0]], "position 3 on axis 0 .* table of 3"),
        ([[0.0, -1.0]], "position -1 on axis 1"),
    ],
)
def test_a_position_outside_the_table_is_refused(positions, message):
    with pytest.raises(ValueError, match=message):
        Learned(5, 2, sizes=[3, 7])(torch.tensor([positions]))


def test_position_0_may_be_a_later_entry_of_the_first_axis():
    learned = Learned(5, 2, sizes=[7, 3], first=2)
    assert [len(table) for table in learned.tables] == [7, 3]
    assert (learned.num_positions, Learned(5, 1, sizes=[7], first=2).num_positions) == (3, 5)
    rows, columns = learned.tables
    got = learned(torch.tensor([[[0.0, 0.0], [4.0, 2.0]]]))
    assert_close(got, torch.stack([rows[2] + columns[0], rows[6] + columns[2]])[None])
    for wrong, message in (
        ([[5.0, 0.0]], "position 5 on axis 0 .* of 5"),
        ([[-1.0, 0.0]], "position -1 on axis 0"),
    ):
        with pytest.raises(ValueError, match=message):
            learned(torch.tensor([wrong]))
    for first in (-1, 7):
        with pytest.raises(ValueError, match=f"first={first}"):
            Learned(5, 1, sizes=[7], first=first)


@pytest.mark.parametrize(("num_axes", "sizes"), [(2, [3]), (0, [])])
def test_a_table_that_does_not_fit_the_axes_is_refused(num_axes, sizes):
    with pytest.raises(ValueError, match=f"the tokens have {num_axes}"):
        Learned(5, num_axes, sizes=sizes)


def test_a_table_without_entries_is_refused():
    with pytest.raises(ValueError, match=r"sizes=\[0\]"):
        Learned(5, 1, sizes=[0])


POSITIONS = {
    "none": lambda axes: NoPosition(24, axes),
    "sinusoidal": lambda axes: Sinusoidal(24, axes),
    "concat": lambda axes: SinusoidalConcat(24, axes, channels=12),
    "learned": lambda axes: Learned(24, axes, sizes=[301] * axes),
}


@pytest.mark.parametrize(
    ("name", "num_axes"),
    [(name, axes) for name in POSITIONS for axes in range(4) if axes or name != "learned"],
)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_vectors_have_the_dtype_of_the_module_and_are_rounded_once(name, num_axes, dtype):
    exact, positions = POSITIONS[name](num_axes), torch.randint(301, (2, 5, num_axes)).float()
    moved = POSITIONS[name](num_axes)
    moved.load_state_dict(exact.state_dict())
    moved = moved.to(dtype)
    got = moved(positions)
    assert got.dtype == moved.dtype == dtype
    assert exact(positions).dtype == exact(positions.double()).dtype == torch.float32
    if name == "learned":
        wide = torch.promote_types(dtype, torch.float32)
        right = sum(
            table.to(wide)[positions[..., axis].long()] for axis, table in enumerate(moved.tables)
        )
        assert torch.equal(got, right.to(dtype))
    elif dtype != torch.float64:
        assert torch.equal(got, exact(positions).to(dtype))
    else:
        assert_close(got.float(), exact(positions), rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", POSITIONS)
def test_positions_on_an_accelerator_are_not_read(name):
    """Fake tensors have no values: reading one, which stalls a real device, raises."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(), torch.device("cuda"):
        got = POSITIONS[name](2)(torch.zeros(2, 5, 2))
    assert got.device.type == "cuda"


@pytest.mark.parametrize("name", POSITIONS)
def test_positions_built_without_data_work_once_they_are_loaded(name):
    exact, positions = POSITIONS[name](2), torch.randint(301, (2, 5, 2)).float()
    with torch.device("meta"):
        empty = POSITIONS[name](2)
    empty.to_empty(device="cpu")
    empty.load_state_dict(exact.state_dict())
    assert torch.equal(empty(positions), exact(positions))
