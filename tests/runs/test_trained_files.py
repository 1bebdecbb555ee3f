"""What a trained run's files say of where it was trained."""

from importlib.metadata import PackageNotFoundError

import torch

from seqkit.runs import trained_files


def test_a_summary_says_which_machine_and_which_libraries_decided():
    found = trained_files.machine()
    assert found["threads"] == torch.get_num_threads()
    assert {"cpu", "cores", "accelerator", "system"} < {*found}
    assert {"scikit-learn", "scipy", "torchmetrics", "pillow"} < {*trained_files.versions()}


def test_a_package_without_metadata_has_an_unknown_version(monkeypatch):
    """As seqkit itself in a source tree: a training must not fail after its last step."""

    def version(name):
        if name == "seqkit":
            raise PackageNotFoundError(name)
        return "1.2"

    monkeypatch.setattr(trained_files, "version", version)
    found = trained_files.versions()
    assert (found["seqkit"], found["torch"]) == ("unknown", "1.2")
