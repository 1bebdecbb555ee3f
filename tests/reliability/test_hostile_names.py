"""Names of classes, files and recipes, and answers of models, are shown as text: in terminal, log, table and page."""

import logging
import re
import sys

import numpy as np
import pytest
from pages import Page
from PIL import Image
from reliability.hostile import ask

NAMES = (
    "[red]a[b]:smile:",
    "\x1b[31mred\x1b]0;title\x07",
    "<script>alert(1)<",
    "<img src=x onerror=alert(1)>",
    "two\nlines",
    "\u202eabc",
    "$\\frac{1}$ {{7*7}} {% x %}",
    "'\" onmouseover='alert(1)",
    "a\r\x08\x9b31m",
)
RECIPE = """\
recipe: hostile
data: {{source: {{type: ImageFolder, path: '{path}', test_fraction: 0.5}}, valid_fraction: 0}}
tokenizer: {{type: Patches, patch: 4}}
model:
  objective: Classify
  backbone: {{type: Transformer, dim: 8, depth: 1, num_heads: 2}}
trainer: {{max_steps: 2, accelerator: cpu}}
"""
TEXT = """\
data: {{source: {{type: TextFiles, path: '{path}'}}, window: 16, valid_fraction: 0}}
tokenizer: Characters
model:
  objective: NextToken
  backbone: {{type: Transformer, dim: 8, depth: 1, num_heads: 2, causal: true}}
trainer: {{max_steps: 2, accelerator: cpu, enable_progress_bar: false}}
"""
STEERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """(folder of a run on pictures whose classes have these names, what was shown of its training)."""
    place = tmp_path_factory.mktemp("names")
    generator = np.random.default_rng(0)
    for name in NAMES:
        (place / "data" / name).mkdir(parents=True)
        for number in range(4):
            pixels = generator.integers(0, 256, (8, 8), dtype=np.uint8)
            Image.fromarray(pixels).save(place / "data" / name / f"{number}.png")
    (place / "hostile.yaml").write_text(RECIPE.format(path=place / "data"), encoding="utf-8")
    answer = ask(["fit", str(place / "hostile.yaml"), "--out", str(place / "run")])
    assert answer.code == 0, answer.said
    return place / "run", answer


def test_training_on_hostile_names_shows_them_as_text(run):
    folder, answer = run
    for shown in (answer.printed, answer.said, (folder / "log.txt").read_text(encoding="utf-8")):
        assert not STEERS.search(shown)


def test_a_hostile_name_of_a_recipe_is_refused_as_text(tmp_path):
    text = RECIPE.format(path=tmp_path).replace(
        "recipe: hostile", 'recipe: "[red]x[/blue]<script>alert(1)<\\e[31m"'
    )
    (tmp_path / "hostile.yaml").write_text(text, encoding="utf-8")
    answer = ask(["fit", str(tmp_path / "hostile.yaml"), "--out", str(tmp_path / "run")])
    assert answer.code == 2
    assert not answer.faults
    assert r"[red]x[/blue]<script>alert(1)<\x1b[31m" in answer.said


def test_the_page_of_a_run_on_hostile_names_shows_them_as_text(run):
    folder, _ = run
    for name in ("report.html",):
        text = (folder / name).read_text(encoding="utf-8")
        page = Page(text)
        assert not STEERS.search(text)
        assert not page.open
        assert not {"script", "img", "iframe"} & set(page.tags)
        assert not re.search(r"<[^>]*\son\w+\s*=", text), "an attribute that runs"
        assert all(
            address.startswith(("#", "data:image/png;base64,")) for address in page.addresses
        )
    assert all(
        shown in page_text(folder)
        for shown in ("[red]a[b]:smile:", "<script>alert(1)<", "$\\frac{1}$")
    )


def page_text(folder):
    return Page((folder / "report.html").read_text(encoding="utf-8")).text


def test_predictions_of_hostile_names_are_a_line_each(run, tmp_path):
    folder, _ = run
    files = []
    for name in NAMES:
        files.append(tmp_path / f"{name}.png")
        Image.new("L", (8, 8)).save(files[-1])
    answer = ask(["predict", str(folder), *map(str, files)])
    assert answer.code == 0
    lines = answer.printed.splitlines()
    assert len(lines) == len(NAMES)
    assert not STEERS.search(answer.printed)
    assert r"\x1b[31mred\x1b]0;title\x07.png" in answer.printed
    assert r"two\nlines.png" in answer.printed
    assert all(line.count("\t") == 1 for line in lines)


