"""README and docs, as a reader would use them: every page is followed from top to bottom in an empty folder.

* ```python```: executed, one namespace a page; with `>>>`, what is printed is compared.
* A python or yaml block whose first line is `# name.ext` is saved under that name; such Python runs when imported.
* ```console```: `$ seqkit …` runs here; the lines below it must be whole lines of what it prints, folded or not, and
  "…" in them stands for anything. `fit` takes the recipe's preset `debug`; it trains where `--out` names the run or
  something is shown below it, elsewhere only its keys are checked. Where nothing is shown, it takes two steps and
  writes no report.
  Of a comparison of a recipe, which takes minutes, the candidates' keys are checked.

c channels · t samples
"""

import json
import logging
import re
import shlex
import shutil
import sys
import tomllib
from collections.abc import Iterator
from contextlib import nullcontext
from doctest import ELLIPSIS, NORMALIZE_WHITESPACE
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import yaml
from matplotlib.figure import Figure
from PIL import Image
from sybil import Document, Example
from sybil.example import SybilFailure
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser

from seqkit.cli.main import main
from seqkit.cli.parser import is_recipe, parser
from seqkit.config import complete, find_recipe, recipe_names
from seqkit.errors import DataError, UsageError

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "recipes" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
AT_HAND = {
    "TextFiles",
    "TextFolder",
    "ImageFolder",
    "VideoFolder",
    "AudioFolder",
    "FileFolder",
    "Table",
    "Digits",
    "Karate",
    "Solubility",
    "FreeSolv",
}
"""Sources of ours that are read in a second; a `fit` on another is only checked, not run. A page's own are run."""

SLOW = {
    "README.md",
    "docs/mixers.md",
    "docs/blocks.md",
    "docs/compare.md",
    "docs/concepts.md",
    "docs/data/forecast.md",
    "docs/data/images.md",
    "docs/data/sound.md",
    "docs/data/splits.md",
    "docs/data/tables.md",
    "docs/data/text.md",
    "docs/data/your-file.md",
    "docs/devices.md",
    "docs/doctor.md",
    "docs/export.md",
    "docs/metrics.md",
    "docs/multimodal.md",
    "docs/predict.md",
    "docs/presets.md",
    "docs/pretrained.md",
    "docs/training.md",
    "docs/tutorials/audio.md",
    "docs/tutorials/graph.md",
    "docs/tutorials/image.md",
    "docs/tutorials/text.md",
    "docs/tutorials/translation.md",
    "docs/viewer.md",
    "docs/write-a-backbone.md",
    "docs/write-a-tokenizer.md",
    "recipes/README.md",
}
"""Pages that take more than 0.9 s of processor time."""


def _marked(page: Path) -> Any:
    name = page.relative_to(ROOT).as_posix()
    return pytest.param(page, id=name, marks=[pytest.mark.slow] if name in SLOW else [])


# what Lightning says about our loaders and about settings that short examples leave alone
pytestmark = [
    pytest.mark.filterwarnings(f"ignore:.*{advice}")
    for advice in (
        r"isinstance\(treespec, LeafSpec\)",
        "does not have many workers",
        "have no `val_dataloader`",
        "smaller than the logging interval",
        "exists and is not empty",
    )
]


@pytest.fixture(scope="module")
def own_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own-files")
    _own_files(folder)
    return folder


