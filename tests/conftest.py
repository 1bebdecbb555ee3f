"""Shared by the tests: raw examples for every registered tokenizer, builders of every registered backbone.

A test that asks for `sample` runs for every registered tokenizer, one that asks for `build` for every backbone.
"""

import gc
import io
import os
import signal
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch
from hypothesis import settings
from matplotlib.figure import Figure

from seqkit.interfaces import Backbone, Tokenizer, Tokens
from seqkit.nn.attention.multi_head import MultiHeadAttention
from seqkit.nn.block import MLP, PreNormBlock
from seqkit.nn.mlp import ReLUSquared
from seqkit.nn.position.rotary import Rotary
from seqkit.raw import GraphData, Waveform
from seqkit.registry import components, find, lookup

# as a shell starts what runs in the background
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# a quarter of the time in which 14,000 tests are collected, which all stay
gc.disable()


def pytest_collection_finish() -> None:
    """The garbage collector begins, and looks at none of what was collected."""
    gc.enable()
    gc.freeze()


settings.register_profile("seqkit", deadline=None, max_examples=40)  # a busy machine is no failure
settings.load_profile("seqkit")


@pytest.fixture(autouse=True)
def _no_plugins(monkeypatch):
    """No test sees components that another registered, nor the folders in which they were found."""
    monkeypatch.setattr(lookup, "_REGISTERED", {kind: {} for kind in lookup.KINDS})
    before = list(sys.path)
    yield
    sys.path[:] = before
    for component in lookup.registered():
        module = component.path.partition(":")[0]
        is_plug_in = "." not in module and module != "__main__" and not module.startswith("test_")
        if is_plug_in:
            sys.modules.pop(module, None)


@pytest.fixture
def shared_data(monkeypatch):
    """Folder of the data sets at hand: `$SEQKIT_DATA`, or `shared/data` beside the repository."""
    given = os.environ.get("SEQKIT_DATA")
    folder = Path(given) if given else Path(__file__).parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no data at hand: set SEQKIT_DATA ({folder} is not there)")
    monkeypatch.setenv("SEQKIT_DATA", str(folder))
    return folder


@pytest.fixture
def own_folder(tmp_path, monkeypatch):
    """An empty data folder; nothing else is looked at or written to."""
    monkeypatch.setenv("SEQKIT_DATA", str(tmp_path / "data"))
    monkeypatch.setattr("seqkit.data.download.user_folder", lambda: tmp_path / "user")
    return tmp_path / "data"


DRAWN_IN = ("analysis", "comparison", "report")
"""Folders whose tests look at figures; elsewhere the figures of a report are empty, which halves the time of a run."""


@pytest.fixture(autouse=True)
def _empty_figures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    savefig = Figure.savefig

    def save(figure: Figure, file: Any, *args: Any, **settings: Any) -> None:
        if isinstance(file, io.StringIO) and settings.get("format") == "svg":
            file.write("<svg></svg>")
        else:
            savefig(figure, file, *args, **settings)

    if request.path.relative_to(Path(__file__).parent).parts[0] not in DRAWN_IN:
        monkeypatch.setattr(Figure, "savefig", save)


@dataclass(frozen=True)
class Sample:
    """An unfitted tokenizer, raw examples of different lengths (also to fit it on), and ones that it must refuse."""

    build: Callable[[], Tokenizer]
    raws: list[Any]
    bad: list[Any]

    def fitted(self) -> Tokenizer:
        tokenizer = self.build()
        if hasattr(tokenizer, "fit"):
            tokenizer.fit(self.raws)
        return tokenizer

    def encoded(self) -> tuple[Tokenizer, list[Tokens]]:
        tokenizer = self.fitted()
        tokens = [tokenizer.encode(raw) for raw in self.raws]
        # clips of one length; what is to be padded has several
        if len({len(x) for x in tokens}) == 1:
            tokens = [x.at(slice(11 - 3 * i)) for i, x in enumerate(tokens)]
        return tokenizer, tokens


def _text(name: str, **settings: Any) -> Sample:
    raws = ["to be, or not to be", "the question", "a sea of troubles, and"]
    return Sample(partial(find("tokenizer", name).load(), **settings), raws, ["", 7])


def _from_file() -> Sample:
    from tokenizer_files import kept  # which needs the library tokenizers

    return _text("FromFile", path=kept())


