"""`seqkit export --to torch|onnx`: what the file carries beside its graph."""

import json
from types import SimpleNamespace

from seqkit.cli.export import _notes
from seqkit.objectives import Classify
from seqkit.tokenizers import Characters


def test_the_notes_map_texts_to_ids_and_outputs_to_classes_without_the_run():
    tokenizer, objective = Characters(), Classify()
    tokenizer.fit(["a fine film", "awful"])
    objective.load_state({"names": ["bad", "good"]})
    trained = SimpleNamespace(
        config={"tokenizer": "Characters", "model": {"objective": "Classify"}},
        summary={"recipe": "text/classify", "sha256": "0", "metrics": {}},
        tokenizer=tokenizer,
        objective=objective,
    )
    notes = json.loads(json.dumps(_notes(trained)))
    alphabet = notes["tokenizer_state"]["alphabet"]
    assert [alphabet.index(character) for character in "awful"] == tokenizer.encode("awful").content.tolist()
    assert notes["objective_state"]["names"] == ["bad", "good"]
