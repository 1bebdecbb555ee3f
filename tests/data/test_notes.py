"""What is said of the data stays with the data module, and the sentences that bear on the result are told apart."""

import logging
import pickle

from seqkit.data import DataModule, Table
from seqkit.data.notes import Caution, Notes
from seqkit.data.tables.schema import Given
from seqkit.objectives import Classify
from seqkit.tokenizers import Bytes


def test_what_setup_says_of_the_data_is_kept_with_the_data(tmp_path, caplog):
    (tmp_path / "t.csv").write_text(
        "text,label,place\n" + "".join(f"a {i % 9},{'ab'[i % 3 > 0]},x\n" for i in range(40))
    )
    data = DataModule(
        Table(str(tmp_path / "t.csv"), Given(input="text", target="label")), Bytes(), Classify()
    )
    data.setup()
    data.setup()
    assert data.notes.lines == caplog.messages[-len(data.notes.lines) :]
    assert [line for line in data.notes.lines if "not used: 'place' (every cell is 'x')" in line]
    (repeated,) = data.notes.cautions
    assert "8 of 8 test inputs are in training, too" in repeated
    assert pickle.loads(pickle.dumps(data)).notes == data.notes


def test_what_is_kept_is_still_shown(monkeypatch, capsys):
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # as on the command line
    log, notes = logging.getLogger("seqkit"), Notes()
    with notes.kept():
        log.warning("the rows are %s", "few")
        log.warning(Caution("100% of them are equal"))
        log.info("read")
    log.warning("later")
    assert capsys.readouterr().err == "the rows are few\n100% of them are equal\nlater\n"
    assert notes == Notes(
        ["the rows are few", "100% of them are equal"], ["100% of them are equal"]
    )
