"""`seqkit export --to torch|onnx`: what the file carries beside its graph."""

import json
from types import SimpleNamespace

import pytest
from tokenizer_files import wordpiece

from seqkit.cli.export import _notes
from seqkit.export.graph import inputs, names
from seqkit.objectives import Classify
from seqkit.runs.summary import Summary
from seqkit.tokenizers import Bytes, Characters, FromFile, Graph, Join, LogMel, Patches


def test_the_notes_map_texts_to_ids_and_outputs_to_classes_without_the_run():
    tokenizer, objective = Characters(), Classify()
    tokenizer.fit(["a fine film", "awful"])
    objective.load_state({"names": ["bad", "good"]})
    trained = SimpleNamespace(
        config={"tokenizer": "Characters", "model": {"objective": "Classify"}},
        summary=Summary(
            recipe="text/classify",
            backbone="TCN",
            sha256="0",
            metrics={},
            num_parameters=1,
            steps=1,
            wall_seconds=1.0,
            tokens_seen=1,
            seed=1,
            versions={},
        ),
        tokenizer=tokenizer,
        objective=objective,
    )
    notes = json.loads(json.dumps(_notes(trained)))
    alphabet = notes["tokenizer_state"]["alphabet"]
    assert [alphabet.index(character) for character in "awful"] == tokenizer.encode(
        "awful"
    ).content.tolist()
    assert notes["objective_state"]["names"] == ["bad", "good"]


@pytest.mark.parametrize(
    ("tokenizer", "content", "columns"),
    [
        (Bytes(), (["b", "n"], "int64"), ["index"]),
        (Patches(4), (["b", "n", "f"], "float32"), ["row", "column"]),
        (LogMel(16_000), (["b", "n", "f"], "float32"), ["index"]),
        (Graph(num_features=3), (["b", "n", "f"], "float32"), []),
    ],
)
def test_the_notes_name_the_axes_of_each_input(tokenizer, content, columns):
    found = inputs(tokenizer)
    assert (found["content"]["axes"], found["content"]["type"]) == content
    assert found["positions"] == {"axes": ["b", "n", "p"], "type": "float32", "columns": columns}
    assert list(found) == list(names(tokenizer.spec))


def test_the_inputs_of_a_single_part_are_those_of_its_tokenizer():
    joined = Join({"text": Bytes()})
    assert inputs(joined) == inputs(Bytes())
    assert names(joined.spec) == names(Bytes().spec)


def test_the_columns_of_positions_are_those_of_a_pair_of_texts(tmp_path):
    """By a file as BERT's: an index, then the token type."""
    wordpiece().save(str(tmp_path / "tokenizer.json"))
    tokenizer = FromFile(str(tmp_path), token_types=2)
    positions = tokenizer.encode(["a fine day", "and a night"]).positions
    columns = inputs(tokenizer)["positions"]["columns"]
    assert positions[:, columns.index("index")].tolist() == list(range(len(positions)))
    assert positions[:, columns.index("token type")].unique().tolist() == [0, 1]
