"""A training that begins with the weights of a run: what is taken, what is new, what is refused."""

import shutil

import pytest
import torch
from runs.stopping import Kick, differences, with_callback

from seqkit.config import complete
from seqkit.errors import Interrupted, UsageError
from seqkit.files import read_mapping
from seqkit.runs.mixture import load
from seqkit.runs.prepare import prepare
from seqkit.runs.run import resume_run, run

QUIET = {"trainer.enable_progress_bar": False, "data.limit": 20, "trainer.max_epochs": 1}


def digits(**changes):
    words = {name.replace("__", "."): value for name, value in changes.items()}
    return complete("image/digits", "debug", {**QUIET, **words})


def texts(tmp_path, content, **changes):
    path = tmp_path / f"{len(list(tmp_path.iterdir()))}.txt"
    path.write_text(content * 60)
    words = {name.replace("__", "."): value for name, value in changes.items()}
    config = {"data.source": str(path), **QUIET, "trainer.max_steps": 2, **words}
    return complete("text/char-lm", "debug", config)


def weights_of(folder):
    return load(folder).model.state_dict()


def is_equal(ours, theirs, prefix):
    names = [name for name in ours if name.startswith(prefix)]
    assert names
    return all(torch.equal(ours[name], theirs[name]) for name in names)


def test_a_head_over_ids_of_other_tokens_is_new_though_it_has_the_same_shape(tmp_path):
    def settings(alphabet):
        return {"tokenizer": {"type": "Characters", "alphabet": alphabet}}

    run(texts(tmp_path, "a cab. ", **settings(" .abc")), tmp_path / "run")
    begun = prepare(
        texts(tmp_path, "x yz. ", **settings(" .xyz"), model__init=str(tmp_path / "run"))
    )
    assert begun.initial["taken"] == ["backbone"]
    assert not is_equal(begun.model.state_dict(), weights_of(tmp_path / "run"), "head.")


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    folder = tmp_path_factory.mktemp("init") / "run"
    run(digits(), folder)
    return folder


@pytest.mark.slow
def test_of_another_objective_the_body_is_taken_and_the_head_is_new(tmp_path):
    run(digits(model__objective={"type": "Masked"}), tmp_path / "run")
    trained = weights_of(tmp_path / "run")
    begun = prepare(digits(model__init=str(tmp_path / "run")))
    fresh = prepare(digits()).model
    ours = begun.model.state_dict()
    assert is_equal(ours, trained, "backbone.")
    assert is_equal(ours, trained, "embedder.")
    assert is_equal(ours, fresh.state_dict(), "head.")
    assert (begun.initial["taken"], begun.initial["new"]) == (["backbone", "embedder"], ["head"])


@pytest.mark.slow
def test_of_the_same_recipe_all_is_taken_and_the_run_says_so(classifier, tmp_path):
    begun = prepare(digits(model__init=str(classifier), seed=5))
    assert is_equal(begun.model.state_dict(), weights_of(classifier), "")
    assert begun.initial["new"] == []
    summary = run(digits(model__init=str(classifier), seed=5), tmp_path / "run")
    known = read_mapping(classifier / "summary.json")
    assert summary["initial"] == {
        "run": str(classifier), "sha256": known["sha256"], "taken": ["backbone", "embedder", "head"], "new": []
    }  # fmt: skip
    assert (
        f"weights of {classifier}: backbone, embedder, head; new: nothing"
        in (tmp_path / "run/log.txt").read_text()
    )


@pytest.mark.slow
def test_the_folder_of_the_weights_may_go_once_training_has_begun(classifier, tmp_path):
    source = shutil.copytree(classifier, tmp_path / "source")
    run(digits(model__init=str(source)), tmp_path / "run")
    shutil.rmtree(source)
    trained = load(tmp_path / "run")
    assert len(trained.predict([torch.zeros(1, 28, 28)])) == 1
    # as a resumed run is
    again = prepare(trained.config, state=read_mapping(tmp_path / "run" / "state.json"))
    assert again.initial["run"] == str(source)


