"""`generation_config.json`: models write as they were published to, flags come before it, and no key is skipped."""

import json

import pytest
import torch
import transformers
from foreign_models import DECODERS, VOCAB, saved, short_run
from parity import doubled

from seqkit.cli.main import main
from seqkit.errors import DataError
from seqkit.generation import BeamSearch, Sampling
from seqkit.generation.prompts_to_text import generate_texts, stream_text
from seqkit.pretrained.folder import settings
from seqkit.runs.imported import import_model
from seqkit.runs.trained_model import load_one

IDS = [3, 7, 11]
PROMPT = "w3 w7 w11"
GREEDY = {"do_sample": False, "max_new_tokens": 9}


def published(folder, **keys):
    """Their model, and its folder with those keys of generation alone."""
    folder.mkdir(exist_ok=True)
    theirs = saved(folder, "Qwen2", DECODERS["Qwen2"], "ForCausalLM", std=0.4)
    (folder / "generation_config.json").write_text(json.dumps(keys))
    return theirs


def imported(place, **keys):
    theirs = published(place / "theirs", **keys)
    import_model(place / "theirs", place / "run", "theirs")
    run = load_one(place / "run")
    run.model.double()
    return doubled(theirs), run


def written(theirs, **keys):
    """Ids that their library writes behind the prompt."""
    config = transformers.GenerationConfig(**keys, pad_token_id=VOCAB - 1)
    found = theirs.generate(torch.tensor([IDS]), generation_config=config)[0, len(IDS) :]
    return found.tolist()


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"repetition_penalty": 1.9},
        {"suppress_tokens": [*range(20)]},
        {"begin_suppress_tokens": [*range(1, VOCAB)], "bad_words_ids": [[4], [9]]},
        {"num_beams": 3},
        {"num_beams": 4, "suppress_tokens": [*range(0, 12, 2)], "early_stopping": "never"},
        {"num_beams": 4, "bad_words_ids": [[5], [7], [8], [20]], "early_stopping": "never"},
        {"num_beams": 4, "begin_suppress_tokens": [*range(9)], "early_stopping": "never"},
        {"num_beams": 4, "length_penalty": 2.5, "early_stopping": "never"},
        {"num_beams": 4, "length_penalty": 2.5, "early_stopping": False},
        {"num_beams": 4, "length_penalty": 2.5, "early_stopping": True},
    ],
)
def test_a_text_is_that_of_their_library(tmp_path, keys):
    theirs, run = imported(tmp_path, **GREEDY, **keys)
    ids = written(theirs, **GREEDY, **keys)
    if keys:
        assert ids != written(theirs, **GREEDY)
    # each of two of its own ids ends it, where it comes
    for stop in ([ids[4], ids[6]], ids[5], []):
        kept = {"eos_token_id": stop} if stop else {}
        path = run.folder / "pretrained" / "generation_config.json"
        path.write_text(json.dumps({**GREEDY, **keys, **kept}))
        right = written(theirs, **GREEDY, **keys, **kept)
        if stop and right[-1] in (stop if isinstance(stop, list) else [stop]):
            right = right[:-1]
        assert generate_texts(run, [PROMPT])[0].split() == [f"w{i}" for i in right]


@pytest.mark.slow
def test_the_command_writes_as_published_and_flags_come_first(tmp_path, capsys):
    theirs, run = imported(tmp_path, **GREEDY, eos_token_id=[3])
    run.model.float()

    def said(*flags):
        assert main(["generate", str(run.folder), "--prompt", PROMPT, *flags]) == 0
        return capsys.readouterr().out.split()[len(IDS) :]

    ids = [f"w{i}" for i in written(theirs, **GREEDY)]
    assert said() == ids
    assert said("--tokens", "4") == ids[:4]
    assert said("--temperature", "1.5") != ids
    beams = generate_texts(run, [PROMPT], strategy=BeamSearch(3))[0].split()
    assert said("--num-beams", "3") == beams


@pytest.mark.parametrize(
    ("keys", "right"),
    [
        # what do_sample stands for in their library, where no more is said
        ({"do_sample": True}, Sampling(temperature=1.0, top_k=50)),
        ({"do_sample": True, "top_k": 0, "min_p": 0.1}, Sampling(min_p=0.1)),
        ({"do_sample": True, "temperature": 0.6, "top_p": 0.9}, Sampling(0.6, 50, 0.9)),
        ({"do_sample": True, "num_beams": 4}, Sampling(top_k=50)),
        ({"do_sample": False, "temperature": 0.6}, Sampling(temperature=0)),
        ({"repetition_penalty": 1.1, "top_k": 7}, Sampling(top_k=7, repetition_penalty=1.1)),
        ({"num_beams": 2, "length_penalty": 0.3}, BeamSearch(2, 0.3, False)),
        ({"num_beams": 2, "early_stopping": True}, BeamSearch(2, early_stopping=True)),
    ],
)
def test_settings_are_read_as_their_library_means_them(tmp_path, keys, right):
    _, run = imported(tmp_path, **keys)
    assert run.published.strategy() == right


