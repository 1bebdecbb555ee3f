import pickle
import warnings
from dataclasses import dataclass

import pytest
import torch

from seqkit.contract import DataError, Objective, Tokenizer, Tokens, TokenSpec
from seqkit.data import Data, Sample, Source, Splits
from seqkit.data.loader import Loader
from seqkit.tokenizers import Bytes, Characters


class Given(Source):
    def __init__(self, train, test, valid=None, names=None):
        self.args, self.asked = (train, test, valid, names), 0

    def splits(self):
        self.asked += 1
        return Splits(*self.args)


class Any(Objective):
    """Takes anything and remembers what it was shown."""

    def __init__(self, labelled=False, state=None):
        self.labelled, self.shown, self._state = labelled, None, state or {}

    def state(self):
        return self._state

    def fit(self, labels, names):
        self.shown = (list(labels), names)

    def head(self, embedder): ...
    def prepare(self, batch, label): ...
    def score(self, prediction, target): ...
    def constant(self, targets): ...


class Numbers(Tokenizer):
    """Token ids as they are; `raw` is a list of ints."""

    spec = TokenSpec(vocab_size=1000)

    def encode(self, raw, /):
        return Tokens(torch.tensor(raw), torch.arange(len(raw), dtype=torch.float32)[:, None])


@dataclass
class Add:
    most: int = 500

    def __call__(self, raw):
        return [x + int(torch.randint(self.most, ())) for x in raw]


LABELLED = [Sample([i] * (2 + i * 7 % 11), i % 3) for i in range(101)]
TEXT = [Sample("".join(chr(97 + i * i % 23) for i in range(1009))), Sample("0123456789" * 10)]


def connected(source, tokenizer=None, objective=None, seed=3, **options):
    data = Data(source, **options)
    data.connect(tokenizer or Numbers(), objective or Any(), seed)
    return data


def rows(loader):
    return [(tuple(b.content.flatten().tolist()), y if y is None else tuple(y.tolist())) for b, y in loader]


# ── what is shown to whom ────────────────────────────────────────────────────────────────────────────────────────────


def test_validation_is_taken_from_training_by_class_and_hidden_from_the_objective():
    source, objective = Given(LABELLED, LABELLED[:5], names=["a", "b", "c"]), Any(labelled=True)
    data = connected(source, objective=objective, valid_fraction=0.2)
    splits = data.splits()
    assert (len(splits.train), len(splits.valid)) == (80, 21)
    assert sorted(s.raw[0] for s in [*splits.train, *splits.valid]) == list(range(101))
    assert objective.shown == ([s.label for s in splits.train], ["a", "b", "c"])
    assert source.asked == 1


def test_a_validation_part_that_ships_is_used_and_none_is_an_empty_list():
    ships = connected(Given(LABELLED, LABELLED[:5], valid=LABELLED[:7]))
    assert sum(len(b) for b, _ in ships.val_dataloader()) == 7
    assert len(ships.splits().train) == 101
    assert connected(Given(LABELLED, LABELLED), valid_fraction=0).val_dataloader() == []
    assert connected(Given(LABELLED[:1], LABELLED)).val_dataloader() == []  # one sample cannot be divided


def test_the_tail_of_each_document_validates_and_its_letters_are_not_fitted():
    train = [Sample("ab" * 45 + "z" * 10), Sample("cd" * 45 + "y" * 10)]
    tokenizer = Characters(unknown="unk")
    data = connected(Given(train, [Sample("abcd")]), tokenizer, window=7)
    assert [s.raw for s in data.splits().valid] == ["z" * 10, "y" * 10]
    assert tokenizer.alphabet == "abcd"


def test_what_is_fitted_already_is_left_as_it_is():
    tokenizer, objective = Characters(), Any(labelled=True, state={"names": ["x"]})
    tokenizer.fit(["abcdefghijklmnopqrstuvwxyz0123456789"])
    connected(Given(TEXT, TEXT), tokenizer, objective=Any(), window=7)
    assert len(tokenizer.alphabet) == 36
    connected(Given(LABELLED, LABELLED), objective=objective)
    assert objective.shown is None


