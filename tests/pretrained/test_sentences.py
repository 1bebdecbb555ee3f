"""Models of sentence-transformers: the vectors that their files say, or a refusal."""

import json

import pytest
import torch
from foreign_models import ENCODERS, saved
from safetensors.torch import load_file, save_file
from torch.testing import assert_close

from seqkit.data.inputs import Input
from seqkit.errors import DataError, UsageError
from seqkit.runs.answers import vectors
from seqkit.runs.exported import to_hf
from seqkit.runs.imported import import_model
from seqkit.runs.trained_model import load_one

OLD = "sentence_transformers.models"
TEXTS = ("w3 w7 w11 w2 w5", "w4 w9")
IDS = ([3, 7, 11, 2], [4, 9])
"""Of the texts, cut to four tokens."""
MODES = {
    "mean_tokens": lambda h: h.mean(dim=0),
    "cls_token": lambda h: h[0],
    "max_tokens": lambda h: h.amax(dim=0),
    "lasttoken": lambda h: h[-1],
    "weightedmean_tokens": lambda h: sum((i + 1) * x for i, x in enumerate(h)) / sum(range(len(h) + 1)),
    "mean_sqrt_len_tokens": lambda h: h.sum(dim=0) / len(h) ** 0.5,
}  # fmt: skip
"""Vectors of hidden states [n d], by the names of the poolings."""


def written(path, value):
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value))


def sentence_encoder(place, name="MPNet", *, pooling, kinds=("Pooling", "Normalize"), package=OLD):
    """Their model, and a folder as sentence-transformers saves it."""
    theirs = saved(place, name, ENCODERS[name])
    path = place / "config.json"  # as published files do, it names the class of another training
    held = json.loads(path.read_text())
    path.write_text(json.dumps({**held, "architectures": [f"{name}ForMaskedLM"]}))
    modules = [{"idx": 0, "name": "0", "path": "", "type": f"{package}.Transformer"}]
    for i, kind in enumerate(kinds, 1):
        modules.append({"idx": i, "path": f"{i}_{kind}", "type": f"{package}.{kind}"})
    written(place / "modules.json", modules)
    written(place / "1_Pooling" / "config.json", pooling)
    written(place / "sentence_bert_config.json", {"max_seq_length": 4, "do_lower_case": False})
    return theirs


def imported(place):
    import_model(place, place.parent / "run", "theirs")
    run = load_one(place.parent / "run")
    return run, torch.stack([x.values for x in vectors(run, [Input(text, text) for text in TEXTS])])


def hidden(theirs):
    with torch.no_grad():
        return [theirs(torch.tensor([ids])).last_hidden_state[0] for ids in IDS]


@pytest.mark.parametrize(("name", "mode"), [
    ("Bert", "cls_token"), ("MPNet", "mean_tokens"), ("DistilBert", "max_tokens"), ("Albert", "lasttoken"),
    ("DebertaV2", "weightedmean_tokens"), ("Camembert", "mean_sqrt_len_tokens"),
])  # fmt: skip
def test_each_pooling_of_hidden_states_is_theirs(tmp_path, name, mode):
    modes = {f"pooling_mode_{each}": each == mode for each in MODES}
    theirs = sentence_encoder(tmp_path / "theirs", name, pooling=modes)
    run, found = imported(tmp_path / "theirs")
    right = torch.stack([MODES[mode](h) for h in hidden(theirs)])
    assert_close(found, right / right.norm(dim=1, keepdim=True), rtol=0, atol=1e-5)
    with pytest.raises(UsageError, match="Features has nothing to learn"):
        run.objective.check_trainable()


@pytest.mark.parametrize(
    "pooling",
    [{"embedding_dimension": 24, "pooling_mode": "lasttoken"}, {"pooling_mode": ["lasttoken"]}],
)
def test_files_of_newer_versions_name_the_pooling_once(tmp_path, pooling):
    package = "sentence_transformers.sentence_transformer.modules"
    folder = tmp_path / "theirs"
    theirs = sentence_encoder(folder, pooling=pooling, kinds=("Pooling",), package=package)
    (folder / "sentence_bert_config.json").unlink()
    written(folder / "tokenizer_config.json", {"model_max_length": 4})
    _, found = imported(folder)
    assert_close(found, torch.stack([h[-1] for h in hidden(theirs)]), rtol=0, atol=1e-5)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("activation", [torch.nn.Tanh, torch.nn.Identity])
