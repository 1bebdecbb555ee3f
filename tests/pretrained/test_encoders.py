"""Heads of encoders that transformers saved: fine-tuned, written back as the same class, or refused."""

import json
import shutil

import pytest
import torch
import transformers
from foreign_models import ENCODERS, HEADS, NAMES, VOCAB, saved, short_run
from parity import alone, assert_equal, doubled
from safetensors.torch import load_file, save_file

import seqkit
from seqkit.cli.main import main
from seqkit.config import complete
from seqkit.errors import DataError
from seqkit.pretrained.config_file import ConfigFile
from seqkit.pretrained.families import family_of
from seqkit.runs.exported import to_hf
from seqkit.runs.imported import import_model
from seqkit.runs.trained_model import load_one

MASKED, CLASSIFIER, TAGGER = HEADS
QUIET = {"trainer.enable_progress_bar": False}


def folder_of(place, name, kind, **keys):
    """The folder of a model with that head, and other keys in its config.json."""
    saved(place, name, {**ENCODERS[name], "id2label": NAMES}, kind)
    path = place / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **keys}))
    return place


def imported(folder):
    import_model(folder, folder.parent / "run", "theirs")
    return load_one(folder.parent / "run")


def tuned(folder, objective, **given):
    """A run of a few steps on sentences of three kinds, from that folder."""
    rows = [f"w{i % 9} w{i % 5} w{i % 7},{('fir', 'oak', 'yew')[i % 3]}" for i in range(60)]
    table = folder.parent / "table.csv"
    table.write_text("\n".join(["text,label", *rows]) + "\n")
    given = {
        "data": str(table),
        "model.init": str(folder),
        "model.objective": objective,
        "data.limit": None,
        **given,
    }
    return short_run("text/classify", {**given, **QUIET}, folder.parent / "run")


@pytest.mark.slow
def test_a_tuned_masked_language_model_is_theirs_again_with_its_mask_token(tmp_path):
    folder = folder_of(tmp_path / "theirs", "Roberta", MASKED)
    run = tuned(folder, "Masked")
    assert run.summary["initial"]["new"] == []
    assert to_hf(run, tmp_path / "back") == []
    back = transformers.RobertaForMaskedLM.from_pretrained(tmp_path / "back").eval()
    batch = seqkit.TokenBatch.collate([run.tokenizer.encode("w3 w7 w11 w2 w5")])
    masked = torch.tensor([[False, True, False, False, True]])
    assert not run.model.embedder.mask_token.equal(run.model.embedder.content.weight[VOCAB - 1])
    with torch.no_grad():
        right = doubled(back)(batch.content.masked_fill(masked, VOCAB - 1)).logits
        # but the mask token's own
        assert_equal(doubled(run.model)(batch, masked)[..., :-1], right[..., :-1])


def test_a_tuned_classifier_is_theirs_again_with_its_classes(tmp_path):
    run = tuned(folder_of(tmp_path / "theirs", "Roberta", CLASSIFIER), "Classify")
    assert run.summary["initial"]["new"] == ["head"]
    assert to_hf(run, tmp_path / "back") == []
    back = transformers.RobertaForSequenceClassification.from_pretrained(tmp_path / "back").eval()
    assert back.config.id2label == {0: "fir", 1: "oak", 2: "yew"}
    batch = seqkit.TokenBatch.collate([run.tokenizer.encode("w3 w7 w11")])
    with torch.no_grad():
        assert_equal(doubled(run.model)(batch), doubled(back)(batch.content).logits)


def test_a_classifier_of_a_masked_language_model_has_the_recipes_head(tmp_path):
    run = tuned(folder_of(tmp_path / "theirs", "Bert", MASKED), "Classify")
    assert run.summary["initial"]["left_out"] == ["cls"]
    assert (
        run.config["model"]["objective"]["pool"],
        run.config["model"]["objective"]["transform"],
    ) == ("max", None)


def test_a_head_of_another_class_is_not_written_under_the_old_one(tmp_path):
    folder = folder_of(tmp_path / "theirs", "Bert", CLASSIFIER)
    with_mask = folder_of(tmp_path / "masked", "Bert", MASKED) / "tokenizer.json"
    shutil.copyfile(with_mask, folder / "tokenizer.json")
    run = tuned(folder, "Masked")
    assert to_hf(run, tmp_path / "back") == []
    assert json.loads((tmp_path / "back" / "config.json").read_text())["architectures"] == [
        "BertForMaskedLM"
    ]
    assert "cls.predictions.bias" in load_file(tmp_path / "back" / "model.safetensors")


