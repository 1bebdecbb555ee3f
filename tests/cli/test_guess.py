"""`seqkit fit FILE`: the recipe that fits is said with the whole command, and run."""

import io
import json
import os
import re
import shlex
import wave
from argparse import Namespace

import numpy as np
import pytest
from PIL import Image
from tiers import one_in

from seqkit.cli.guess import take_data_as_recipe
from seqkit.cli.main import main
from seqkit.cli.parser import parser
from seqkit.config import build, complete
from seqkit.errors import DataError, UsageError
from seqkit.runs.prepare import prepare


def photos(folder):
    for name in ("cat", "dog"):
        (folder / name).mkdir(parents=True)
        for i in range(2):
            Image.fromarray(np.full((8, 8, 3), i, np.uint8)).save(folder / name / f"{i}.png")


def texts(*names):
    def write(folder):
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text("to be or not to be " * 50, encoding="utf-8")

    return write


def recordings(folder):
    for name in ("yes", "no"):
        (folder / name).mkdir(parents=True)
        recording(folder / name / "0.wav")


def recording(path):
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, 8000, 0, "NONE", ""))
        file.writeframes(bytes(4000))


def transcripts(path):
    for i in range(40):
        recording(path.parent / f"{i}.wav")
    table("file,transcript", "{i}.wav,one {i} two")(path)


def table(head, row):
    def write(path):
        rows = [
            row.format(
                i=i,
                n=i % 4,
                c="C" * (i % 9 + 1),
                yes=("no", "yes")[i % 2],
                bit=i % 2,
                rare=i % 3 // 2,
            )
            for i in range(40)
        ]
        path.write_text("\n".join([head, *rows]), encoding="utf-8")

    return write


def objects(make):
    return lambda path: path.write_text(
        "\n".join(json.dumps(make(i)) for i in range(40)), encoding="utf-8"
    )


def chat(i):
    return {
        "messages": [
            {"role": "user", "content": f"say {i}"},
            {"role": "assistant", "content": f"I say {i}"},
        ]
    }


TEXT = "it took {i} days and longer"
REGRESS = ["--model.objective", "Regress"]
CLASSES = ["--model.objective", "{type: Classify, pool: mean}"]
SPELLED = ["--model.objective.target", "Characters", "--tokenizer.stride", "2"]
CASES = {
    "notes.txt": (lambda path: path.write_text("to be or not to be " * 50, encoding="utf-8"), "text/char-lm", []),
    "chapters": (texts("1.txt", "2.txt"), "text/char-lm", []),
    "my photos": (photos, "image/classify", []),
    "recordings": (recordings, "audio/classify", []),
    "edges.csv": (table("source,target", "{n},{i}"), "graph/nodes", []),
    "solubility.csv": (table("smiles,logS", "{c},{i}.5"), "graph/molecules", []),
    "toxic.csv": (table("smiles,toxic", "{c},{yes}"), "graph/molecules", CLASSES),
    "reviews.csv": (table("text,label", TEXT + ",{yes}"), "text/classify", []),
    "ratings.csv": (table("text,score", TEXT + ",{i}.5"), "text/classify", REGRESS),
    "stars.csv": (table("text,label", TEXT + ",{n}"), "text/classify", []),
    "pairs.tsv": (table("source\ttarget", "one {i} two\tzwei {i} eins"), "text/translate", []),
    "spoken.csv": (transcripts, "audio/ctc-digits", SPELLED),
    "tags.jsonl": (objects(lambda i: {"tokens": ["a", "cat"], "tags": ["D", "N"]}), "text/tag", []),
    "chat.jsonl": (objects(chat), "text/char-lm", []),
    "beats.jsonl": (objects(lambda i: {"beats": [i % 7, 1, 2.5], "label": "ab"[i % 2]}), "series/classify", []),
    "heights.jsonl": (objects(lambda i: {"beats": [i % 7, 1, 2.5], "height": i / 3}), "series/classify", REGRESS),
    "patients.csv": (table("age,crp,home,readmitted", "{i}.0,7.25{i},{n},{yes}"), "multimodal/table", []),
    "sizes.csv": (table("size,price", "{i}.5,{i}.75"), "multimodal/table", REGRESS),
    "words.csv": (table("feed,weight", "f{n},{i}.5"), "multimodal/table", REGRESS),
    "notes.csv": (table("note,crp,verdict", TEXT + ",7.{i},{yes}"), "multimodal/table", []),
}  # fmt: skip