def _frozen() -> Sample:
    from trained_runs import kept_run  # which trains one

    return _text("FrozenEncoder", model=kept_run())


def _images() -> Sample:
    g = torch.Generator().manual_seed(0)
    raws = [torch.rand(1, h, w, generator=g) for h, w in ((4, 9), (6, 6), (2, 6))]
    bad = [torch.rand(1, 5, 6), torch.rand(3, 4, 6), torch.full((1, 4, 6), torch.nan)]
    return Sample(partial(find("tokenizer", "Patches").load(), (2, 3)), raws, bad)


def _clips() -> Sample:
    g = torch.Generator().manual_seed(0)
    raws = [torch.rand(t, 1, h, w, generator=g) for t, h, w in ((4, 4, 9), (2, 6, 6), (6, 2, 3))]
    bad = [
        torch.rand(1, 4, 6),
        torch.rand(3, 1, 4, 6),
        torch.rand(2, 1, 5, 6),
        torch.full((2, 1, 4, 6), torch.nan),
        [],
    ]
    return Sample(partial(find("tokenizer", "Tubelets").load(), (2, 2, 3), frames=6), raws, bad)


def _sounds(name: str, *arguments: Any, **settings: Any) -> Sample:
    g = torch.Generator().manual_seed(0)
    raws = [Waveform(torch.rand(t, generator=g) - 0.5, 8_000) for t in (620, 411, 730)]
    bad = [Waveform(torch.zeros(0), 8_000), Waveform(torch.full((500,), torch.nan), 8_000)]
    return Sample(partial(find("tokenizer", name).load(), *arguments, **settings), raws, bad)


def _mel(**settings: Any) -> Tokenizer:
    """Built when the raw examples are asked for."""
    return find("tokenizer", "LogMel").load()(8_000, num_mels=7, **settings)


def _sample_windows() -> Sample:
    from seqkit.pretrained.audio_stems import Convolutions

    return _sounds(
        "SampleWindows", 8_000, convolutions=Convolutions((5, 7), (10, 9), (5, 9), bias=True)
    )


def _graphs() -> Sample:
    g = torch.Generator().manual_seed(0)
    raws = []
    for n, pairs in ((5, [(0, 1), (1, 2), (3, 4)]), (3, []), (7, [(0, 6), (6, 3), (3, 0), (2, 5)])):
        edges = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T
        types = torch.arange(len(pairs)) % 2
        raws.append(GraphData(torch.randn(n, 3, generator=g), edges, types))
    bad = [
        (0, []),
        [(0, "one")],
        GraphData(torch.zeros(2, 11), torch.zeros(2, 0, dtype=torch.int64)),
    ]
    encodings = [
        find("graph_encoding", "Degree").load()(),
        find("graph_encoding", "ShortestPath").load()(2, 8, False),
    ]
    return Sample(
        partial(find("tokenizer", "Graph").load(), 3, num_edge_types=2, encodings=encodings),
        raws,
        bad,
    )


def _joined() -> Sample:
    def build() -> Tokenizer:
        parts = {
            "text": find("tokenizer", "Characters").load()(),
            "ids": find("tokenizer", "Ids").load()(7),
        }
        return find("tokenizer", "Join").load()(parts, reads={"ids": "codes"})

    raws = [
        {"text": "to be", "codes": [0, 6, 2, 2]},
        [("ids", [5, 1]), ("text", "or not"), ("ids", [3, 0, 4])],
        {"text": "the question", "codes": None},
    ]
    return Sample(
        build,
        raws,
        [{}, {"text": None}, {"texts": "to be"}, {"text": ""}, 7, [("ids",)], [("codes", [1])]],
    )


