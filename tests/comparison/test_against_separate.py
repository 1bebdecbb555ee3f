"""A mixture beside its tasks alone: as many steps, equal data, paired; a killed comparison goes on."""

import pytest

from seqkit.comparison.against_separate import KINDS, against_separate
from seqkit.errors import UsageError
from seqkit.files import read_mapping
from seqkit.runs.folder import CONFIG

WORDS = [
    "--tasks.text",
    "null",
    "--tasks.sound",
    "null",
    "--trainer.max_steps",
    "6",
    "--trainer.log_every_n_steps",
    "1",
]


def compared(out, *words, seeds=1):
    return against_separate("mixture/four", "debug", [*WORDS, *words], seeds=seeds, out=out, kinds=tuple(KINDS))


@pytest.mark.slow
@pytest.mark.usefixtures("here")
def test_each_task_stands_beside_runs_of_its_own(tmp_path):
    found = compared(tmp_path / "out")
    assert list(found) == ["image", "graph"]
    summaries = {path.parent.name: read_mapping(path) for path in (tmp_path / "out" / "runs").glob("*/summary.json")}
    mixture = summaries["mixture-1"]
    for task, results in found.items():
        assert [row["name"] for row in results["candidates"]] == [*KINDS, "mixture"]
        assert results["reference"] == "separate"
        own = read_mapping(tmp_path / "out" / "runs" / "mixture-1" / "tasks" / task / "summary.json")
        steps = {kind: summaries[f"{task}-{kind}-1"]["steps"] for kind in KINDS}
        assert steps == {
            "separate": own["steps"], "small": own["steps"], "long": mixture["steps"], "noise": mixture["steps"]
        }  # fmt: skip
        noise = read_mapping(tmp_path / "out" / "runs" / f"{task}-noise-1" / CONFIG)["tasks"]
        assert {name: one["data"]["noise"] for name, one in noise.items()} == {
            name: None if name == task else True for name in found
        }
        assert own["steps"] == 3
        small, one = (summaries[f"{task}-{kind}-1"]["num_parameters"] for kind in ("small", "separate"))
        assert abs(small - mixture["num_parameters"] / 2) < abs(one - mixture["num_parameters"] / 2)
        assert (
            len(
                {summaries[f"{task}-{kind}-1"]["data_sha256"]["test"] for kind in KINDS if kind != "noise"}
                | {own["data_sha256"]["test"]}
            )
            == 1
        )
        assert (tmp_path / "out" / task / "report.html").is_file()
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "runs").rglob("model.safetensors")}
    again = compared(tmp_path / "out")  # nothing is trained again
    assert {path: path.stat().st_mtime_ns for path in times} == times
    assert {task: one["differences"] for task, one in again.items()} == {
        t: one["differences"] for t, one in found.items()
    }
    for words in (("--optimizer.lr", "0.5"), ("--tasks.image.lr_scale", "0.1")):
        with pytest.raises(UsageError, match="another configuration"):
            compared(tmp_path / "out", *words)


def test_a_recipe_of_one_task_or_without_steps_is_refused(tmp_path):
    with pytest.raises(UsageError, match="one task"):
        against_separate("image/digits", "debug", [], seeds=1, out=tmp_path / "out")
    with pytest.raises(UsageError, match="max_steps"):
        compared(tmp_path / "out", "--trainer.max_steps", "-1", "--trainer.max_epochs", "1")
