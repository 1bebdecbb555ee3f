"""Sharded weights in two processes: steps, checkpoints and refusals are those of whole weights."""

import json
import warnings
from functools import partial
from pathlib import Path

import pytest
import torch
from reliability.in_processes import ranks
from runs.two_processes import needs_forks
from torch import nn
from training import sharded_worker

from seqkit.backbones import EncoderDecoder, Transformer
from seqkit.backbones.reversible import Reversible
from seqkit.errors import UsageError
from seqkit.nn.block import PreNormBlock
from seqkit.training.callbacks import EMA
from seqkit.training.checkpoint_io import read_checkpoint
from seqkit.training.optim import AdamW, Muon, TorchOptimizer
from seqkit.training.parallel import ELEMENTWISE, check_sharding
from seqkit.training.trainer import TrainerSettings, make_trainer


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What two processes found (`sharded_worker`)."""
    folder = tmp_path_factory.mktemp("sharded")
    in_processes(partial(sharded_worker.find, folder), 2, tmp_path_factory.mktemp("said"))
    return json.loads((folder / "results.json").read_text())


def in_processes(find, number, said):
    def work(rank):
        torch.set_num_threads(1)
        warnings.simplefilter("default")
        find()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking where torch's threads wait
        ended = [process.ended() for process in ranks(work, number, said)]
    assert [one.code for one in ended] == [0] * number, ended


@needs_forks
class TestTwoProcesses:
    def test_five_steps_on_parts_of_weights_are_those_on_weights(self, found):
        assert {name: found[name] for name in ELEMENTWISE if found[name] >= 1e-4} == {}

    def test_five_steps_of_muon_are_those_on_whole_matrices(self, found):
        """An update of a part that is made orthogonal by itself differs by half of it."""
        assert found["Muon"] < 1e-2

    def test_gathered_weights_are_the_models_and_tied_where_they_were(self, found):
        assert found["gathered"]
        assert found["tied"]

    def test_a_checkpoint_comes_back_to_the_bit_from_one_file(self, found):
        assert found["read back"]
        assert found["files"] == ["resume-step=5.ckpt", "resume-step=5.ckpt.json"]

    def test_each_block_is_sharded_alone(self, found):
        assert found["blocks"] == [True] * 5

    @pytest.mark.slow
    def test_a_checkpoint_passed_on_by_other_numbers_of_processes_stays_to_the_bit(
        self, found, tmp_path
    ):
        first = point = Path(found["point"])
        for i, number in enumerate((1, 4, 2)):
            source, point = point, tmp_path / f"resume-step={i}.ckpt"
            in_processes(partial(sharded_worker.reshard, source, point, number), number, tmp_path)
        assert sharded_worker.same(read_checkpoint(first), read_checkpoint(point))

    def test_both_processes_say_that_a_part_of_one_is_not_finite(self, found):
        assert found["not finite"][0] == found["not finite"][1]
        assert "weight is not finite after step 3" in found["not finite"][0]


def model():
    return nn.Sequential(Transformer(12, 2, num_heads=2))


def check_sharding_of(one=None, optimizer=None, *, generates=False, **settings):
    given = {"callbacks": None, "compile": False, **settings}
    check_sharding(one or model(), optimizer or AdamW(), given, generates=generates)


def test_what_is_not_known_to_be_right_with_sharded_weights_is_refused_with_what_to_use():
    with pytest.raises(UsageError, match="Adafactor"):
        check_sharding_of(optimizer=TorchOptimizer(torch.optim.Adafactor))
    with pytest.raises(UsageError, match="EMA"):
        check_sharding_of(callbacks=[EMA()])
    with pytest.raises(UsageError, match=r"trainer\.compile"):
        check_sharding_of(compile=True)
    with pytest.raises(UsageError, match="limit_val_batches 0"):
        check_sharding_of(generates=True)
    with pytest.raises(UsageError, match=r"--trainer\.activation_checkpointing"):
        check_sharding_of(Reversible(12, 2, num_heads=2))
    scalar = model()
    scalar.eps = nn.Parameter(torch.zeros(()))
    with pytest.raises(UsageError, match="without axes"):
        check_sharding_of(scalar)


def test_what_is_known_to_be_right_is_taken():
    decoder = Transformer(
        12, 2, num_heads=2, causal=True, block=partial(PreNormBlock, cross_attention=True)
    )
    for optimizer in (AdamW(), Muon(), TorchOptimizer(torch.optim.SGD, lr=0.1)):
        check_sharding_of(optimizer=optimizer)
        check_sharding_of(EncoderDecoder(Transformer(12, 2, num_heads=2), decoder), optimizer)


@pytest.mark.parametrize("name", ["fsdp2", "fsdp_cpu_offload", "model_parallel"])
def test_other_names_for_it_are_refused_with_the_right_one(name):
    with pytest.raises(UsageError, match=r"trainer\.strategy"):
        TrainerSettings.of({"strategy": name})


def test_float16_is_refused_in_one_line():
    settings = {
        "accelerator": "cpu",
        "strategy": "fsdp",
        "devices": 1,
        "precision": "16-mixed",
        "max_steps": 1,
    }
    with pytest.raises(UsageError, match="16-mixed") as refused:
        make_trainer(settings, logger=False)
    assert "\n" not in str(refused.value)