SAMPLES: dict[str, Callable[[], Sample]] = {
    "Bytes": lambda: _text("Bytes"),
    "Characters": lambda: _text("Characters"),
    "Words": lambda: _text("Words"),
    "CharNGrams": lambda: _text("CharNGrams"),
    "BPE": lambda: _text("BPE", vocab_size=263),
    "FromFile": _from_file,
    "FrozenEncoder": _frozen,
    "Patches": _images,
    "Tubelets": _clips,
    "LogMel": lambda: _sounds("LogMel", 8_000, num_mels=7),
    "MultiScale": lambda: _sounds(
        "MultiScale", {"fine": _mel(), "coarse": _mel(window_ms=60.0, hop_ms=25.0)}
    ),
    "SpectrogramPatches": lambda: _sounds("SpectrogramPatches", _mel(), patch=(5, 4), hop=(2, 3)),
    "WhisperMel": lambda: _sounds("WhisperMel", 7, seconds=1),
    "SampleWindows": _sample_windows,
    "Graph": _graphs,
    "Molecule": lambda: Sample(
        find("tokenizer", "Molecule").load(),
        ["CC(=O)O", "c1ccccc1O", "[Na+].[Cl-]"],
        ["", "n(H)(", 7],
    ),
    "Ids": lambda: Sample(
        partial(find("tokenizer", "Ids").load(), 7),
        [[0, 6, 2, 2], torch.tensor([5, 1, 1, 3, 4]), (3, 0)],
        [[], [7], [0, -1], [0.5], [[1, 2]], [True], "12", [2**70]],
    ),
    "Cells": lambda: Sample(
        find("tokenizer", "Cells").load(),
        [
            {"hp": 130, "origin": "USA", "mpg": 18.5},
            {"origin": "Japan", "mpg": None, "hp": 95.0},
            {"origin": "USA", "mpg": 25.0},
            {"hp": 70.5, "origin": "Japan", "mpg": 31.0},
        ],
        [{}, {"hp": None}, {"weight": 3.0}, {"hp": "many"}, {"hp": 1e300}, {"hp": [1]}, 7],
    ),
    "Join": _joined,
    "Series": lambda: Sample(
        partial(find("tokenizer", "Series").load(), 2),
        [
            [[0.5, 1.0], [-2.0, 3.0]],
            torch.randn(5, 2, generator=torch.Generator().manual_seed(0)),
            [[1, 2]] * 3,
        ],
        [
            [],
            [[1.0, 2.0, 3.0]],
            [1.0, 2.0],
            [[0.0, float("nan")]],
            [[True, False]],
            "12",
            [[1.0], [1.0, 2.0]],
        ],
    ),
}


def _modern(dim: int, num_heads: int) -> PreNormBlock:
    """A block of other components than the defaults."""
    return PreNormBlock(
        dim,
        num_heads,
        attention=partial(MultiHeadAttention, qk_norm=torch.nn.RMSNorm, bias=False),
        mlp=partial(MLP, activation=ReLUSquared, ratio=1.5, bias=False),
        norm=torch.nn.RMSNorm,
    )


WITH_SOURCE = {"EncoderDecoder", "RNNDecoder", "AttentionDecoder"}
"""Backbones that generate one sequence from another; tests/backbones/test_encoder_decoder.py has their laws."""
ALONG_EDGES = {"GIN", "GCN", "APPNP"}
"""Backbones that need an adjacency and are bidirectional; tests/backbones/test_message_passing.py has their laws."""
OF_PARTS = {"Towers"}
"""Backbones of joined tokens alone; tests/backbones/test_towers.py has their laws."""


def backbones() -> dict[str, Callable[..., Backbone]]:
    """`(dim, causal=...) -> Backbone` for every registered backbone, and some variants."""
    builds = {
        name: partial(component.load(), depth=2)
        for name, component in components("backbone").items()
        if name not in WITH_SOURCE | ALONG_EDGES | OF_PARTS
    }
    transformer = partial(builds["Transformer"], num_heads=3)

    def rotary(dim: int, causal: bool, **settings: Any) -> Backbone:
        return transformer(dim, causal=causal, position=Rotary(), block=_modern, **settings)

    return {**builds, "Transformer": transformer, "Transformer-rotary": rotary}


# ── tiers ────────────────────────────────────────────────────────────────────────────────────────────────────────────

