"""A small trained run for the tests that need one in a folder."""

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

import seqkit

TEXT = "to be, or not to be, that is the question: a sea of troubles, and by opposing end them. "


@cache
def kept_run() -> str:
    """Folder of a language model of characters, which stays until Python ends."""
    folder = Path(tempfile.mkdtemp(prefix="seqkit-run-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / "text.txt").write_text(TEXT * 30)
    settings = {"data": str(folder / "text.txt"), "data.window": 16, "trainer.max_steps": 3}
    seqkit.fit("text/char-lm", settings, preset="debug", out=folder / "run", report=False)
    return str(folder / "run")