@pytest.fixture
def reader(own_files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder to work in, with a reader's own files; pictures are empty, and what pages register is forgotten."""
    shutil.copytree(own_files, tmp_path, dirs_exist_ok=True)
    savefig = Figure.savefig

    def save(figure: Figure, file: Any, *args: Any, **settings: Any) -> None:
        if isinstance(file, str | Path):
            Image.new("L", (1, 1)).save(file, "PNG")
        else:
            savefig(figure, file, *args, **settings)

    monkeypatch.setattr(Figure, "savefig", save)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if (tmp_path / f"{name}.py").exists():
            del sys.modules[name]


@pytest.mark.parametrize("page", [_marked(page) for page in PAGES])
def test_a_page_does_what_it_says(
    page: Path, reader: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = re.findall(
        r"^ *```(?:python|console|yaml)\n(.*?)^ *```$",
        page.read_text(encoding="utf-8"),
        re.MULTILINE | re.DOTALL,
    )
    assert _follow(page, capsys) == sum(
        len(re.findall("^ *>>> ", block, re.M)) or 1 for block in blocks
    )


def test_links_lead_to_files_that_are_there() -> None:
    for page in PAGES:
        links = re.findall(
            r"\]\(([^)#\s]+)[^)]*\)|src=\"([^\"]+)\"", page.read_text(encoding="utf-8")
        )
        inside = [link for pair in links for link in pair if link and "://" not in link]
        assert not [link for link in inside if not (page.parent / link).exists()], page


def test_lists_of_the_site_are_the_lists_of_the_page() -> None:
    """The site nests lists by four spaces, and takes a folded line that begins with a number and a dot for an item."""
    for page in PAGES:
        text = re.sub(
            r"^( *)```.*?^\1```$",
            "",
            page.read_text(encoding="utf-8"),
            flags=re.MULTILINE | re.DOTALL,
        )
        assert not re.findall(r"^ {1,3}[*-] .*", text, re.MULTILINE), page
        assert not re.findall(r"^(?! *\d+\. )(?=.*\S).*\n( *\d+\. .*)", text, re.MULTILINE), page


def test_every_recipe_stands_in_the_table_of_claims() -> None:
    table = (ROOT / "recipes" / "README.md").read_text(encoding="utf-8")
    assert not [name for name in recipe_names() if f"`{name}`" not in table]


@pytest.mark.parametrize(
    "page",
    [
        "```python\n>>> 1 + 1\n3\n```",
        "```python\nfrom seqkit import Modle\n```",
        "```yaml\njust words\n```",
        "```console\n$ seqkit fit image/digits --model.bakbone LSTM\n```",
        "```console\n$ seqkit compare image/digits --backbones LSTM,GRRU\n```",
        "```console\n$ seqkit fit image/digits --print_config\nbatch_sighs: 64\n```",
        "```console\n$ seqkit fit graph/karate --model.backbone GRU --out runs/club\n```",
        "```console\n$ seqkit list gpt3\nseqkit list: there is no preset\n```",
        "```console\n$ seqkit list gpt3\nseqkit list: there is nothing … gpt4?\n```",
        "```console\n$ make coffee\n```",
        '```console\n$ pip install -e ".[tea]"\n```',
        "```console\n$ rm -rf .\n```",
    ],
)
def test_a_page_that_is_wrong_is_noticed(
    page: str, reader: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("page.md").write_text(f"{page}\n", encoding="utf-8")
    with pytest.raises((AssertionError, ImportError, SybilFailure)):
        _follow(Path("page.md"), capsys)


def _follow(page: Path, capsys: pytest.CaptureFixture[str]) -> int:
    """Does what a page says; returns its number of code blocks, or of prompts in them. Raises at the first wrong."""
    document = Document.parse(
        str(page),
        PythonCodeBlockParser(doctest_optionflags=NORMALIZE_WHITESPACE | ELLIPSIS),
        CodeBlockParser("console", lambda example: _console(example, capsys)),
        CodeBlockParser("yaml", _is_a_mapping),
    )
    examples = list(document.examples())
    for example in examples:
        name = re.match(r"# ([\w-]+\.(?:py|yaml))\n", str(example.parsed))
        if name:
            Path(name[1]).write_text(example.parsed, encoding="utf-8")
        if not name or name[1].endswith(".yaml"):
            example.evaluate()
    return len(examples)


# ── commands ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _console(example: Example, capsys: pytest.CaptureFixture[str]) -> None:
    for command, shown in _commands(example.parsed):
        words = shlex.split(command, comments=True)
        if words[:3] == ["python", "-m", "seqkit"]:
            words[:3] = ["seqkit"]
        # launchers of several processes: the command that each of them runs
        if words[0] in ("torchrun", "srun"):
            words = words[words.index("seqkit") :]
        capsys.readouterr()
        if words[0] == "seqkit":
            code = _seqkit(words[1:], is_shown=bool(shown))
            said = capsys.readouterr()
            printed = said.out + said.err
            refused = any(re.match(r"seqkit( \w+)?: ", line) for line in shown)
            faulty = (2, 3) if words[1] != "check" else (1, 2, 3)  # 1: a law is broken
            assert (code in faulty) == refused, (
                f"{command}\ngave exit code {code} and printed\n{printed}"
            )
            assert _are_printed(shown, printed), (
                f"{command}\nprinted\n{printed}\nand not\n" + "\n".join(shown)
            )
        else:
            _other(words)


def _commands(block: str) -> Iterator[tuple[str, list[str]]]:
    """(command, lines shown below it)."""
    for part in re.split(r"^\$ ", block.replace("\\\n", " "), flags=re.MULTILINE)[1:]:
        command, *shown = part.splitlines()
        yield command, [line for line in shown if line.strip()]


def _are_printed(shown: list[str], printed: str) -> bool:
    """Whether each line is a whole line of what was printed, alone or with those that follow it; … is anything."""
    lines = [" ".join(line.split()) for line in printed.splitlines()]
    first = [" ".join(" ".join(shown[:n]).split()) for n in range(1, len(shown) + 1)]
    patterns = [".*".join(map(re.escape, text.split("…"))) for text in first]
    whole = [
        n
        for n, pattern in enumerate(patterns, 1)
        if any(re.fullmatch(pattern, line) for line in lines)
    ]
    return not shown or any(_are_printed(shown[n:], printed) for n in whole)


def _seqkit(words: list[str], *, is_shown: bool) -> int | None:
    report = nullcontext()
    # no runs are here: the words are checked
    if words[0] == "scale" or (words[0] == "fit" and "--resume" in words):
        parser().parse_known_args(words)
        return 0
    if words[0] == "fit" and not {"--print_config", "--keys"} & set(words):
        named = (word for word in words[1:] if word.endswith(".yaml") or is_recipe(word))
        recipe = next(named, None)
        words = [*words, "--trainer.enable_progress_bar", "false"]
        words += _debug(recipe, words)
        if not (is_shown or "--out" in words) or not _at_hand(words):
            words.append("--print_config")
        elif not is_shown:
            words += ["--trainer.max_steps", "2", "--classical", "off"]
            report = patch("seqkit.report.page.write_report")
    elif words[0] == "compare" and not Path(words[1]).is_dir():
        return _checked(words)
    elif words[0] == "inspect":
        words = [*words, *_debug(words[1], words)]
    log = logging.getLogger("seqkit")
    # what prints warnings where no test looks at them
    log.addHandler(logging.lastResort or logging.NullHandler())
    try:
        with report:
            return main(words)
    except SystemExit as done:  # --help, --version and argparse's own refusals
        return int(done.code or 0)
    finally:
        log.handlers.clear()


def _debug(recipe: str | None, words: list[str]) -> list[str]:
    """The words for the preset `debug`, where the recipe has it and no preset is named. recipe: None: a file's own."""
    if recipe is None:
        return [] if "--preset" in words else ["--preset", "debug"]
    # a mixture's task
    whole = recipe.rpartition("/")[0] if recipe.rpartition("/")[0] in recipe_names() else recipe
    presets = yaml.safe_load(find_recipe(whole)[1].read_text(encoding="utf-8")).get("presets") or {}
    return ["--preset", "debug"] if "debug" in presets and "--preset" not in words else []


def _checked(words: list[str]) -> int:
    """The exit code that the candidates' configurations give."""
    from seqkit.cli.compare import _asked, _names, _settings
    from seqkit.comparison.candidates import draft_of
    from seqkit.comparison.screen import SCREEN, screen_settings
    from seqkit.comparison.settings import Settings

    args, args.overrides = (parsed := parser().parse_known_args(words))[0], parsed[1]
    try:
        if words[:2] == ["compare", SCREEN]:
            found = list(screen_settings(_names(args), **_asked(args)).values())
        elif words[0] == "compare":
            found = [_settings(args)]
        else:
            sizes = {"width": args.sizes.split(",")}
            found = [
                Settings(recipe=args.recipe, overrides=args.overrides, vary=sizes, match="none")
            ]
        for settings in found:
            for variant in settings.variants():
                assert draft_of(settings, variant).config
    except UsageError as error:
        print(error)
        return 2
    return 0


def _at_hand(words: list[str]) -> bool:
    from seqkit.cli.parser import parser
    from seqkit.registry import components
    from seqkit.registry.plugins import import_plugins

    args, overrides = parser().parse_known_args(words)
    import_plugins(args.plugin)
    try:
        config = complete(args.recipe, args.preset, overrides)
    except (DataError, UsageError):
        return True  # let the command itself say it
    component = components("data_source")[config["data"]["source"]["type"]]
    module, _, name = component.path.partition(":")
    return name in AT_HAND or not module.startswith("seqkit.")


def _is_a_mapping(example: Example) -> None:
    assert isinstance(yaml.safe_load(example.parsed), dict)


def _other(words: list[str]) -> None:
    if words[0] == "make":
        makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
        assert all(f"\n{target}:" in makefile for target in words[1:]), (
            f"the Makefile has no target {words[1:]}"
        )
    elif words[:2] == ["pip", "install"]:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        extras = set(re.findall(r"[\w-]+", "".join(re.findall(r"\[(.*?)\]", " ".join(words)))))
        assert extras <= set(project["optional-dependencies"]), f"there is no extra {extras}"
    else:
        assert words[0] in ("source", "open"), f"nothing here can check the command {words}"


def _own_files(folder: Path) -> None:
    """The reader's own files: texts, tables, photos/, recordings/ and clips/ by class, calls/ with transcripts."""
    import soundfile

    rng = np.random.default_rng(0)
    (folder / "notes.txt").write_text(
        "The cat sat on the mat. The dog lay on the log.\n" * 40, encoding="utf-8"
    )
    for i in range(24):  # corpus/ and notes/
        text = folder / ("corpus", "notes")[i % 2] / f"{i}.txt"
        text.parent.mkdir(exist_ok=True)
        text.write_text(
            " ".join("".join(map(chr, rng.integers(97, 123, 5))) for _ in range(200)),
            encoding="utf-8",
        )
    messages = [f'{{"text": "See you at {"noon, " * (i % 5)}{i}."}}\n' for i in range(30)]
    (folder / "messages.jsonl").write_text("".join(messages), encoding="utf-8")
    for i in range(12):
        photo = folder / "photos" / ("cat", "dog")[i % 2] / f"{i}.png"
        photo.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (29, 31, 3), dtype=np.uint8)).save(photo)
        recording = folder / "recordings" / ("yes", "no")[i % 2] / f"{i}.wav"
        recording.parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(recording, 0.1 * rng.standard_normal(3001), 16_000)
        (folder / "calls").mkdir(exist_ok=True)
        soundfile.write(folder / "calls" / f"{i}.wav", 0.1 * rng.standard_normal(12_001), 8_000)
        clip = folder / "clips" / ("wave", "hop")[i % 2] / f"{i}.gif"
        clip.parent.mkdir(parents=True, exist_ok=True)
        frames = [Image.fromarray(rng.integers(0, 256, (29, 31), dtype=np.uint8)) for _ in range(5)]
        frames[0].save(clip, save_all=True, append_images=frames[1:])
    rows = [f"calls/{i}.wav,{'call it ' * (i % 3)}a day" for i in range(12)]
    (folder / "transcripts.csv").write_text(
        "\n".join(["file,transcript", *rows]) + "\n", encoding="utf-8"
    )
    rows = [f"{'C' * (i % 7 + 1)}O,{-0.4 * (i % 7):.1f}" for i in range(20)]
    (folder / "molecules.csv").write_text(
        "\n".join(["smiles,target", *rows]) + "\n", encoding="utf-8"
    )
    hours = np.column_stack([np.arange(1000), rng.standard_normal((1000, 7)).cumsum(axis=0)])
    header = "date,HUFL,HULL,MUFL,MULL,LUFL,LULL,OT"
    np.savetxt(folder / "ETTh1.csv", hours, delimiter=",", header=header, comments="")
    _own_tables(folder)
    _own_bert(folder / "minilm")


def _own_bert(folder: Path) -> None:
    """minilm/: a tiny BERT as transformers saves one."""
    from safetensors.numpy import save_file
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = [
        "[UNK]",
        "a",
        "an",
        "fine",
        "awful",
        "film",
        ",",
        "seen",
        "on",
        "day",
        *map(str, range(40)),
    ]
    folder.mkdir()
    tokenizer = Tokenizer(
        models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    sizes = {
        "hidden_size": 8,
        "num_attention_heads": 2,
        "intermediate_size": 12,
        "max_position_embeddings": 64,
    }
    config = {"model_type": "bert", "vocab_size": len(words), "num_hidden_layers": 1, **sizes}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    shapes = {f"{name}.weight": (8, 8) for name in ("attention.output.dense", "pooler.dense")}
    shapes |= {f"attention.self.{name}.weight": (8, 8) for name in ("query", "key", "value")}
    shapes |= {"intermediate.dense.weight": (12, 8), "output.dense.weight": (8, 12)}
    shapes |= {
        f"{name}.LayerNorm.weight": (8,) for name in ("attention.output", "output", "embeddings")
    }
    shapes |= {name.replace("weight", "bias"): (shape[0],) for name, shape in shapes.items()}
    outside = ("pooler", "embeddings")
    shapes = {
        name if name.startswith(outside) else f"encoder.layer.0.{name}": x
        for name, x in shapes.items()
    }
    for name, size in (("word", len(words)), ("position", 64), ("token_type", 2)):
        shapes[f"embeddings.{name}_embeddings.weight"] = (size, 8)
    rng = np.random.default_rng(0)
    weights = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    save_file(weights, folder / "model.safetensors")


def _own_tables(folder: Path) -> None:
    """reviews.csv, train.jsonl and test.jsonl, pairs.tsv, tagged.jsonl, photos.csv, products.csv, new.csv, sales.csv,
    tox.csv, letters/, src/, comments.csv, chat.jsonl, heartbeats.jsonl, steps.csv, dated.csv."""
    texts = [f"{('a fine', 'an awful')[i % 2]} film, seen on day {i}" for i in range(40)]
    rows = [f'{i},"{text}",{("good", "bad")[i % 2]}' for i, text in enumerate(texts)]
    (folder / "reviews.csv").write_text(
        "\n".join(["id,review,verdict", *rows]) + "\n", encoding="utf-8"
    )
    lines = [
        f'{{"body": "{text}", "stars": {(5, 1)[i % 2]}, "site": "a"}}\n'
        for i, text in enumerate(texts)
    ]
    (folder / "train.jsonl").write_text("".join(lines[:30]), encoding="utf-8")
    (folder / "test.jsonl").write_text("".join(lines[30:]), encoding="utf-8")
    pairs = [f"day {i}\tTag {i}" for i in range(40)]
    (folder / "pairs.tsv").write_text(
        "\n".join(["english\tgerman", *pairs]) + "\n", encoding="utf-8"
    )
    named = ('"Bob"], "tags": ["PER", "O", "PER"]', '"Paris"], "tags": ["PER", "O", "LOC"]')
    sentences = [f'{{"tokens": ["Anna", "saw", {named[i % 2]}}}\n' for i in range(40)]
    (folder / "tagged.jsonl").write_text("".join(sentences), encoding="utf-8")
    photos = [f"photos/{('cat', 'dog')[i % 2]}/{i}.png,{('cat', 'dog')[i % 2]}" for i in range(12)]
    (folder / "photos.csv").write_text("\n".join(["file,animal", *photos]) + "\n", encoding="utf-8")
    products = [
        f"{i},{'thing ' * (i % 4 + 1)}{i},{photos[i % 12].partition(',')[0]},{i / 4},{'SML'[i % 3]}"
        for i in range(40)
    ]
    rows = [f"{row},{('keep', 'drop')[i % 2]}" for i, row in enumerate(products)]
    (folder / "products.csv").write_text(
        "\n".join(["item,title,photo,price,size,verdict", *rows]) + "\n", encoding="utf-8"
    )
    sales = [f"{20 + i};1.2{i:02},{i % 10};{('Oslo', 'Rome')[i % 2]}" for i in range(40)]
    (folder / "sales.csv").write_text(
        "\n".join(["age;revenue;city", *sales]) + "\n", encoding="utf-8"
    )
    (folder / "new.csv").write_text("title,size\na new thing,S\n,M\n", encoding="utf-8")
    for i in range(12):
        letter = folder / "letters" / ("bank", "friend")[i % 2] / f"{i}.txt"
        letter.parent.mkdir(parents=True, exist_ok=True)
        letter.write_text(f"Dear {('Sir', 'Ann')[i % 2]}, this is letter {i}.\n", encoding="utf-8")
    (folder / "src").mkdir()
    for name in ("tree", "list", "map"):
        code = "".join(
            f"def {verb}_{name}(x):\n    return x.{verb}()\n" for verb in ("open", "read", "sort")
        )
        (folder / "src" / f"{name}.py").write_text(code, encoding="utf-8")
    comments = [
        f"comment number {i},{('yes', 'no')[i % 2]},{('no', 'yes')[i // 2 % 2]}" for i in range(40)
    ]
    (folder / "comments.csv").write_text(
        "\n".join(["comment,rude,spam", *comments]) + "\n", encoding="utf-8"
    )
    turns = [
        [{"role": "user", "content": f"what is {i}?"}, {"role": "assistant", "content": "a number"}]
        for i in range(20)
    ]
    (folder / "chat.jsonl").write_text(
        "".join(json.dumps({"messages": one}) + "\n" for one in turns), encoding="utf-8"
    )
    beats = [
        {"beats": [i % 2 + j / 7 for j in range(5 + i % 3)], "label": "ab"[i % 2]}
        for i in range(20)
    ]
    (folder / "heartbeats.jsonl").write_text(
        "".join(json.dumps(one) + "\n" for one in beats), encoding="utf-8"
    )
    steps = [",".join([*(f"{i * j / 7:.3f}" for j in range(60)), "ab"[i % 2]]) for i in range(20)]
    head = ",".join([*(f"s{j:02}" for j in range(60)), "rhythm"])
    (folder / "steps.csv").write_text("\n".join([head, *steps]) + "\n", encoding="utf-8")
    dated = [
        f"2025-{i % 12 + 1:02}-03,{text},{('good', 'bad')[i % 2]}" for i, text in enumerate(texts)
    ]
    dated = [row.replace(" film, ", " film ") for row in dated]
    (folder / "dated.csv").write_text(
        "\n".join(["date,review,verdict", *dated]) + "\n", encoding="utf-8"
    )
    molecules = [
        f"{'C' * (i % 9 + 1)}{'ON'[i % 2]},{('yes', 'no')[i % 2]},{0.5 * i}" for i in range(30)
    ]
    (folder / "tox.csv").write_text(
        "\n".join(["smiles,toxic,dose", *molecules]) + "\n", encoding="utf-8"
    )
