import subprocess
import sys

CODE = """
import sys
from seqkit.registry import components, find
assert "cora" in components("data_source") and "seqkit.recipes" not in sys.modules
print(find("data_source", "cmudict").load().__name__, *(name for name in sys.modules if "seqkit.recipes." in name))
"""


def test_the_file_of_the_named_set_is_imported_and_no_other():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["CMUdict", "seqkit.recipes.text", "seqkit.recipes.text.cmudict"]