ALIKE = tomllib.loads((Path(__file__).parent / "fast_tier.toml").read_text(encoding="utf-8"))
"""Names of groups of alike cases, by their file, of which one in so many is fast."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    every = {
        f"{file}::{name}": int(key.removeprefix("one_in_"))
        for key, files in ALIKE.items()
        for file, names in files.items()
        for name in names
    }
    seen = Counter[str]()
    for item in items:
        group = item.nodeid.partition("[")[0]
        if group not in every or item.get_closest_marker("slow"):
            continue
        if seen[group] % every[group]:
            item.add_marker(pytest.mark.slow)
        seen[group] += 1


MAX_TEST_SECONDS = 2.0
MAX_TIER_SECONDS = 700.0
"""Limits of the fast tier (`make test`), in seconds of processor time: of one test, and of all together."""

LOOP_SECONDS = 0.12
POWER = 1.6
"""Processor time of `_loop_seconds` on the machine on which the limits were set. Where it takes s times as long beside
the other tests, as on two processors that share a core, the tests may take s ** POWER times as long: they need more of
the memory than the loop. By two runs: 2.4 times where s was 1.95 before the tests, 2.9 where it was 1.96 beside them
and other work. On a machine that is slower by little it is not tried."""

EVERY = 60.0
"""Seconds of processor time of a test process after which it takes the loop again."""

_seconds = {"tier": 0.0, "loop_again": 0.0}
_loops: list[float] = []
_too_long: dict[str, float] = {}


def _processor_seconds() -> float:
    """Seconds of this process and of the children that it has waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _loop_seconds() -> float:
    """Processor time of a fixed loop of Python and small products, which a busy or older machine takes longer for."""
    began, x = time.process_time(), torch.ones(64, 64)
    for i in range(60_000):
        hash(str(i))
        if i % 4 == 0:
            torch.mm(x, x)
    return time.process_time() - began


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--limits",
        action="store_true",
        help="name tests without the mark slow that took long; fail if all did",
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    began = _processor_seconds()
    try:
        return (yield)
    finally:
        now = _processor_seconds()
        if item.get_closest_marker("slow") is None:
            item.user_properties.append(("processor_seconds", now - began))
        if item.config.getoption("--limits") and now >= _seconds["loop_again"]:
            _seconds["loop_again"] = now + EVERY
            _loops.append(_loop_seconds())


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Called in the process that reports, with what the test processes measured."""
    seconds = dict(report.user_properties).get("processor_seconds", 0.0)
    if report.when == "call" and seconds > MAX_TEST_SECONDS:
        _too_long[report.nodeid] = seconds


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    found = getattr(node, "workeroutput", {})
    _seconds["tier"] += found.get("processor_seconds", 0.0)
    _loops.extend(found.get("loops", []))


def pytest_sessionfinish(session: pytest.Session) -> None:
    config = session.config
    if hasattr(config, "workeroutput"):
        config.workeroutput |= {"processor_seconds": _processor_seconds(), "loops": _loops}
        return
    own = os.times()
    # children are the test processes, and have said theirs
    _seconds["tier"] += own.user + own.system
    if config.getoption("--limits") and _is_dear(config) and session.exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _slowness() -> float:
    """How many times as long tests may take here as on the machine on which the limits were set; at least 1."""
    return max(1.0, fmean(_loops) / LOOP_SECONDS) ** POWER if _loops else 1.0


def _is_dear(config: pytest.Config) -> bool:
    is_tier = config.option.markexpr == "not slow"
    return is_tier and _seconds["tier"] > MAX_TIER_SECONDS * _slowness()


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    tier = _seconds["tier"]
    terminalreporter.write_line(f"{tier:.0f} s of processor time")
    if not config.getoption("--limits"):
        return
    slowness = _slowness()
    terminalreporter.write_line(
        f"tests may take {slowness:.2f} times as long as on the machine on which the limits were set "
        f"({len(_loops)} measurements)"
    )
    for name, seconds in sorted(_too_long.items(), key=lambda pair: -pair[1]):
        if seconds > MAX_TEST_SECONDS * slowness:
            terminalreporter.write_line(
                f"{name} took {seconds:.1f} s of processor time; mark it slow, or make it cheaper"
            )
    if _is_dear(config):
        terminalreporter.write_line(
            f"FAILED: {tier:.0f} s of processor time are over the limit of {MAX_TIER_SECONDS * slowness:.0f}"
        )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "sample" in metafunc.fixturenames:
        metafunc.parametrize("sample", sorted(components("tokenizer")), indirect=True)
    if "build" in metafunc.fixturenames:
        metafunc.parametrize("build", sorted(backbones()), indirect=True)


@pytest.fixture
def sample(request: pytest.FixtureRequest) -> Sample:
    if request.param not in SAMPLES:
        pytest.fail(
            f"tokenizer {request.param} is registered, but has no raw examples: add it to SAMPLES in {__file__}"
        )
    return SAMPLES[request.param]()


@pytest.fixture
def build(request: pytest.FixtureRequest) -> Callable[..., Backbone]:
    return backbones()[request.param]


@pytest.fixture(autouse=True)
def _same_weights_every_time() -> None:
    torch.manual_seed(0)
