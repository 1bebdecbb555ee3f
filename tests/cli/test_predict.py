"""`seqkit predict`: predictions for raw files, by a program that loads no more than it needs."""

import subprocess
import sys

import numpy as np
from PIL import Image

import seqkit
from seqkit.data import read_image

PREDICT = """
import sys
from seqkit.cli.main import main
code = main(["predict", *sys.argv[1:]])
heavy = {"torch", "pytorch_lightning", "lightning_fabric", "torchmetrics", "torchvision"}
print(code, *sorted(heavy & set(sys.modules)))
"""


def test_a_file_gets_its_prediction_without_lightning(tmp_path):
    quick = {"trainer.enable_progress_bar": False, "trainer.accelerator": "cpu"}
    run = seqkit.fit("image/digits", quick, preset="debug", out=tmp_path / "run")
    image = np.random.default_rng(0).integers(0, 256, (8, 8), dtype=np.uint8)
    Image.fromarray(image).save(tmp_path / "x.png")
    command = [sys.executable, "-c", PREDICT, str(run.folder), str(tmp_path / "x.png")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    (name, prediction), (modules,) = (line.split("\t") for line in done.stdout.splitlines())
    expected = run.predict([read_image(tmp_path / "x.png", channels=1)])
    assert (name, prediction) == (str(tmp_path / "x.png"), str(expected[0]))
    assert modules == "0 torch"