def test_weights_that_are_tied_may_stand_twice_if_they_are_equal(tmp_path):
    folder = folder_of(tmp_path / "theirs", "Bert", MASKED)
    held = load_file(folder / "model.safetensors")
    held["cls.predictions.decoder.weight"] = held["bert.embeddings.word_embeddings.weight"].clone()
    held["cls.predictions.decoder.bias"] = held["cls.predictions.bias"].clone()
    save_file(held, folder / "model.safetensors")
    assert imported(folder).summary["initial"]["left_out"] == []
    held["cls.predictions.decoder.bias"][3] += 1
    save_file(held, folder / "model.safetensors")
    with pytest.raises(DataError, match=r"decoder\.bias is tied"):
        import_model(folder, tmp_path / "other", "theirs")


@pytest.mark.parametrize(
    "keys",
    [
        {"problem_type": "multi_label_classification"},
        {"problem_type": "regression"},
        {"id2label": {"0": "x"}},
    ],
)
def test_a_head_for_no_classes_is_left_out(tmp_path, keys):
    run = imported(folder_of(tmp_path / "theirs", "Roberta", CLASSIFIER, **keys))
    assert run.summary["objective"] == "Features"
    assert run.summary["initial"]["left_out"] == ["classifier"]


def test_modernbert_of_older_versions_names_bases_and_layers_otherwise(tmp_path):
    """As its published config.json does: rope_parameters and layer_types came with transformers 5."""
    folder = folder_of(tmp_path / "theirs", "ModernBert", MASKED)
    new = imported(folder).config["model"]
    path = folder / "config.json"
    keys = json.loads(path.read_text())
    for name in ("rope_parameters", "layer_types"):
        keys.pop(name)
    old = {
        "global_rope_theta": 160_000.0,
        "local_rope_theta": 10_000.0,
        "global_attn_every_n_layers": 3,
    }
    path.write_text(
        json.dumps({**keys, **old, "layer_norm_eps": 1e-5, "position_embedding_type": "absolute"})
    )
    import_model(folder, tmp_path / "old", "theirs")
    assert load_one(tmp_path / "old").config["model"] == new


@pytest.mark.parametrize(
    "changes", [{"norm_bias": True}, {"attention_bias": True, "mlp_bias": True}]
)
@pytest.mark.parametrize(
    ("pool", "more"),
    [("mean", {"classifier_bias": True}), ("cls", {"classifier_activation": "tanh"})],
)
def test_logits_of_modernbert_with_biases_and_another_head(tmp_path, changes, pool, more):
    given = {
        **ENCODERS["ModernBert"],
        **changes,
        **more,
        "classifier_pooling": pool,
        "id2label": NAMES,
    }
    theirs = saved(tmp_path / "theirs", "ModernBert", given, CLASSIFIER)
    run = imported(tmp_path / "theirs")
    batch = seqkit.TokenBatch.collate(
        [run.tokenizer.encode(text) for text in ("w3 w7 w11 w2 w5 w6 w7", "w4 w9")]
    )
    with torch.no_grad():
        right = alone(doubled(theirs), batch)
        assert_equal(doubled(run.model)(batch), right)
    assert run.predict(["w4 w9"]) == [NAMES[int(right[1].argmax())]]
    to_hf(run, tmp_path / "back")
    held, back = (load_file(tmp_path / name / "model.safetensors") for name in ("theirs", "back"))
    assert held.keys() == back.keys()
    assert all(held[name].equal(x) for name, x in back.items())


def test_an_imported_tagger_gives_a_class_for_each_token(tmp_path):
    theirs = saved(tmp_path / "theirs", "Bert", {**ENCODERS["Bert"], "id2label": NAMES}, TAGGER)
    run = imported(tmp_path / "theirs")
    with torch.no_grad():
        right = theirs(torch.tensor([[3, 7, 11]])).logits[0].argmax(dim=1)
    assert run.predict(["w3 w7 w11"]) == [[NAMES[int(i)] for i in right]]


def test_the_head_of_a_tagger_is_not_that_of_a_classifier(tmp_path):
    run = tuned(folder_of(tmp_path / "theirs", "Bert", TAGGER), "Classify")
    assert (run.summary["initial"]["new"], run.summary["initial"]["left_out"]) == (
        ["head"],
        ["classifier"],
    )
    assert run.config["model"]["objective"]["level"] == "sequence"
    assert to_hf(run, tmp_path / "back") == ["head.linear.bias", "head.linear.weight"]
    assert json.loads((tmp_path / "back" / "config.json").read_text())["architectures"] == [
        "BertModel"
    ]


@pytest.mark.parametrize("name", ["Bert", "Roberta"])
def test_a_classifier_on_a_masked_language_model_is_theirs_if_its_head_is(tmp_path, name):
    folder = folder_of(tmp_path / "theirs", name, MASKED)
    config = ConfigFile(folder / "config.json")
    wanted = {**family_of(config, "Classify").heads["Classify"].objective(config)}
    run = tuned(folder, wanted)
    assert to_hf(run, tmp_path / "back") == []
    theirs = getattr(transformers, f"{name}ForSequenceClassification")
    assert json.loads((tmp_path / "back" / "config.json").read_text())["architectures"] == [
        theirs.__name__
    ]
    back = theirs.from_pretrained(tmp_path / "back").eval()
    assert back.config.id2label == {0: "fir", 1: "oak", 2: "yew"}
    batch = seqkit.TokenBatch.collate([run.tokenizer.encode("w3 w7 w11")])
    with torch.no_grad():
        assert_equal(doubled(run.model)(batch), doubled(back)(batch.content).logits)


