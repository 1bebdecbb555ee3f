"""The page of published families: two of them are measured again, and the page is what the results give."""

import json

import pytest
import torch
from strangers import page
from strangers.families import FAMILIES, RECURRENT
from strangers.laws import CACHE, FORWARD, LAWS, Subject, all_valid
from strangers.measure import MOST_LINES, agrees, measured, status, tried

RESULTS = json.loads(page.RESULTS.read_text(encoding="utf-8"))["families"]
MEASURED = {name: row["tiny"] for name, row in RESULTS.items() if "tiny" in row}


def test_the_page_says_what_the_results_give():
    published = page.PAGE.read_text(encoding="utf-8")
    assert page.page(page.read_results()) == published


def test_at_least_28_families_and_14_laws_are_measured():
    assert len(MEASURED) >= 28
    assert all(cells.keys() == LAWS.keys() for cells in MEASURED.values())
    assert len(LAWS) >= 14


def test_every_fault_was_reproduced_by_its_example():
    sizes = [cells for row in RESULTS.values() for size, cells in row.items() if size != "seconds"]
    cells = [cell for found in sizes if isinstance(found, dict) for cell in found.values()]
    assert not any(cell["status"] == "not reproduced" for cell in cells)
    faults = [cell for cell in cells if cell["status"] == "broken"]
    assert faults
    for cell in faults:
        size = cell.get("float64", cell["float32"])["size"]
        assert agrees(cell["by_hand"], size)
        assert len(cell["example"].split("\n")) <= MOST_LINES
        assert "seqkit" not in cell["example"]


def test_recurrent_families_that_take_a_mask_lose_right_padded_prompts_and_llama_does_not():
    for name, family in FAMILIES.items():
        if family.group == RECURRENT and name not in ("rwkv", "xlstm"):
            assert MEASURED[name]["right_padded_prompts"]["status"] == "broken", name
    assert not any(cell["status"] == "broken" for cell in MEASURED["llama"].values())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["llama", "mamba2"])
def test_a_family_measured_again_gives_its_row(name):
    pytest.importorskip("transformers")
    found = measured(name)
    before = MEASURED[name]
    assert {law: cell["status"] for law, cell in found.items()} == {
        law: cell["status"] for law, cell in before.items()
    }
    broken = [law for law, cell in found.items() if cell["status"] == "broken"]
    assert broken == ([] if name == "llama" else ["right_padded_prompts"])
    for law in broken:
        assert agrees(found[law]["by_hand"], before[law]["by_hand"])


class Decaying(torch.nn.Module):
    """A recurrence whose state skips padding; or, if it is faulty, goes on through it."""

    def __init__(self, *, faulty: bool):
        super().__init__()
        self.faulty = faulty
        self.inside = torch.nn.Linear(4, 4, dtype=torch.float64)

    def forward(self, x, valid, state=None):
        state = torch.zeros_like(x[:, 0]) if state is None else state
        hidden = []
        for value, real in zip(self.inside(x).unbind(1), valid.unbind(1), strict=True):
            following = 0.5 * state + value * real[:, None]
            state = following if self.faulty else torch.where(real[:, None], following, state)
            hidden.append(state)
        return torch.stack(hidden, 1), state


def decaying(faulty):
    """A subject of the laws, without padding that its forward pass would take from the left."""
    return Subject(
        module=Decaying(faulty=faulty),
        draw=lambda b, n, seed: torch.randn(
            b, n, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
        ),
        call=lambda module, x, valid: module(x, valid)[0],
        causal=True,
        step=lambda module, x, valid, state: module(x, valid, state),
        reorder=lambda state, rows: state[rows],
    )


@pytest.mark.parametrize("faulty", [False, True])
def test_a_state_that_goes_on_through_padding_breaks_the_laws_of_padded_prompts_alone(faulty):
    subject = decaying(faulty)
    broken = []
    for law in (*FORWARD, *CACHE):
        said, size = tried(law.__name__, subject)
        assert said == "kept", law
        if not size < 1e-5:
            broken.append(law.__name__)
    assert broken == (["right_padded_prompts"] if faulty else [])


def test_what_one_dtype_alone_breaks_and_what_is_refused_are_no_faults():
    kept = {"said": "kept", "size": 0.0}
    broken = {"said": "broken", "size": 1.0}
    refused = {"said": "generate refuses it: no", "size": None}
    assert status({"float64": broken, "float32": kept}) == "float64 alone"
    assert status({"float64": broken, "float32": broken}) == "broken"
    assert status({"float64": refused, "float32": refused}) == "generate refuses it"
    assert bool(all_valid(torch.zeros(1, 2, 3)).all())