def guessed(path, *words, command="fit", preset="debug"):
    typed = [command, str(path), *(["--preset", preset] if preset else []), *words]
    args, args.overrides = parser().parse_known_args(typed)
    args.words = typed
    take_data_as_recipe(args)
    return args


@pytest.mark.parametrize("name", CASES)
def test_the_recipe_that_fits_is_said_with_the_whole_command(tmp_path, monkeypatch, capsys, name):
    write, recipe, words = CASES[name]
    monkeypatch.chdir(tmp_path)
    write(tmp_path / name)
    args = guessed(name, "--seed=3")
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    command = shlex.split(said.partition("this runs: ")[2])
    given = ["--preset", "debug", "--seed=3"]
    assert command == ["seqkit", "fit", recipe, "--data", name, *words, *given]
    again, overrides = parser().parse_known_args(command[1:])
    config = complete(recipe, "debug", args.overrides)
    typed = complete(again.recipe, again.preset, overrides)
    assert config["recipe"] == recipe
    assert [config[key] for key in ("tokenizer", "model")] == [
        typed[key] for key in ("tokenizer", "model")
    ]
    if config["data"]["source"]["type"] == "Table":
        ours, theirs = (build(one).data["source"].splits() for one in (config, typed))
        assert str(ours.train[0].raw) == str(theirs.train[0].raw)  # recordings are tensors
        assert [ours.rule, ours.names] == [theirs.rule, theirs.names]
        assert type(ours.train[0].label) is type(theirs.train[0].label)


@pytest.mark.parametrize(
    ("words", "preset"),
    [([], "ngrams"), (["--model.objective=Regress"], "ngrams"), (["--model.backbone=GRU"], None)],
)
def test_texts_get_one_preset_however_many_they_are_and_the_line_says_the_other_way(
    tmp_path, monkeypatch, capsys, words, preset
):
    monkeypatch.chdir(tmp_path)
    for num_rows in (40, 1_999, 2_000, 4_000):
        lines = [f"it took {i} days,{i % 2}" for i in range(num_rows)]
        (tmp_path / "own.csv").write_text("\n".join(["text,label", *lines]), encoding="utf-8")
        args = guessed("own.csv", *words, preset=None)
        assert args.preset == preset
        said = capsys.readouterr().err
        assert ("--preset ngrams" in said) == (preset is not None)
        if preset:
            complete(args.recipe, args.preset, args.overrides)
            _, _, recipe, *rest = re.search(r"preset out: (seqkit fit [^)]*)\)", said)[1].split()
            assert complete(recipe, None, rest)["model"]["backbone"]["type"] == "TCN"


def test_several_numbers_after_a_series_are_a_forecast(tmp_path, monkeypatch):
    objects(lambda i: {"past": [i % 7, 1, 2.5], "h1": i / 3, "h2": i / 7})(
        tmp_path / "windows.jsonl"
    )
    monkeypatch.chdir(tmp_path)
    args = guessed("windows.jsonl", "--data.target=[h1, h2]")
    assert args.recipe == "series/classify"
    assert build(complete(args.recipe, "debug", args.overrides)).model["objective"].forecast
    found = complete(args.recipe, None, args.overrides)
    preset = complete(args.recipe, "forecast", args.overrides[:1])
    for section in ("optimizer", "tokenizer", "model"):
        assert found[section] == preset[section]


def test_one_number_against_another_names_the_command_of_forecasts(tmp_path, monkeypatch, capsys):
    table("year,spots", "{i}.5,{i}.75")(tmp_path / "sun.csv")
    objects(lambda i: {"past": [i % 7, 1, 2.5], "h1": i / 3, "h2": i / 7})(tmp_path / "w.jsonl")
    monkeypatch.chdir(tmp_path)
    guessed("sun.csv")
    said = capsys.readouterr().err
    command = re.search(r"next values: (seqkit fit [^)]*)\)", said)[1]
    _, _, recipe, _, preset = command.split()
    prepared = prepare(complete(recipe, preset, ["--data=w.jsonl", "--data.target=[h1, h2]"]))
    assert prepared.data.objective.forecast


def visits(path):
    days = [f"{1 + i % 28:02}.01.20{10 + i % 9}" for i in range(38)] + ["17.01.2023", "in May"]
    ages = [f"{20 + i}" for i in range(39)] + ["approx. 60"]
    path.write_text("\n".join(["visit,age,clinic,verdict", *(
        f"{day},{age},{'ab'[i % 2]},{'pqr'[i % 3]}" for i, (day, age) in enumerate(zip(days, ages))
    )]))  # fmt: skip


