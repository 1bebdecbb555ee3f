"""Tokens from the disk equal those from memory in every bit; what changes the tokens changes the fingerprint."""

import importlib
import os
import sys
from types import ModuleType

import numpy as np
import pytest
import torch

from seqkit.data import dataset, encoding
from seqkit.data.cache import cache_folder
from seqkit.data.dataset import TokenizedDataset
from seqkit.data.encoding import (
    Encoder,
    samples_fingerprint,
    split_fingerprint,
    tokenizer_fingerprint,
)
from seqkit.data.file_samples import of_files
from seqkit.data.sample import Sample, Samples
from seqkit.errors import DataError
from seqkit.interfaces import Tokenizer, Tokens, TokenSpec
from seqkit.raw import GraphData, Waveform
from seqkit.tokenizers import Bytes, Graph, Patches


@pytest.fixture
def on_disk(tmp_path, monkeypatch):
    """Every split is kept on disk, and encoded in two worker processes."""
    monkeypatch.setenv("SEQKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(encoding, "MIN_SAMPLES", 1)
    monkeypatch.setattr(encoding, "MIN_SECONDS", -1.0)
    monkeypatch.setattr(encoding, "num_workers", lambda: 2)


def graphs(number=300):
    g = torch.Generator().manual_seed(0)
    samples = []
    for i in range(number):
        n = 2 + i % 5
        edges = torch.randint(n, (2, 7), generator=g)
        samples.append(Sample(GraphData(torch.randn(n, 3, generator=g), edges), float(i)))
    return samples


def named(samples):
    """The samples of a source that names their fingerprint."""
    return Samples(
        [s.raw for s in samples].__getitem__, [s.label for s in samples], key=lambda: "graphs"
    )


def equal(one, other):
    ours, theirs = one.tensors(), other.tensors()
    return list(ours) == list(theirs) and all(
        torch.equal(ours[name], theirs[name]) for name in ours
    )


def test_a_split_from_the_disk_equals_the_one_in_memory(tmp_path, monkeypatch, request):
    samples, tokenizer = named(graphs()), Graph(3)
    memory = TokenizedDataset(samples, tokenizer, "training")
    request.getfixturevalue("on_disk")
    first, second = (TokenizedDataset(samples, tokenizer, "training") for _ in range(2))
    assert len(list(cache_folder().iterdir())) == 1
    for other in (first, second):
        assert (other.sha256, other.lengths, other.extents) == (
            memory.sha256,
            memory.lengths,
            memory.extents,
        )
        everything = range(len(samples))
        assert all(map(equal, memory.encoded(everything, 0), other.encoded(everything, 0)))


def test_the_second_time_nothing_is_encoded(on_disk, monkeypatch):
    first = TokenizedDataset(named(graphs()), Graph(3), "training")
    monkeypatch.setattr(Graph, "encode", lambda *_: pytest.fail("was encoded again"))
    again = TokenizedDataset(named(graphs()), Graph(3), "training")
    assert again.lengths == first.lengths


def test_a_sample_that_cannot_be_encoded_in_a_worker_is_named_and_nothing_is_kept(on_disk):
    samples = graphs(600)  # of which every third is encoded before, to see how long it takes
    samples[410] = Sample(GraphData(torch.zeros(2, 9), torch.zeros(2, 0, dtype=torch.int64)), 0.0)
    with pytest.raises(DataError, match=r"training data, sample 410: .* 9 "):
        TokenizedDataset(named(samples), Graph(3), "training")
    assert not list(cache_folder().glob("*"))


@pytest.mark.parametrize("max_bytes", [1, 12_000, 2**30])
def test_where_the_folder_cannot_be_written_the_split_is_in_memory_and_that_is_said(
    on_disk, tmp_path, monkeypatch, caplog, max_bytes
):
    monkeypatch.setattr(encoding, "num_workers", lambda: 0)
    memory = TokenizedDataset(named(graphs()), Graph(3), "training")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SEQKIT_CACHE", str(tmp_path / "file" / "below"))
    monkeypatch.setattr(dataset, "CACHE_BYTES", max_bytes)
    data = TokenizedDataset(named(graphs()), Graph(3), "training")
    assert "encoded data is not kept" in caplog.text
    assert (data.sha256, data.lengths, data.extents) == (
        memory.sha256,
        memory.lengths,
        memory.extents,
    )
    everything = range(300)
    assert all(map(equal, memory.encoded(everything, 0), data.encoded(everything, 0)))


def test_small_splits_are_never_written(tmp_path, monkeypatch):
    monkeypatch.setenv("SEQKIT_CACHE", str(tmp_path / "cache"))
    TokenizedDataset(named(graphs(50)), Graph(3), "training")
    assert not (tmp_path / "cache").exists()


def test_the_fingerprint_of_a_split_changes_with_samples_and_tokenizer(monkeypatch):
    samples = [Sample("abc", 1), Sample("de", 2)]

    def known(given=samples, tokenizer=None, max_tokens=None):
        return split_fingerprint(
            Encoder(Samples.of(given), tokenizer or Bytes(), "training", max_tokens)
        )

    found = known()
    assert found == known([Sample("abc", 5), Sample("de", 7)]), "labels are not in the tokens"
    image = Samples(lambda i: torch.zeros(1, 4, 4), [0], key=lambda: "an image")
    others = [
        known([Sample("ab", 1), Sample("cde", 2)]),
        known(samples[::-1]),
        known(image, Patches(2)),
        known(image, Patches(4)),
        *(known(max_tokens=most) for most in (1, 2, 3)),
    ]
    monkeypatch.setattr(encoding, "version", lambda name: "another")
    others.append(known())
    assert len({found, *others}) == 9


def test_files_are_known_by_path_size_and_time(tmp_path):
    paths = [tmp_path / name for name in "ab"]
    for path in paths:
        path.write_text("x")

    def known(read=os.fspath):
        return samples_fingerprint(of_files(paths, [0, 1], read))

    before = known()
    assert before == known()
    os.utime(paths[0], ns=(1, 1))
    assert before != known()
    assert known(lambda path: path) is None  # what it does cannot be told from its name


def test_texts_and_rows_of_a_table_are_known_by_their_content_and_others_by_what_their_source_names():
    raws = ["a", "b", 1, [1.5, "x"], {"a": 1, "b": None}]
    prints = [samples_fingerprint(Samples.of([Sample(raw)])) for raw in raws]
    assert None not in prints
    assert len(set(prints)) == len(prints)
    both = Samples.of([Sample(raw) for raw in raws])
    assert samples_fingerprint(both.at([1, 0])) != samples_fingerprint(both.at([0, 1]))
    for raw in (object(), torch.zeros(2), Waveform(torch.zeros(2), 8), {"a": np.arange(3)}):
        assert samples_fingerprint(Samples.of([Sample("a"), Sample(raw)])) is None


def test_samples_without_a_fingerprint_are_encoded_in_workers_and_not_kept(on_disk):
    samples, tokenizer = graphs(), Graph(3)
    memory = encoding.held(
        [tokenizer.encode(sample.raw) for sample in samples], [sample.label for sample in samples]
    )
    data = TokenizedDataset(samples, tokenizer, "training")
    assert (data.sha256, data.lengths, data.extents) == (
        memory.sha256,
        memory.lengths,
        memory.extents,
    )
    assert not cache_folder().exists()


class Unpicklable(Tokenizer):
    def __init__(self):
        self.change = lambda raw: raw

    @property
    def spec(self):
        return TokenSpec(vocab_size=2)

    def encode(self, raw, /):
        return Tokens(torch.tensor([1]), torch.zeros(1, 1))


def test_a_tokenizer_that_cannot_be_pickled_has_no_fingerprint_and_works(on_disk):
    assert tokenizer_fingerprint(Unpicklable()) is None
    assert len(TokenizedDataset([Sample("a", 1)], Unpicklable(), "training").lengths) == 1
    assert not cache_folder().exists()


def test_a_tokenizer_of_a_notebook_whose_code_cannot_be_read_works_and_nothing_is_kept(
    on_disk, monkeypatch
):
    notebook = ModuleType("of_a_notebook")
    monkeypatch.setitem(sys.modules, "of_a_notebook", notebook)
    exec("from seqkit.tokenizers import Bytes\nclass Own(Bytes): is_slow = True", notebook.__dict__)
    assert tokenizer_fingerprint(notebook.Own()) is None
    assert TokenizedDataset([Sample("abc", 1)], notebook.Own(), "training").lengths == [3]
    assert not cache_folder().exists()


def test_the_fingerprint_of_a_tokenizer_changes_with_its_code_and_that_of_its_bases(
    tmp_path, monkeypatch
):
    monkeypatch.syspath_prepend(tmp_path)
    codes = [tmp_path / f"{name}_of_a_plug_in.py" for name in ("base", "own")]
    codes[0].write_text("from seqkit.tokenizers import Bytes\nclass Base(Bytes): pass\n")
    codes[1].write_text("from base_of_a_plug_in import Base\nclass Own(Base): pass\n")
    tokenizer = importlib.import_module("own_of_a_plug_in").Own()
    prints = [tokenizer_fingerprint(tokenizer)]
    assert prints == [tokenizer_fingerprint(tokenizer)]
    for code in codes:
        code.write_text(code.read_text() + "# another encoding\n")
        prints.append(tokenizer_fingerprint(tokenizer))
    assert None not in prints
    assert len(set(prints)) == 3


PLAIN = [
    3,
    -0.1,
    True,
    None,
    "a'b",
    b"x",
    (),
    (1,),
    [1, 2.5, "a", None],
    {"a": [1]},
    list(range(3000)),
    np.int64(3),
]


def test_labels_without_arrays_are_hashed_as_ever():
    for label in PLAIN:
        assert encoding._target_bytes(label) == repr(label).encode(), label


def changed(values):
    """An array that differs from `values` in one number in its middle, by the least that its type can."""
    other = values.copy()
    other[len(other) // 2] = np.nextafter(other[len(other) // 2], np.inf)
    return other


@pytest.mark.parametrize("inside", [
    lambda array: array, lambda array: [array], lambda array: (1, {"a": [array]}), torch.from_numpy,
    lambda array: [torch.from_numpy(array)],
])  # fmt: skip
@pytest.mark.parametrize("size", [3, 1501])
def test_the_digest_of_a_split_changes_with_any_number_of_an_array_in_a_label(inside, size):
    values = np.linspace(1, 2, size)

    def digest(array):
        return encoding.held([Bytes().encode("a")], [inside(array)]).sha256

    assert digest(values) == digest(values.copy()) != digest(changed(values))


def test_arrays_of_another_shape_or_type_are_other_labels():
    values = np.zeros((2, 3))
    others = [values, values.reshape(3, 2), values.astype("f4"), np.zeros((2, 3), "i8")]
    assert len({encoding._target_bytes(other) for other in others}) == len(others)
    assert encoding._target_bytes(values.T) == encoding._target_bytes(
        np.ascontiguousarray(values.T)
    )
