"""What the cells of a table may hold beside texts: bytes of files, conversations, series, yes and no; JSON arrays."""

import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import soundfile
from PIL import Image

import seqkit
from seqkit.data.sources.table import Table
from seqkit.errors import DataError
from seqkit.tokenizers import LogMel, Patches

RNG = np.random.default_rng(3)
PIXELS = RNG.integers(0, 255, (12, 8, 8), dtype=np.uint8)
LABELS = ["cat", "dog"] * 6


def png(pixels):
    held = io.BytesIO()
    Image.fromarray(pixels).save(held, "PNG")
    return held.getvalue()


def wav(samples):
    held = io.BytesIO()
    soundfile.write(held, samples, 8_000, format="WAV", subtype="FLOAT")
    return held.getvalue()


def parquet(folder, **columns):
    pq.write_table(pa.table(columns), folder / "table.parquet")
    return str(folder / "table.parquet")


def lines(folder, *records):
    (folder / "table.jsonl").write_text("\n".join(map(json.dumps, records)))
    return str(folder / "table.jsonl")


def fit(recipe, out, **keys):
    keys = {**keys, "trainer.max_steps": 2, "trainer.enable_progress_bar": False}
    return seqkit.fit(recipe, keys, preset="debug", out=out, report=False, strong_baseline=False)


def read(path, tokenizer=None, **settings):
    """Samples of both splits by their place in the file."""
    source = Table(path, **settings)
    if tokenizer is not None:
        source.read_for(tokenizer)
    splits = source.splits()
    found = {}
    for part in (splits.train, splits.test):
        found |= {int(part.name(i).rpartition(" ")[2]): part[i] for i in range(len(part))}
    return [found[i] for i in sorted(found)], splits.names


@pytest.mark.parametrize("kept", ["bytes", "bytes and path", "path"])
def test_images_may_stand_in_the_table_or_beside_it(tmp_path, kept):
    cells = [png(pixels) for pixels in PIXELS]
    if kept != "bytes":
        for i, cell in enumerate(cells):
            (tmp_path / f"{i}.png").write_bytes(cell)
        cells = [
            {"bytes": cell if kept == "bytes and path" else None, "path": f"{i}.png"} for i, cell in enumerate(cells)
        ]
    samples, names = read(parquet(tmp_path, image=cells, label=LABELS), Patches(4))
    assert names == ["cat", "dog"]
    assert [sample.label for sample in samples] == [0, 1] * 6
    for sample, pixels in zip(samples, PIXELS):
        np.testing.assert_allclose(sample.raw[0], pixels / 255, atol=1e-6)


def test_sounds_may_stand_in_the_table(tmp_path):
    waves = RNG.standard_normal((12, 900)).astype(np.float32) / 9
    samples, _ = read(parquet(tmp_path, audio=[wav(wave) for wave in waves], label=LABELS), LogMel(8_000))
    for sample, wave in zip(samples, waves):
        np.testing.assert_allclose(sample.raw.samples[0], wave, atol=1e-6)


def test_damaged_bytes_are_named_by_row_and_may_be_left_out(tmp_path):
    cells = [png(pixels) for pixels in PIXELS]
    cells[4] = cells[4][:60]
    path = parquet(tmp_path, image=cells, label=LABELS)
    with pytest.raises(DataError, match="image"):
        read(path, Patches(4))
    samples, _ = read(path, Patches(4), skip_bad=1)
    assert len(samples) == 11


def test_equal_bytes_in_both_splits_are_said(tmp_path, caplog):
    cells = [png(PIXELS[i % 2]) for i in range(12)]
    read(parquet(tmp_path, image=cells, label=LABELS), Patches(4))
    assert "test inputs are in training, too" in caplog.text


def test_a_run_predicts_the_images_of_a_table(tmp_path):
    path = parquet(tmp_path, image=[png(pixels) for pixels in PIXELS], label=LABELS)
    run = fit("image/digits", tmp_path / "run", **{"data": path, "tokenizer.patch": 4})
    from seqkit.data.inputs import Inputs

    inputs = list(Inputs([path], run.tokenizer))
    assert [one.error for one in inputs] == [None] * 12
    np.testing.assert_allclose(inputs[5].raw[0], PIXELS[5] / 255, atol=1e-6)