ADVISED = {
    **{name: CASES[name][0] for name in (
        "solubility.csv", "toxic.csv", "reviews.csv", "ratings.csv", "stars.csv", "pairs.tsv", "chat.jsonl",
        "heights.jsonl", "patients.csv", "sizes.csv", "words.csv", "notes.csv",
    )},
    "grades.csv": table("text,grade", TEXT + ",{n}"),
    "assays.csv": table("mol_id,smiles,ar,er,p53", "M{i},{c},{bit},{rare},{bit}"),
    "comments.csv": table("text,rude,spam", TEXT + ",{yes},{bit}"),
    "survival.csv": table("age,alone,adult,survived", "{i}.5,{bit},{rare},{bit}"),
    "counted.csv": table("nr,site,kind,size,verdict", "{i}0,here,{n},{i}.5,{yes}"),
    "visits.csv": visits,
}  # fmt: skip


@pytest.mark.parametrize("name", one_in(2, ADVISED))
def test_what_a_line_advises_runs_as_it_is_printed(tmp_path, monkeypatch, caplog, name):
    """With the file and with the recipe that is printed for it."""
    ADVISED[name](tmp_path / name)
    monkeypatch.chdir(tmp_path)
    args = guessed(name)
    prepare(complete(args.recipe, "debug", args.overrides))
    advised = {way for line in caplog.messages for way in re.findall(r"to [^:]*: (--[^;)]*)", line)}
    assert advised or name in (
        "pairs.tsv",
        "chat.jsonl",
        "solubility.csv",
        "toxic.csv",
        "heights.jsonl",
    )
    assert not re.search(r"\b(KIND|NAME)\b", caplog.text)
    for way in advised:
        for door in (args, guessed(name, *shlex.split(way))):
            words = [*door.overrides, *shlex.split(way)] if door is args else door.overrides
            prepare(complete(door.recipe, "debug", words))


@pytest.mark.parametrize(
    ("name", "recipe", "words", "said"),
    [
        ("assays.csv", "graph/molecules", CLASSES, "ar, er hold yes and no, too, and are not used"),
        ("comments.csv", "text/classify", [], "rude hold yes and no, too, and are not used"),
        (
            "survival.csv",
            "multimodal/table",
            [],
            "alone, adult hold yes and no, too, and are inputs",
        ),
    ],
)
def test_columns_of_yes_and_no_beside_such_a_target_are_named(
    tmp_path, monkeypatch, caplog, name, recipe, words, said
):
    ADVISED[name](tmp_path / name)
    monkeypatch.chdir(tmp_path)
    args = guessed(name)
    assert args.recipe == recipe
    assert [part for word in args.overrides[1:] for part in word.split("=", 1)] == words
    prepare(complete(args.recipe, "debug", args.overrides))
    assert said in caplog.text
    assert guessed(name, "--model.objective=MultiLabel").recipe == recipe


