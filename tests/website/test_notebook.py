"""Notebooks: cells are read, run and written as Jupyter would; and those of the documentation run."""

import json
import pickle
import sys

import pytest

from docs.website.notebook import cells, plain, run, write
from docs.website.stage import ROOT

SOURCE = """# %% [markdown]
# # Title
#
# Prose.

# %%
import matplotlib.pyplot as plt
class Thing:
    pass
print("said")
plt.plot([1, 2]);

# %%
2 + 3
"""


def test_cells_are_text_and_code_with_their_lines():
    found = cells(SOURCE)
    assert [(cell.is_code, cell.line) for cell in found] == [(False, 2), (True, 7), (True, 14)]
    assert found[0].text == "# Title\n\nProse."


def test_a_cell_shows_what_it_prints_its_last_value_and_its_figures(tmp_path):
    (path := tmp_path / "one.py").write_text(
        SOURCE.replace("plt.plot([1, 2]);", "_ = plt.plot([1, 2])")
    )
    main = sys.modules["__main__"]
    _, first, second = run(path, tmp_path)
    assert (first.printed, first.value, len(first.figures)) == ("said\n", "", 1)
    assert (second.printed, second.value, second.figures) == ("", "5", [])
    assert sys.modules["__main__"] is main


def test_an_error_names_the_line_of_the_notebook(tmp_path):
    (path := tmp_path / "one.py").write_text("# %%\nx = 1\n\n# %%\ny = 2\nx / 0\n")
    with pytest.raises(ZeroDivisionError) as raised:
        run(path, tmp_path)
    assert raised.value.__notes__ == ["in one.py, line 6"]


def test_classes_of_a_notebook_can_be_pickled(tmp_path):
    source = "# %%\nimport pickle\nclass Thing:\n    pass\ntype(pickle.loads(pickle.dumps(Thing()))).__name__\n"
    (path := tmp_path / "one.py").write_text(source)
    assert run(path, tmp_path)[0].value == "'Thing'"
    assert pickle.loads(pickle.dumps(3)) == 3


def test_the_page_and_the_notebook_file_hold_the_outputs(tmp_path):
    source = "# %% [markdown]\n# # One\n#\n# See [it](made/a.html) and [two](two.py).\n\n"
    source += "# %%\nfrom pathlib import Path\n"
    source += "Path('made').mkdir()\nPath('made/a.html').write_text('<p>a</p>')\n"
    (path := tmp_path / "one.py").write_text(source)
    (made := tmp_path / "pages").mkdir()
    write(path, made)
    page = (made / "one.md").read_text()
    assert "[it](one/made-a.html) and [two](two.md)" in page
    assert (made / "one" / "made-a.html").read_text() == "<p>a</p>"
    assert "```text\n8\n```" in page
    notebook = json.loads((made / "one.ipynb").read_text())
    assert [cell["cell_type"] for cell in notebook["cells"]] == ["markdown", "code"]


def test_a_progress_bar_leaves_its_last_state():
    assert plain("\x1b[31mred\x1b[0m\n 1/2\r 2/2\nend\n") == "red\n 2/2\nend"


# what Lightning says about our loaders and about settings that short examples leave alone
@pytest.mark.filterwarnings("ignore:.*does not have many workers")
@pytest.mark.filterwarnings("ignore:.*have no `val_dataloader`")
@pytest.mark.filterwarnings("ignore:.*smaller than the logging interval")
@pytest.mark.slow
@pytest.mark.parametrize(
    "path", sorted((ROOT / "docs" / "notebooks").glob("*.py")), ids=lambda path: path.stem
)
def test_a_notebook_runs_from_top_to_bottom(path, tmp_path):
    write(path, tmp_path)
    page = (tmp_path / f"{path.stem}.md").read_text(encoding="utf-8")
    assert page.split("\n\n")[1].startswith("After this notebook you can ")
    assert "Warning" not in page