@pytest.mark.parametrize("name", NAMES)
def test_an_error_that_names_a_hostile_file_is_one_line(run, tmp_path, name):
    folder, _ = run
    (tmp_path / f"{name}.png").write_bytes(b"no picture")
    for words in (
        ["predict", str(folder), str(tmp_path / f"{name}.png")],
        ["predict", str(folder), str(tmp_path / "nothing" / f"{name}.png")],
        ["fit", str(tmp_path / f"{name}.yaml")],
        ["fit", name],
        ["fit", "image/digits", f"--model.{name}", "1"],
        ["fit", "image/digits", "--model.backbone", name],
        ["fit", "image/digits", "--seed", name],
        ["fit", "image/digits", "--data", str(tmp_path / f"{name}.png")],
        ["fit", "image/digits", "--plugin", str(tmp_path / f"{name}.py")],
        ["evaluate", str(tmp_path / name)],
        ["list", name],
        [name],
    ):
        assert not ask(words).faults, words
    answer = ask(["predict", str(folder), "x", f"--{name}"])
    if answer.printed:  # two inputs of which none can be answered: each is an entry with its reason
        assert answer.code == 3
        assert [line.count("\t") for line in answer.printed.splitlines()] == [2, 2]
        assert not STEERS.search(answer.printed)
        answer = answer._replace(printed="")
    assert not answer.faults


def test_a_file_name_that_is_no_utf_8_is_shown_escaped(run, tmp_path):
    if sys.platform == "darwin":
        pytest.skip("the file system takes no such name")
    folder, _ = run
    path = tmp_path / "a\udcff.png"
    Image.new("L", (8, 8)).save(path)
    answer = ask(["predict", str(folder), str(path)])
    assert (answer.code, answer.printed.count("\\udcff.png\t")) == (0, 1)


@pytest.mark.slow
def test_what_a_model_generates_steers_no_terminal(tmp_path):
    (tmp_path / "data.txt").write_text("\x1b[31m\x07\x00\u202e" * 200, encoding="utf-8")
    (tmp_path / "text.yaml").write_text(TEXT.format(path=tmp_path / "data.txt"), encoding="utf-8")
    trained = ask(["fit", str(tmp_path / "text.yaml"), "--out", str(tmp_path / "run")])
    assert trained.code == 0, trained.said
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    for samples in ((), ("--samples", "2")):
        words = [
            "generate",
            str(tmp_path / "run"),
            "--prompt",
            "\x1b[3",
            "--tokens",
            "100",
            *samples,
        ]
        answer = ask(words)
        assert answer.code == 0, answer.said
        assert r"\x1b[3" in answer.printed
        assert answer.printed.count(r"\x07") > 1, "it was to generate some"
        assert not STEERS.search(answer.printed + page)


def test_a_class_folder_whose_name_is_no_utf_8_is_refused(tmp_path):
    for name in ("a\udcff", "b"):
        (tmp_path / "data" / name).mkdir(parents=True)
        for number in range(2):
            Image.new("L", (8, 8)).save(tmp_path / "data" / name / f"{number}.png")
    (tmp_path / "hostile.yaml").write_text(RECIPE.format(path=tmp_path / "data"), encoding="utf-8")
    answer = ask(["fit", str(tmp_path / "hostile.yaml"), "--out", str(tmp_path / "run")])
    assert not answer.faults
    assert r"a class folder whose name is not UTF-8, a\udcff; rename it" in answer.said
    assert not (tmp_path / "run").exists()


def test_a_name_in_the_log_of_a_run_cannot_fake_a_line(tmp_path):
    from seqkit.runs.folder import logging_to

    with logging_to(tmp_path / "log.txt"):
        logging.getLogger("seqkit").warning(
            "%s is passed over", "a\n2026-01-01 seqkit INFO \x1b[31mdone"
        )
    (line,) = (tmp_path / "log.txt").read_text(encoding="utf-8").splitlines()
    assert line.endswith(r"seqkit WARNING a\n2026-01-01 seqkit INFO \x1b[31mdone is passed over")