RECORDS = [{"text": f"a {'good' if i % 2 else 'bad'} film {i}", "label": "yn"[i % 2]} for i in range(12)]


@pytest.mark.parametrize("written", [RECORDS, {"data": RECORDS}, {"tags": ["a", "b"], "data": RECORDS}])
def test_a_json_array_is_a_table(tmp_path, written):
    (tmp_path / "table.json").write_text(json.dumps(written, indent=1))
    samples, names = read(str(tmp_path / "table.json"))
    assert [sample.raw for sample in samples] == [record["text"] for record in RECORDS]
    assert names == ["n", "y"]


@pytest.mark.parametrize(
    ("text", "said"),
    [('[{"text": "a"}, 3, {"text": "b"}]', "entry 2"), ('[{"text": "a"}, ', r"table\.jsonl"), ("[]", "no objects")],
)
def test_a_json_file_of_something_else_is_refused_in_a_line(tmp_path, text, said):
    (tmp_path / "table.json").write_text(text)
    with pytest.raises(DataError, match=said) as refused:
        read(str(tmp_path / "table.json"), target_kind="none")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("keys", [("role", "content"), ("from", "value")])
def test_a_conversation_is_a_text_with_a_line_for_each_message(tmp_path, keys):
    who, what = keys
    records = [
        {"messages": [{who: "user", what: f"what is {i}?"}, {who: "assistant", what: f"it is {i}"}]} for i in range(5)
    ]
    samples, _ = read(lines(tmp_path, *records), target_kind="none")
    assert [sample.raw for sample in samples] == [f"user: what is {i}?\nassistant: it is {i}" for i in range(5)]
    rows = pa.array([record["messages"] for record in records])
    samples, _ = read(parquet(tmp_path, messages=rows), target_kind="none")
    assert samples[3].raw == "user: what is 3?\nassistant: it is 3"


def test_a_list_that_is_no_conversation_is_refused(tmp_path):
    path = lines(tmp_path, *({"messages": [{"role": "user", "content": 3}]} for _ in range(4)))
    with pytest.raises(DataError, match="line 1: messages is "):
        read(path, target_kind="none")


@pytest.mark.parametrize("width", [1, 2])
def test_lists_of_numbers_are_series(tmp_path, width):
    series = [[[float(i + j)] * width if width > 1 else float(i + j) for j in range(3 + i % 2)] for i in range(20)]
    path = lines(tmp_path, *({"series": one, "label": "ab"[i % 2]} for i, one in enumerate(series)))
    samples, _ = read(path)
    assert [sample.raw for sample in samples] == series
    run = fit("own/classify", tmp_path / "run", data=path, tokenizer={"type": "Series", "num_features": width})
    assert run.tokenizer.encode(series[1]).content.shape == (4, width)


def test_a_cell_that_is_no_series_is_named(tmp_path):
    records = [{"series": [0.5, 1.5], "label": "ab"[i % 2]} for i in range(12)]
    records[5]["series"] = [0.5, "x"]
    with pytest.raises(DataError, match=r"line 6: series is .*'x'"):
        read(lines(tmp_path, *records), kind="series")


YES_NO = {"toxic": ["yes", "no"], "insult": [True, False], "threat": [1, 0]}