def test_a_linear_layer_behind_the_pooling(tmp_path, bias, activation):
    folder = tmp_path / "theirs"
    kinds = ("Pooling", "Dense", "Normalize")
    theirs = sentence_encoder(folder, pooling={"pooling_mode_cls_token": True}, kinds=kinds)
    torch.manual_seed(5)
    linear = torch.nn.Linear(24, 7, bias=bias)
    kind = f"{activation.__module__}.{activation.__name__}"
    sizes = {"in_features": 24, "out_features": 7, "bias": bias, "activation_function": kind}
    written(folder / "2_Dense" / "config.json", sizes)
    held = {f"linear.{name}": x for name, x in linear.state_dict().items()}
    save_file(held, folder / "2_Dense" / "model.safetensors")
    run, found = imported(folder)
    with torch.no_grad():
        right = activation()(linear(torch.stack([h[0] for h in hidden(theirs)])))
    assert_close(found, right / right.norm(dim=1, keepdim=True), rtol=0, atol=1e-5)
    assert to_hf(run, tmp_path / "back") == sorted(f"head.projection.{name}" for name in held)
    assert not (tmp_path / "back" / "modules.json").exists()
    save_file({"linear.other": held["linear.weight"]}, folder / "2_Dense" / "model.safetensors")
    with pytest.raises(DataError, match=r"head\.projection"):
        import_model(folder, tmp_path / "other", "theirs")


def test_the_files_are_written_back(tmp_path):
    folder = tmp_path / "theirs"
    sentence_encoder(folder, pooling={"pooling_mode_cls_token": True})
    run, found = imported(folder)
    assert to_hf(run, tmp_path / "back") == []
    for name in ("modules.json", "sentence_bert_config.json", "1_Pooling/config.json"):
        assert (tmp_path / "back" / name).read_bytes() == (folder / name).read_bytes()
    theirs, back = (load_file(place / "model.safetensors") for place in (folder, tmp_path / "back"))
    assert all(theirs[name].equal(x) for name, x in back.items())
    import_model(tmp_path / "back", tmp_path / "again", "back")
    again = vectors(load_one(tmp_path / "again"), [Input(text, text) for text in TEXTS])
    assert_close(torch.stack([x.values for x in again]), found, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("file", "value", "said"),
    [
        ("1_Pooling/config.json", {"pooling_mode": "attention"}, r"pooling \['attention'\]"),
        ("1_Pooling/config.json", {"pooling_mode": ["cls", "mean"]}, r"pooling \['cls', 'mean'\]"),
        ("1_Pooling/config.json", {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}, "is not read"),
        ("sentence_bert_config.json", {"do_lower_case": True}, "do_lower_case is true"),
        ("config_sentence_transformers.json", {"default_prompt_name": "query"}, "default_prompt_name is 'query'"),
        ("modules.json", [{"type": f"{OLD}.Transformer", "path": "0_Transformer"}], "Transformer in 0_Transformer"),
        ("modules.json", [{"type": f"{OLD}.Transformer"}, {"type": f"{OLD}.Normalize", "path": "1"}], "in this order"),
        ("modules.json", [{"type": f"{OLD}.Transformer"}, {"type": f"{OLD}.CNN", "path": "1"}], "Transformer, CNN are"),
        ("modules.json", [{"type": f"{OLD}.Transformer"}, {"type": f"{OLD}.Pooling", "path": "../x"}], "in ../x"),
    ],
)  # fmt: skip
def test_what_is_not_read_is_refused_in_one_line(tmp_path, file, value, said):
    folder = tmp_path / "theirs"
    sentence_encoder(folder, pooling={"pooling_mode_cls_token": True})
    written(folder / file, value)
    with pytest.raises(DataError, match=said) as refused:
        import_model(folder, tmp_path / "run", "theirs")
    assert "\n" not in str(refused.value)


def test_a_linear_layer_with_a_residual_is_refused(tmp_path):
    folder = tmp_path / "theirs"
    sentence_encoder(folder, pooling={"pooling_mode": "mean"}, kinds=("Pooling", "Dense"))
    written(folder / "2_Dense" / "config.json", {"out_features": 24, "use_residual": True})
    with pytest.raises(DataError, match="use_residual True"):
        import_model(folder, tmp_path / "run", "theirs")
