"""Encoder–decoders that transformers saved: the same logits and texts from raw examples, written back bit for bit."""

import json

import numpy as np
import pytest
import torch
import transformers
from foreign_models import VOCAB, kept, save, short_run
from harmless import assert_any_other_value_counts
from parity import assert_equal, doubled
from safetensors.torch import load_file, save_file
from torch import nn

import seqkit
from seqkit.errors import DataError, UsageError
from seqkit.generation.prompts_to_text import generate_texts
from seqkit.generation.sampling import Sampling
from seqkit.interfaces import TokenBatch, Tokens
from seqkit.pretrained.folder import settings, weights
from seqkit.raw import Waveform
from seqkit.runs.answers import vectors
from seqkit.runs.exported import to_hf
from seqkit.runs.imported import import_model
from seqkit.runs.trained_model import load_one

T5 = {
    "vocab_size": VOCAB, "d_model": 24, "d_kv": 10, "d_ff": 37, "num_layers": 3, "num_decoder_layers": 2,
    "num_heads": 3, "relative_attention_num_buckets": 8, "relative_attention_max_distance": 11,
    "decoder_start_token_id": 0,
}  # fmt: skip
BART = {
    "vocab_size": VOCAB, "d_model": 24, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 4,
    "decoder_attention_heads": 3, "encoder_ffn_dim": 36, "decoder_ffn_dim": 40, "max_position_embeddings": 41,
    "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2, "forced_eos_token_id": None,
}  # fmt: skip
MARIAN = {**BART, "decoder_vocab_size": VOCAB, "decoder_start_token_id": 1}
M2M100 = {key: x for key, x in BART.items() if key != "forced_eos_token_id"}
WHISPER = {
    **{key: x for key, x in BART.items() if key not in ("max_position_embeddings", "forced_eos_token_id")},
    "num_mel_bins": 17, "max_source_positions": 50, "max_target_positions": 41, "decoder_start_token_id": 4,
    "begin_suppress_tokens": None,
}  # fmt: skip
MODELS = {
    "T5": ("ForConditionalGeneration", T5),
    "T5 v1.1": (
        "ForConditionalGeneration",
        {**T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    ),
    "MT5": ("ForConditionalGeneration", T5),
    "Bart": ("ForConditionalGeneration", BART),
    "Marian": ("MTModel", {**MARIAN, "scale_embedding": True, "activation_function": "swish"}),
    "Marian unscaled": ("MTModel", MARIAN),
    "Pegasus": (
        "ForConditionalGeneration",
        {**BART, "scale_embedding": True, "decoder_start_token_id": 0},
    ),
    "MBart": ("ForConditionalGeneration", {**BART, "decoder_start_token_id": 4}),
    "M2M100": ("ForConditionalGeneration", M2M100),
    "PLBart": ("ForConditionalGeneration", {**BART, "decoder_start_token_id": 0}),
    "Blenderbot": ("ForConditionalGeneration", {**BART, "decoder_start_token_id": 0}),
    "UMT5": ("ForConditionalGeneration", T5),
    "Whisper": ("ForConditionalGeneration", WHISPER),
    "T5 v1.1 without a head": (
        "ForConditionalGeneration",
        {**T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    ),
    "MT5 without a head": ("ForConditionalGeneration", T5),
    "UMT5 without a head": ("ForConditionalGeneration", T5),
}
"""Classes and sizes, by the model's name and what is special about it."""
GENERATED = {
    "Marian": {"bad_words_ids": [[1]]},
    "Whisper": {
        "is_multilingual": True, "lang_to_id": {"<|en|>": 7}, "task_to_id": {"transcribe": 8},
        "no_timestamps_token_id": 9, "suppress_tokens": [3, 5], "begin_suppress_tokens": [6],
    },
}  # fmt: skip
"""Keys of generation_config.json."""
TEXTS = ["w3 w7 w11 w5 w20", "w4", "w9 w9 w12"]


HEADLESS = tuple(name for name in MODELS if name.endswith("without a head"))


def theirs_of(place, name):
    """Their model with random weights, saved in the folder `theirs` with its tokenizer."""
    return kept(place / "theirs", _theirs, name), place / "theirs"


def _theirs(folder, name):
    kind, sizes = MODELS[name]
    model = save(folder, name, sizes, kind, std=0.3)
    with torch.no_grad():
        # files of these have a head of their own, though the class ties it
        if name in ("T5 v1.1", "MT5", "UMT5"):
            model.lm_head.weight = nn.Parameter(torch.randn(VOCAB, 24) * 0.3)
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias.normal_(std=0.1)
        model.save_pretrained(folder)
    path = folder / "generation_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **GENERATED.get(name, {})}))
    if name == "Whisper":
        transformers.WhisperFeatureExtractor(feature_size=17, chunk_length=1).save_pretrained(
            folder
        )
    return type(model).from_pretrained(folder, attn_implementation="eager").eval()


def imported(place, name):
    model, folder = theirs_of(place, name)
    import_model(folder, place / "run", name)
    return model, load_one(place / "run")


def sources(name):
    """Raw examples."""
    if name != "Whisper":
        return TEXTS
    rng = np.random.default_rng(5)
    return [
        Waveform(rng.standard_normal(n).astype(np.float32) / 3, 16_000)
        for n in (3_217, 1_913, 9_001)
    ]


def given(place, run, name):
    """What their encoder gets of all raw examples."""
    if name == "Whisper":
        extractor = transformers.WhisperFeatureExtractor.from_pretrained(place / "theirs")
        waves = [np.asarray(one.samples) for one in sources(name)]
        return {
            "input_features": extractor(
                waves, sampling_rate=16_000, return_tensors="pt"
            ).input_features.double()
        }
    batch = TokenBatch.collate([run.tokenizer.encode(text) for text in TEXTS])
    return {"input_ids": batch.content, "attention_mask": batch.valid.long()}


def targets(lengths):
    """Without id 1, which does not count in the positions of M2M100."""
    torch.manual_seed(7)
    return TokenBatch.collate(
        [Tokens(torch.randint(2, VOCAB, (n,)), torch.arange(float(n))[:, None]) for n in lengths]
    )


@pytest.mark.parametrize("name", MODELS)
def test_logits_from_raw_examples_and_the_same_bytes_back(tmp_path, name):
    theirs, run = imported(tmp_path, name)
    assert run.summary["objective"] == "Seq2Seq"
    assert run.summary["initial"]["left_out"] == []
    batch = targets([7, 11, 3]).replace(
        source=TokenBatch.collate([run.tokenizer.encode(x) for x in sources(name)])
    )
    with torch.no_grad():
        right = doubled(theirs)(
            **given(tmp_path, run, name), decoder_input_ids=batch.content
        ).logits
        assert_equal(doubled(run.model)(batch), right, batch.valid)
    assert to_hf(run, tmp_path / "back") == []
    files = ("config.json", "generation_config.json", "model.safetensors")
    for file in files[:2] if name in HEADLESS else files:
        assert (tmp_path / "back" / file).read_bytes() == (
            tmp_path / "theirs" / file
        ).read_bytes(), file
    ids = [
        json.loads((tmp_path / place / "tokenizer.json").read_text())
        for place in ("theirs", "back")
    ]
    assert ids[0] == ids[1]


@pytest.mark.parametrize("name", HEADLESS)
def test_a_head_that_the_file_lacks_is_the_table_of_ids(tmp_path, name):
    theirs, run = imported(tmp_path, name)
    held = load_file(tmp_path / "theirs" / "model.safetensors")
    assert "lm_head.weight" not in held
    assert theirs.lm_head.weight is theirs.shared.weight
    to_hf(run, tmp_path / "back")
    back = load_file(tmp_path / "back" / "model.safetensors")
    assert back.pop("lm_head.weight").equal(held["shared.weight"])
    assert all(back[key].equal(x) for key, x in held.items())
    again = type(theirs).from_pretrained(tmp_path / "back")
    assert again.lm_head.weight is again.shared.weight


@pytest.mark.parametrize(
    "kind", ["SequenceClassification", "TokenClassification", "QuestionAnswering"]
)
def test_the_encoder_of_a_t5_with_another_head_is_read(tmp_path, kind):
    theirs = doubled(save(tmp_path, "T5", T5, f"For{kind}"))
    found, left_out, _ = weights(tmp_path, "Classify")
    assert found["backbone.norm.weight"].equal(
        dict(theirs.named_parameters())[f"{PLACES.get(kind, '')}encoder.final_layer_norm.weight"]
    )
    assert {name.split(".")[0] for name in left_out} <= {"decoder", *HEADS}
    assert {name.split(".")[0] for name in left_out} & {*HEADS}


PLACES = dict.fromkeys(["SequenceClassification", "TokenClassification"], "transformer.")
HEADS = ("classification_head", "classifier", "qa_outputs")


@pytest.mark.parametrize("name", MODELS)
def test_both_write_the_same_texts(tmp_path, name):
    theirs, run = imported(tmp_path, name)
    theirs = doubled(theirs)
    run.model.double()
    start = run.objective.start_ids
    assert start == {"Whisper": [4, 7, 8, 9]}.get(name, [MODELS[name][1]["decoder_start_token_id"]])
    theirs.generation_config = transformers.GenerationConfig.from_pretrained(tmp_path / "theirs")
    inputs, right = given(tmp_path, run, name), []
    for i in range(3):
        one = {key: x[i : i + 1] for key, x in inputs.items()}
        if "attention_mask" in one:
            one = {key: x[:, : int(inputs["attention_mask"][i].sum())] for key, x in one.items()}
        written = transformers.GenerationMixin.generate(
            theirs,
            **one,
            decoder_input_ids=torch.tensor([start]),
            max_new_tokens=12,
            num_beams=1,
            do_sample=False,
        )
        ids = written[0, len(start) :].tolist()
        end = run.objective.eos_id
        ids = ids[: ids.index(end)] if end in ids else ids
        right.append(" ".join(f"w{i}" for i in ids if i not in start))
    got = generate_texts(run, sources(name), 12, strategy=Sampling(temperature=0))
    assert got == right
    assert len(set(" ".join(right).split())) > 1, "one word again and again shows nothing"


@pytest.mark.parametrize("name", [name for name in MODELS if " " not in name])
def test_the_encoder_alone_for_other_objectives(tmp_path, name):
    theirs, folder = theirs_of(tmp_path, name)
    table = tmp_path / "table.csv"
    table.write_text(
        "text,label\n" + "\n".join(f"w{i} w{i * i % 29} w5,{'ab'[i % 2]}" for i in range(40))
    )
    recipe, data = ("text/classify", table)
    if name == "Whisper":
        import soundfile

        data, recipe = tmp_path / "sounds", "audio/spoken-digits"
        for label in "ab":
            (data / label).mkdir(parents=True)
            for i in range(10):
                wave = np.random.default_rng(i).standard_normal(2_000) / 4
                soundfile.write(data / label / f"{i}.wav", wave, 16_000)
    overrides = {
        "model.init": str(folder),
        "data": str(data),
        "optimizer": "AdamW",
        "optimizer.lr": 0.0,
    }
    overrides |= {"trainer.max_steps": 1}
    run = short_run(recipe, overrides, tmp_path / "run")
    assert run.summary["initial"]["taken"] == ["backbone", "embedder"]
    source = TokenBatch.collate([run.tokenizer.encode(x) for x in sources(name)])
    with torch.no_grad():
        model = doubled(run.model)
        hidden = model.backbone(model.embed(source))
        right = doubled(theirs).get_encoder()(**given(tmp_path, run, name)).last_hidden_state
    n = min(hidden.shape[1], right.shape[1])
    assert_equal(hidden[:, :n], right[:, :n], source.valid[:, :n])
    with pytest.raises(UsageError, match="decoder"):
        to_hf(run, tmp_path / "back")


@pytest.mark.parametrize("name", ["T5", "Bart"])
def test_a_fine_tuned_run_is_a_model_of_theirs_again(tmp_path, name):
    _, folder = theirs_of(tmp_path, name)
    rows = [f"w{i % 29} w{i * i % 29}\tw{i * 3 % 29} w{i * 5 % 29} w12" for i in range(60)]
    (tmp_path / "pairs.tsv").write_text("text\ttarget\n" + "\n".join(rows))
    overrides = {
        "model.init": str(folder),
        "data": str(tmp_path / "pairs.tsv"),
        "optimizer": "AdamW",
    }
    run = short_run("text/translate", overrides, tmp_path / "run")
    assert run.summary["initial"]["new"] == []
    assert run.objective.longest == 3
    assert to_hf(run, tmp_path / "back") == []
    tuned = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "back").eval()
    source = TokenBatch.collate([run.tokenizer.encode(text) for text in TEXTS])
    batch = targets([7, 11, 3]).replace(source=source)
    with torch.no_grad():
        right = doubled(tuned)(
            input_ids=source.content,
            attention_mask=source.valid.long(),
            decoder_input_ids=batch.content,
        ).logits
        assert_equal(doubled(run.model)(batch), right, batch.valid)
    old, new = (load_file(place / "model.safetensors") for place in (folder, tmp_path / "back"))
    name = "shared.weight" if name == "T5" else "model.shared.weight"
    assert not old[name].equal(new[name])


def test_two_tokenizers_are_not_written_as_one(tmp_path):
    _, run = imported(tmp_path, "T5")
    text = json.loads(run.objective.target.state()["tokenizer.json"])
    run.objective.target.load_state(
        {"tokenizer.json": json.dumps({**text, "truncation": None}, indent=3)}
    )
    with pytest.raises(UsageError, match="several tokenizers"):
        to_hf(run, tmp_path / "back")
    assert not (tmp_path / "back").exists()


def test_the_vectors_of_a_run_are_of_the_encoder(tmp_path):
    theirs, run = imported(tmp_path, "Bart")
    with torch.no_grad():
        right = (
            theirs.get_encoder()(torch.tensor([[3, 7, 11, 5, 20]])).last_hidden_state[0].mean(dim=0)
        )
    (got,) = vectors(run, [seqkit.data.inputs.Input("one", TEXTS[0])])
    torch.testing.assert_close(got.values, right, rtol=0, atol=1e-4 * float(right.abs().max()))


HERE = {"tie_word_embeddings"}
"""The other of two keys that say it: in T5 v1.1 `scale_decoder_outputs`, in mT5 neither."""


@pytest.mark.parametrize(
    ("name", "held", "more"),
    [
        ("Bart", {}, []), ("Marian", {"forced_bos_token_id": 9}, [9]), ("T5", {"forced_bos_token_id": 4}, [4]),
        ("M2M100", {"forced_bos_token_id": 7}, [7]), ("MBart", {"forced_bos_token_id": 7}, [7]),
    ],
)  # fmt: skip
def test_the_id_that_a_file_forces_is_written_first_and_no_other(tmp_path, name, held, more):
    theirs, folder = theirs_of(tmp_path, name)
    path = folder / "generation_config.json"
    values = {**json.loads(path.read_text()), "forced_bos_token_id": None, **held}
    path.write_text(json.dumps(values))
    import_model(folder, tmp_path / "run", name)
    run = load_one(tmp_path / "run")
    first = MODELS[name][1]["decoder_start_token_id"]
    assert run.objective.start_ids == [first, *more]
    theirs.generation_config = transformers.GenerationConfig.from_pretrained(folder)
    inputs = {key: x[:1] for key, x in given(tmp_path, run, name).items()}
    mask = inputs["attention_mask"][0].bool()
    inputs = {key: x[:, mask] for key, x in inputs.items()}
    greedy = {"max_new_tokens": 8, "num_beams": 1, "do_sample": False}
    written = theirs.generate(**inputs, **greedy)[0].tolist()
    assert written[: 1 + len(more)] == [first, *more]
    found = generate_texts(run, TEXTS[:1], 8, strategy=Sampling(temperature=0))
    ids = [i for i in written[1 + len(more) :] if i != run.objective.eos_id]
    # special ids are not written
    assert found[0].split()[:2] == [f"w{i}" for i in ids if i not in (first, *more)][:2]


def test_settings_of_generation_that_are_not_read_are_named(tmp_path, caplog):
    _, folder = theirs_of(tmp_path, "Pegasus")
    path = folder / "generation_config.json"
    held = json.loads(path.read_text())
    path.write_text(json.dumps({**held, "num_beams": 1, "min_length": 0, "length_penalty": 1.0}))
    settings(folder, "Seq2Seq")
    assert "texts may differ" not in caplog.text
    path.write_text(json.dumps({**held, "num_beams": 4, "no_repeat_ngram_size": 3}))
    settings(folder, "Seq2Seq")
    assert "not read, so texts may differ: no_repeat_ngram_size=3" in caplog.text


@pytest.mark.parametrize("name", MODELS)
def test_another_value_of_any_key_is_another_model_or_refused(tmp_path, name):
    _, folder = theirs_of(tmp_path, name)
    assert_any_other_value_counts(folder, "Seq2Seq", HERE)


@pytest.mark.parametrize("name", [name for name in MODELS if " " not in name])
@pytest.mark.parametrize("task", ["Seq2Seq", "Features"])
def test_keys_that_are_not_written_have_the_values_of_the_library(tmp_path, name, task):
    _, folder = theirs_of(tmp_path, name)
    whole = getattr(transformers, f"{name}Config")().to_dict()
    (folder / "generation_config.json").unlink()
    if name == "Whisper":
        transformers.WhisperFeatureExtractor().save_pretrained(folder)
    found = []
    for held in (whole, {"model_type": whole["model_type"]}):
        (folder / "config.json").write_text(json.dumps(held))
        found.append(settings(folder, task)["model"])
    assert found[0] == found[1]


def test_files_of_old_names_and_without_a_head_say_the_same(tmp_path):
    _, folder = theirs_of(tmp_path, "Bart")
    held = load_file(folder / "model.safetensors")
    import_model(folder, tmp_path / "run", "bart")
    right = load_one(tmp_path / "run").model.state_dict()
    bias = held.pop("final_logits_bias")
    old = {name.removeprefix("model."): x for name, x in held.items()}
    old |= {
        f"{side}.embed_tokens.weight": old["shared.weight"].clone()
        for side in ("encoder", "decoder")
    }
    save_file(old, folder / "model.safetensors")
    import_model(folder, tmp_path / "old", "bart")
    got = load_one(tmp_path / "old").model.state_dict()
    assert bias.abs().max() > 0
    assert all(got[name].equal(x) for name, x in right.items() if name != "head.bias")
    assert got["head.bias"].eq(0).all()


@pytest.mark.parametrize(
    ("name", "file", "keys", "said"),
    [
        ("Marian", "config", {"share_encoder_decoder_embeddings": False}, "share_encoder_decoder_embeddings"),
        ("Marian", "generation_config", {"bad_words_ids": [[3, 4]]}, "bad_words_ids is .* lists of one id"),
        ("Bart", "config", {"tie_word_embeddings": False}, "tie_word_embeddings is False"),
        ("Bart", "generation_config", {"eos_token_id": [2, 3]}, "eos_token_id is .* one id"),
        ("Bart", "generation_config", {"decoder_start_token_id": "<s>"}, "decoder_start_token_id is '<s>'"),
        ("T5", "config", {"feed_forward_proj": "gated-maxout"}, "feed_forward_proj is 'gated-maxout'"),
        ("Whisper", "generation_config", {"lang_to_id": {"<|en|>": "x"}}, "a transcript begins with"),
        ("Bart", "config", {"max_position_embeddings": 1}, "its weights and its config.json disagree"),
        ("Whisper", "config", {"max_source_positions": 51}, "multiple of 50"),
    ],
)  # fmt: skip
def test_a_setting_that_is_not_read_is_refused_in_one_line(tmp_path, name, file, keys, said):
    _, folder = theirs_of(tmp_path, name)
    path = folder / f"{file}.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **keys}))
    with pytest.raises(DataError, match=said) as refused:
        import_model(folder, tmp_path / "run", name)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "run").exists()


def test_a_folder_without_a_tokenizer_is_refused(tmp_path):
    _, folder = theirs_of(tmp_path, "Whisper")
    (folder / "tokenizer.json").unlink()
    with pytest.raises(DataError, match=r"has no tokenizer\.json"):
        import_model(folder, tmp_path / "run", "whisper")