def test_a_missing_label_is_an_error_only_where_one_is_needed():
    samples = [*LABELLED[:20], Sample([5])]
    with pytest.raises(DataError, match="test data, sample 20 has no label, which Any needs"):
        connected(Given(LABELLED, samples), objective=Any(labelled=True))
    assert [y for _, y in connected(Given([Sample([5])], [Sample([5])])).test_dataloader()] == [None]


def test_wrong_settings_are_refused():
    for options, said in (
        ({"valid_fraction": 1.0}, "valid_fraction is 1.0"),
        ({"limit": 0}, "limit is 0"),
        ({"num_workers": -1}, "num_workers is -1"),
        ({"window": 7, "augment": [Add()]}, "use one of the two"),
    ):
        with pytest.raises(ValueError, match=said):
            Data(Given([], []), **options)
    with pytest.raises(ValueError, match="not connected yet"):
        Data(Given(LABELLED, LABELLED)).train_dataloader()
    with pytest.raises(DataError, match="test part of Given is empty"):
        Data(Given(LABELLED, [])).splits()


# ── batches ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_training_and_evaluation_see_every_sample_once():
    data = connected(Given(LABELLED, LABELLED[:37]), batch_size=5, valid_fraction=0)
    for loader, n in ((data.train_dataloader(), 101), (data.test_dataloader(), 37)):
        seen = [int(row[0]) for batch, _ in loader for row in batch.content]
        assert sorted(seen) == list(range(n))
        assert len(loader) == -(-n // 5)
    for batch, labels in data.train_dataloader():
        assert labels.tolist() == [int(row[0]) % 3 for row in batch.content]


def test_a_limit_holds_for_every_part():
    data = connected(Given(LABELLED, LABELLED), batch_size=5, limit=7)
    loaders = (data.train_dataloader(), data.val_dataloader(), data.test_dataloader())
    assert [sum(len(b) for b, _ in loader) for loader in loaders] == [7, 7, 7]
    assert len({s.label for s in data.splits().test}) > 1  # not the first seven of a sorted list
    text = connected(Given(TEXT, TEXT), Bytes(), window=5, limit=7)
    loaders = (text.train_dataloader(), text.val_dataloader(), text.test_dataloader())
    assert [sum(len(b) for b, _ in loader) for loader in loaders] == [7, 7, 7]


def test_the_whole_test_text_is_predicted():
    data = connected(Given(TEXT, TEXT), Bytes(), window=11, batch_size=3)
    assert sum(int(batch.valid.sum()) - len(batch) for batch, _ in data.test_dataloader()) == 1008 + 99


def test_augmentation_is_for_training_alone():
    data = connected(Given(LABELLED, LABELLED), augment=[Add()], batch_size=7, valid_fraction=0.2)
    for loader in (data.val_dataloader(), data.test_dataloader()):
        assert rows(loader) == rows(loader)
        assert max(int(b.content.max()) for b, _ in loader) <= 100
    assert max(int(b.content.max()) for b, _ in data.train_dataloader()) > 300


def test_workers_give_the_same_batches():
    options = {"augment": [Add()], "batch_size": 17}
    here, there = (connected(Given(LABELLED, LABELLED), num_workers=k, **options).train_dataloader() for k in (0, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python on fork in a process with threads
        assert rows(here) == rows(there)


def test_an_error_in_a_sample_is_named_with_its_split():
    with pytest.raises(DataError, match=r"test data, sample 1: content is \[0\]"):
        connected(Given(LABELLED, [Sample([1]), Sample([])]), valid_fraction=0).test_dataloader()


def test_data_with_its_loader_can_be_pickled():
    data = connected(Given(LABELLED, LABELLED), augment=[Add()])
    assert len(pickle.loads(pickle.dumps(data)).train_dataloader()) == 3


# ── epochs, stopping, going on ───────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(params=["samples", "augmented", "windows"])
def loader(request):
    def make():
        if request.param == "windows":
            return connected(Given(TEXT, TEXT), Bytes(), window=11, batch_size=7).train_dataloader()
        augment = [Add()] if request.param == "augmented" else None
        return connected(Given(LABELLED, LABELLED), augment=augment, batch_size=7).train_dataloader()

    return make


def test_epochs_differ_and_come_out_again(loader):
    first = loader()
    epochs = [rows(first) for _ in range(3)]
    assert epochs[0] != epochs[1] != epochs[2]
    second = loader()
    for epoch in (2, 0, 1):
        second.set_epoch(epoch)
        assert rows(second) == epochs[epoch]


@pytest.mark.parametrize("stop", [0, 1, 5, 8])
def test_a_loader_goes_on_where_it_stopped(loader, stop):
    straight = loader()
    expected = [*rows(straight), *rows(straight), *rows(straight)]
    stopped = loader()
    rows(stopped)
    stopped.set_epoch(1)
    taken = rows(stopped)[: len(stopped)] if stop == len(stopped) else []
    if not taken:
        stopped = loader()
        stopped.set_epoch(1)
        for i, _ in enumerate(stopped if stop else []):
            if i + 1 == stop:
                break
    state = stopped.state_dict()
    assert state == {"epoch": 1, "yielded": stop}
    resumed = loader()
    resumed.load_state_dict(state)
    iter(resumed)  # Lightning makes iterators that it does not use
    resumed.set_epoch(1)
    rest = rows(resumed)
    resumed.set_epoch(2)
    n = len(resumed)
    assert rest + rows(resumed) == expected[n + stop : 3 * n]


def test_processes_share_the_batches(loader, monkeypatch):
    whole = rows(loader())
    parts = []
    for rank in range(3):
        monkeypatch.setattr("seqkit.data.loader._place", lambda rank=rank: (rank, 3))
        part = loader()
        parts.append(rows(part))
        assert len(parts[-1]) == len(part) == len(whole) // 3
    assert [row for trio in zip(*parts, strict=True) for row in trio] == whole[: len(whole) // 3 * 3]


def test_processes_leave_nothing_out_of_evaluation(monkeypatch):
    data = connected(Given(LABELLED, LABELLED), batch_size=7)
    seen = []
    for rank in range(4):
        monkeypatch.setattr("seqkit.data.loader._place", lambda rank=rank: (rank, 4))
        loader = data.test_dataloader()
        mine = [int(row[0]) for batch, _ in loader for row in batch.content]
        assert len(loader) == len(range(rank, 15, 4))
        seen += mine
    assert sorted(seen) == list(range(101))


@pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning")  # torch, on how Lightning uses it
def test_lightning_resumes_with_the_batch_that_came_next(tmp_path, loader):
    import pytorch_lightning as pl

    class Recorder(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer, self.seen = torch.nn.Linear(1, 1), []

        def training_step(self, batch, _):
            self.seen.append((self.current_epoch, tuple(batch[0].content.flatten().tolist())))
            return self.layer.weight.sum()

        def on_train_batch_end(self, *_):
            if len(self.seen) == 12:
                self.trainer.save_checkpoint(tmp_path / "half.ckpt")

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    def fit(model, batches, **options):
        trainer = pl.Trainer(
            max_epochs=3, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
            enable_model_summary=False,
        )  # fmt: skip
        trainer.fit(model, batches, **options)
        return model.seen

    straight = fit(Recorder(), loader())
    assert len(straight) == 3 * len(loader())
    resumed = fit(Recorder(), loader(), ckpt_path=tmp_path / "half.ckpt", weights_only=True)
    assert resumed == straight[12:]


def test_the_loader_is_what_lightning_expects(loader):
    batches = loader()
    assert isinstance(batches, Loader)
    assert batches.sampler is batches