def comments(folder, spellings=YES_NO):
    values = [{name: both[(i // (1 + k)) % 2] for k, (name, both) in enumerate(spellings.items())} for i in range(24)]
    return lines(folder, *({"comment": f"comment number {i}", **labels} for i, labels in enumerate(values))), values


def test_several_columns_of_yes_and_no_are_labels(tmp_path):
    path, values = comments(tmp_path)
    samples, names = read(path, target_kind="labels")
    assert names == [*YES_NO]
    yes = [[float(row[name] == both[0]) for name, both in YES_NO.items()] for row in values]
    assert [sample.label for sample in samples] == yes
    run = fit("text/classify", tmp_path / "run", **{"data": path, "model.objective": "MultiLabel"})
    assert run.config["data"]["source"]["target"] == [*YES_NO]
    assert len(run.objective.shares) == 3


def test_a_classifier_of_several_columns_of_yes_and_no_is_told_of_labels(tmp_path):
    path, _ = comments(tmp_path)
    with pytest.raises(DataError, match="yes and no of each"):
        read(path, target_kind="classes")


def test_yes_and_no_are_read_in_several_languages_one_for_each_column(tmp_path, subtests):
    for both in ("ja nein", "Ja NEIN", "j n", "y n", "oui non", "sí no", "si no", "sì no", "sim não", "si\u0301 no"):
        with subtests.test(both):
            path, _ = comments(tmp_path, {"toxic": both.split(), "insult": ["yes", "no"]})
            samples, names = read(path, target_kind="labels")
            assert names == ["toxic", "insult"]
            assert [sample.label for sample in samples][:2] == [[1, 1], [0, 1]]
    mixed, _ = comments(tmp_path, {"toxic": ["yes", "nein"], "insult": ["yes", "no"]})
    assert read(mixed, target_kind="labels", input="comment")[1] == ["insult"], "two languages are no labels"
    with pytest.raises(DataError, match=r"toxic is 'nein', .*English"):
        read(mixed, target=["toxic", "insult"], target_kind="labels")


def test_columns_without_yes_and_no_and_several_with_it_say_how_labels_are_given(tmp_path):
    words = {"toxic": ("ja", "nein"), "it is: new": "0011", "who": "abc"}
    rows = [{"comment": f"comment {i}"} | {name: x[i % len(x)] for name, x in words.items()} for i in range(24)]
    with pytest.raises(DataError, match=r"'toxic', 'it is: new', 'who' .*--data.target") as refused:
        read(lines(tmp_path, *rows), input="comment")
    assert "--data.target '[toxic, \"it is: new\"]' --model.objective MultiLabel" in str(refused.value)
    rows = [{"comment": row["comment"], "toxic": ["oh", "nay"][i % 2], "who": row["who"]} for i, row in enumerate(rows)]
    with pytest.raises(DataError, match=r"'toxic', 'who' .*yes/no, .*ja/nein, .*1/0"):
        read(lines(tmp_path, *rows), input="comment", target_kind="labels")


def test_columns_of_numbers_and_many_values_are_not_listed_beside_those_that_look_like_classes(tmp_path):
    rows = [
        {"text": f"a text {i}", "age": 20 + i % 60, "day": f"{i % 50}.1.", "city": "ab"[i % 2], "kind": "abc"[i % 3]}
        for i in range(100)
    ]
    with pytest.raises(DataError, match=r"'city', 'kind' .*\(2 more"):
        read(lines(tmp_path, *rows), input="text")
    with pytest.raises(DataError, match="'age', 'day', 'city' "):
        read(lines(tmp_path, *({k: v for k, v in row.items() if k != "kind"} for row in rows)), input="text")
    rows = [row | {"Ergebnis": "xy"[i % 2]} for i, row in enumerate(rows)]
    assert read(lines(tmp_path, *rows), input="text")[1] == ["x", "y"]


def test_a_label_of_a_third_value_is_named_and_a_missing_one_is_unknown(tmp_path):
    records = [
        {"comment": f"comment {i}", "toxic": i % 2, "insult": None if i == 3 else (i // 2) % 2} for i in range(12)
    ]
    samples, _ = read(lines(tmp_path, *records), target_kind="labels")
    assert np.isnan(samples[3].label[1])
    assert samples[3].label[0] == 1
    records[7]["toxic"] = 2
    with pytest.raises(DataError, match=r"line 8: toxic is 2; .*yes/no, .*1/0"):
        read(lines(tmp_path, *records), target=["toxic", "insult"], target_kind="labels")