@pytest.mark.slow
def test_the_card_of_an_export_without_its_head_is_that_of_an_encoder(tmp_path, capsys):
    run = tuned(folder_of(tmp_path / "theirs", "Bert", MASKED), "Classify")
    assert main(["export", str(run.folder), "--to", "hf", "--out", str(tmp_path / "back")]) == 0
    assert "left out, as the other library has no such head" in capsys.readouterr().out
    text = (tmp_path / "back" / "README.md").read_text()
    assert "pipeline_tag: feature-extraction" in text
    assert "The head of Classify is not in this folder" in text
    before_config = text.partition("## How it was made")[0]
    assert not any(
        word in before_config
        for word in ("accuracy", "fir, oak", "text-classification", "model-index")
    )
    assert json.loads((tmp_path / "back" / "config.json").read_text())["architectures"] == [
        "BertModel"
    ]


def test_a_level_that_an_override_gives_chooses_the_head(tmp_path):
    saved(
        tmp_path / "theirs",
        "Bert",
        {**ENCODERS["Bert"], "id2label": NAMES},
        "ForSequenceClassification",
    )
    given = {"model.init": str(tmp_path / "theirs")}
    whole = complete("text/classify", "debug", given)["model"]["objective"]
    each = complete("text/classify", "debug", {**given, "model.objective.level": "token"})["model"][
        "objective"
    ]
    assert whole["transform"] is not None
    assert (each["level"], each["transform"]) == ("token", None)


OTHER = {
    **{name: {"hidden_act": "silu", "layer_norm_eps": 1e-2} for name in ("Bert", "Roberta")},
    "ModernBert": {"hidden_activation": "silu", "norm_eps": 1e-2},
}


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("name", OTHER)
def test_logits_with_another_activation_and_epsilon(tmp_path, name, kind):
    """Some heads have the activation of the layers, others one of their own."""
    theirs = saved(
        tmp_path / "theirs", name, {**ENCODERS[name], **OTHER[name], "id2label": NAMES}, kind
    )
    run = imported(tmp_path / "theirs")
    batch = seqkit.TokenBatch.collate([run.tokenizer.encode("w3 w7 w11 w2")])
    with torch.no_grad():
        assert_equal(doubled(run.model)(batch), doubled(theirs)(batch.content).logits)


# ── refusals ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ENCODERS)
def test_an_output_layer_that_is_not_tied_is_refused(tmp_path, name):
    folder = folder_of(tmp_path / "theirs", name, MASKED, tie_word_embeddings=False)
    with pytest.raises(DataError, match="tie_word_embeddings is False"):
        imported(folder)


def test_a_masked_language_model_whose_tokenizer_has_no_mask_token_is_refused(tmp_path):
    folder = folder_of(tmp_path / "theirs", "Bert", MASKED)
    path = folder / "tokenizer.json"
    path.write_text(path.read_text().replace("[MASK]", "[HIDE]"))
    with pytest.raises(DataError, match=r"\[MASK\]"):
        imported(folder)


@pytest.mark.parametrize(
    ("kind", "keys", "said"),
    [
        (MASKED, {"decoder_bias": False}, "decoder_bias is False"),
        (CLASSIFIER, {"classifier_pooling": "max"}, "classifier_pooling is 'max'"),
        (MASKED, {"classifier_activation": "xielu"}, "classifier_activation is 'xielu'"),
        (MASKED, {"layer_types": ["full_attention"]}, "layer_types"),
        (
            MASKED,
            {"rope_parameters": {"full_attention": {"rope_type": "yarn"}}},
            "rope_parameters is",
        ),
        (MASKED, {"rope_parameters": {"full_attention": {"factor": 2.0}}}, "rope_parameters is"),
        (MASKED, {"rope_scaling": {"type": "linear"}}, "rope_scaling is"),
        (MASKED, {"attention_bias": "some"}, "attention_bias is 'some'"),
        (MASKED, {"local_attention": -1}, "local_attention is -1"),
        (MASKED, {"global_rope_theta": "large"}, "global_rope_theta is 'large'"),
    ],
)
def test_a_setting_of_modernbert_that_is_not_read_is_refused(tmp_path, kind, keys, said):
    folder = folder_of(tmp_path / "theirs", "ModernBert", kind, **keys)
    with pytest.raises(DataError, match=said) as refused:
        imported(folder)
    assert "\n" not in str(refused.value)