@pytest.mark.slow
def test_a_run_that_was_stopped_goes_on_without_the_folder_of_the_weights(classifier, tmp_path):
    source = shutil.copytree(classifier, tmp_path / "source")
    config = digits(model__init=str(source), trainer__max_epochs=4)
    run(config, tmp_path / "whole")
    with with_callback(Kick(3)), pytest.raises(Interrupted):
        run(config, tmp_path / "stopped")
    shutil.rmtree(source)
    summary = resume_run(tmp_path / "stopped", {})
    assert not differences(tmp_path / "whole", tmp_path / "stopped")
    assert summary["initial"]["run"] == str(source)


def test_a_vocabulary_is_taken_with_the_ids_that_it_gave(tmp_path):
    run(texts(tmp_path, "the cat sat on a mat. "), tmp_path / "run")
    begun = prepare(texts(tmp_path, "a mat sat on the cat. ", model__init=str(tmp_path / "run")))
    theirs = load(tmp_path / "run")
    assert begun.data.tokenizer.state() == theirs.tokenizer.state()
    assert is_equal(begun.model.state_dict(), theirs.model.state_dict(), "")


def test_of_other_tokens_the_embedder_is_new(tmp_path):
    run(texts(tmp_path, "the cat sat on a mat. "), tmp_path / "run")
    begun = prepare(
        texts(tmp_path, "the cat sat. ", tokenizer="Bytes", model__init=str(tmp_path / "run"))
    )
    theirs = weights_of(tmp_path / "run")
    assert is_equal(begun.model.state_dict(), theirs, "backbone.")
    assert begun.initial["taken"] == ["backbone"]
    assert begun.initial["new"][0] == "embedder"


@pytest.mark.slow
def test_a_part_that_both_have_brings_its_embedder(tmp_path):
    def pairs(preset, **words):
        settings = {name.replace("__", "."): value for name, value in words.items()}
        small = {"data.augment": None, "data.limit": 100, "trainer.max_epochs": 1}
        return complete("multimodal/av-digits", preset, {**QUIET, **small, **settings})

    run(pairs("clip"), tmp_path / "run")
    source = load(tmp_path / "run")
    backbone = source.config["model"]["backbone"]
    parts = {name: source.config["tokenizer"]["parts"][name] for name in ("image", "sound")}
    config = pairs(None, model__init=str(tmp_path / "run"))
    config = {
        **config, "tokenizer": {**config["tokenizer"], "parts": parts},
        "model": {**config["model"], "backbone": backbone, "position": source.config["model"]["position"]},
    }  # fmt: skip
    begun = prepare(complete(config))
    ours, theirs = begun.model.state_dict(), source.model.state_dict()
    for prefix in ("backbone.", "embedder.parts.image.", "embedder.parts.sound."):
        assert is_equal(ours, theirs, prefix)
    assert begun.initial["taken"] == ["backbone", "embedder of image", "embedder of sound"]
    assert begun.initial["new"] == ["head", "vectors of the modalities"]


def test_a_backbone_that_is_otherwise_built_is_refused(classifier):
    with pytest.raises(UsageError, match=r"model\.init .*model\.backbone"):
        prepare(digits(model__init=str(classifier), model__backbone__depth=5))
    with pytest.raises(UsageError, match=r"model\.init .*shape"):
        prepare(digits(model__init=str(classifier), model__backbone__dim=72))


@pytest.mark.slow
def test_what_is_no_trained_run_is_refused_in_one_line(tmp_path):
    for place in (tmp_path / "nothing", tmp_path):
        with pytest.raises(UsageError, match="is no run") as refused:
            prepare(digits(model__init=str(place)))
        assert "\n" not in str(refused.value)
    mixture = complete(
        "mixture/four", "debug", {"tasks.image.model.init": str(tmp_path)}, may_mix=True
    )
    with pytest.raises(UsageError, match=r"tasks\..*model\.init"):
        prepare(mixture)