def test_every_door_says_what_else_the_target_may_be(tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    for name, words, said in (
        ("assays.csv", ["graph/molecules"], "(numbers) (its cells are classes; "),
        (
            "assays.csv",
            ["graph/molecules", "--data.target=ar"],
            "(numbers) (its cells are classes; ",
        ),
        (
            "grades.csv",
            ["text/classify"],
            "(classes) (its cells are numbers); to change: --model.objective Regress",
        ),
        (
            "grades.csv",
            [],
            "(numbers); to change: --model.objective '{type: Classify, pool: mean}'",
        ),
        ("solubility.csv", ["graph/molecules"], "(numbers)"),
    ):
        ADVISED[name](tmp_path / name)
        caplog.clear()
        recipe, *rest = words or [None]
        args = (
            guessed(name)
            if recipe is None
            else Namespace(recipe=recipe, overrides=[f"--data={name}", *rest])
        )
        prepare(complete(args.recipe, "debug", args.overrides))
        assert said in caplog.text
        assert ("its cells" in caplog.text) == ("its cells" in said), "a control"


def test_what_is_said_of_columns_decides_and_is_given_once(tmp_path, monkeypatch, capsys, caplog):
    CASES["notes.csv"][0](tmp_path / "notes.csv")
    monkeypatch.chdir(tmp_path)
    given = [
        "--data.columns",
        "{crp: unused}",
        "--data.source.target=verdict",
        "--data.skip_bad",
        "2",
    ]
    args = guessed("notes.csv", *given)
    assert args.recipe == "text/classify"
    assert shlex.join(given) in capsys.readouterr().err
    assert not caplog.records, "the recipe says the columns when it reads them"
    table = build(complete(args.recipe, "debug", args.overrides)).data["source"]
    assert [type(sample.raw) for sample in table.splits().train[:2]] == [str, str]
    assert (
        "notes.csv: text: 'note', input; to change: --data.columns '{note: category}'"
        in caplog.messages
    )
    assert (
        guessed("notes.csv", "--data.input", "note", "--data.target", "crp").recipe
        == "text/classify"
    )
    (tmp_path / "bare.csv").write_text(
        (tmp_path / "notes.csv").read_text().partition("\n")[2], encoding="utf-8"
    )
    assert (
        guessed("bare.csv", "--data.columns", "[note, crp, verdict]").recipe == "multimodal/table"
    )


def test_columns_of_yes_and_no_are_labels_if_the_objective_says_so(tmp_path, monkeypatch, capsys):
    table("smiles,nr_ar,nr_er", "{c},{bit},{rare}")(tmp_path / "tox.csv")
    monkeypatch.chdir(tmp_path)
    assert main(["fit", "tox.csv", "--model.objective", "MultiLabel", "--print_config"]) == 0
    said = capsys.readouterr().err
    assert (
        "this runs: seqkit fit graph/molecules --data tox.csv --model.objective MultiLabel" in said
    )


def test_texts_in_folders_may_be_classes_and_are_refused_with_both_recipes(tmp_path, capsys):
    texts("poem/1.txt", "poem/2.txt", "bill/1.txt", "bill/2.txt")(tmp_path / "letters")
    assert main(["fit", str(tmp_path / "letters")]) == 2
    said = capsys.readouterr().err
    assert "seqkit fit text/classify --data" in said
    assert "seqkit fit text/char-lm --data" in said


def test_what_no_recipe_learns_and_a_folder_that_exists_are_refused_at_once(
    tmp_path, monkeypatch, capsys
):
    CASES["notes.csv"][0](tmp_path / "notes.csv")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="no recipe learns target_kind text from crp, verdict"):
        guessed("notes.csv", "--data.target", "note", "--data.target_kind", "text")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine.txt").write_text("words", encoding="utf-8")
    assert main(["fit", "notes.csv", "--out", "run"]) == 2, "before the table is read"
    said = capsys.readouterr().err
    assert "run exists already" in said
    assert "this runs" not in said


def test_a_run_is_no_data_and_two_data_are_refused(tmp_path):
    (tmp_path / "config.yaml").write_text("seed: 1", encoding="utf-8")
    assert guessed(tmp_path).recipe == str(tmp_path)
    (tmp_path / "notes.txt").write_text("words", encoding="utf-8")
    with pytest.raises(UsageError, match="--data"):
        guessed(tmp_path / "notes.txt", "--data=x")
    (tmp_path / "a.bin").write_bytes(bytes(9))
    with pytest.raises(UsageError, match=r"a\.bin"):
        guessed(tmp_path / "a.bin")


def test_a_folder_that_is_called_as_a_data_set_is_read(tmp_path, monkeypatch):
    """`--data digits` alone would train on scikit-learn's digits, without a word."""
    monkeypatch.chdir(tmp_path)
    photos(tmp_path / "digits")
    args = guessed("digits", preset=None)
    assert "--data=./digits" in args.overrides
    source = complete(args.recipe, "debug", args.overrides)["data"]["source"]
    assert (source["type"], source["path"]) == ("ImageFolder", "digits")
    with pytest.raises(UsageError, match=r"give \./digits"):
        complete("image/classify", "debug", ["--data=digits"])
    # a recipe's own name is that
    assert complete("image/digits", "quick")["data"]["source"]["type"] == "digits"


@pytest.mark.parametrize(
    ("head", "row"),
    [("note,crp,verdict", TEXT + ",7.{i},{yes}"), ("text,label", TEXT + ",{yes}")],
)
def test_a_table_is_opened_once_from_the_command_to_the_first_batch(
    tmp_path, monkeypatch, head, row
):
    path = tmp_path / "t.csv"
    table(head, row)(path)
    opened, once = [], io.open
    monkeypatch.setattr(
        io, "open", lambda file, *a, **k: opened.append(str(file)) or once(file, *a, **k)
    )
    descriptors, low = [], os.open
    monkeypatch.setattr(
        os, "open", lambda file, *a, **k: descriptors.append(str(file)) or low(file, *a, **k)
    )
    args = guessed(path)
    config = complete(args.recipe, args.preset, args.overrides)
    assert [*opened, *descriptors].count(str(path)) == 1, "the columns tell the recipe"
    data = prepare(config, tables=args.tables).data
    next(iter(data.train_dataloader()))
    assert [*opened, *descriptors].count(str(path)) == 1