def test_ids_of_no_token_end_nothing(tmp_path):
    _, run = imported(tmp_path, eos_token_id=[50_256, 3], suppress_tokens=[50_257])
    found = run.published
    assert (found.stop, found.never) == ((3,), ())
    assert list(stream_text(run, PROMPT, 2))


@pytest.mark.slow
def test_ids_of_another_tokenizer_mean_nothing(tmp_path):
    published(tmp_path / "theirs", eos_token_id=3)
    (tmp_path / "notes.txt").write_text("so much for that. " * 90)
    given = {"model.init": str(tmp_path / "theirs"), "data": str(tmp_path / "notes.txt")}
    run = short_run("text/char-lm", {**given, "tokenizer": "Bytes"}, tmp_path / "run")
    assert run.published.stop == ()
    text = " ".join(f"w{i % 29}" for i in range(900))
    (tmp_path / "notes.txt").write_text(text)
    run = short_run("text/char-lm", {**given, "data.window": 16}, tmp_path / "other")
    assert run.published.stop == (3,)


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"no_repeat_ngram_size": 3, "do_sample": True}, "no_repeat_ngram_size=3"),
        ({"num_beams": 4, "do_sample": True}, "num_beams=4"),
        ({"num_beams": 4, "repetition_penalty": 1.2}, "repetition_penalty=1.2"),
        ({"length_penalty": 2.0}, "length_penalty=2.0"),
        ({"max_length": 4096}, "max_length=4096"),
        ({"guidance_scale": 1.5, "some_new_key": 2}, "guidance_scale=1.5, some_new_key=2"),
        ({"sequence_bias": [[[3], 2.0]]}, "sequence_bias="),
    ],
)
def test_keys_that_are_not_read_are_named(tmp_path, caplog, keys, named):
    published(tmp_path, **keys)
    settings(tmp_path, "NextToken")
    assert f"not read, so texts may differ: {named}" in caplog.text


def test_every_key_of_their_library_at_its_usual_value_says_nothing(tmp_path, caplog):
    whole = transformers.GenerationConfig().to_dict()
    usual = {**transformers.GenerationConfig._get_default_generation_params(), "num_beams": 1}
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": [2], "decoder_start_token_id": 0}
    published(tmp_path, **{**whole, **usual, **ids})
    settings(tmp_path, "NextToken")
    assert "texts may differ" not in caplog.text


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"eos_token_id": "</s>"}, "eos_token_id is '</s>', .*an id, or a list of ids"),
        ({"eos_token_id": [2, None]}, "eos_token_id is"),
        ({"temperature": "warm"}, "temperature is 'warm', .*a number"),
        ({"temperature": -1}, "temperature=-1"),
        ({"top_p": 7}, "top_p=7"),
        ({"top_k": 2.5}, "top_k=2.5"),
        ({"num_beams": "many"}, "num_beams is 'many'"),
        ({"num_beams": 0}, "num_beams=0"),
        ({"num_beams": 3, "early_stopping": "soon"}, "early_stopping='soon'"),
        ({"do_sample": "yes"}, "do_sample is 'yes'"),
        ({"max_new_tokens": 0}, "max_new_tokens is 0"),
        ({"suppress_tokens": {"a": 1}}, "suppress_tokens is"),
        ({"bad_words_ids": 3}, "bad_words_ids is 3"),
        ({"bad_words_ids": [["a"]]}, "bad_words_ids is"),
    ],
)
def test_a_value_that_means_nothing_is_refused_in_one_line(tmp_path, keys, said):
    published(tmp_path, **keys)
    with pytest.raises(DataError, match=said) as refused:
        settings(tmp_path, "NextToken")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("text", ["[1]", "3", "{", "null", '"x"'])
def test_a_file_of_no_settings_is_refused(tmp_path, text):
    published(tmp_path)
    (tmp_path / "generation_config.json").write_text(text)
    with pytest.raises(DataError, match=r"generation_config\.json .*copy it again"):
        settings(tmp_path, "NextToken")
