import pickle
import warnings
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from data_records import records
from torch.utils.data import DataLoader

from seqkit.data import DataModule, DataSource, Sample, Splits, TextFolder
from seqkit.data.batching import BatchLoader
from seqkit.data.sources.table import Table
from seqkit.errors import DataError
from seqkit.interfaces import IGNORE, Adjacency, Objective, Tokenizer, Tokens, TokenSpec
from seqkit.objectives import Classify, NextToken, Regress
from seqkit.raw import GraphData
from seqkit.tokenizers import Bytes, Characters, Graph, Ids, Join, Series


class Given(DataSource):
    def __init__(self, train, test, valid=None, names=None):
        self.args, self.asked = (train, test, valid, names), 0

    def splits(self):
        self.asked += 1
        return Splits(*self.args)


class Any(Objective):
    """Takes anything and remembers what it was fitted on."""

    def __init__(self, needs_labels=False, state=None):
        self.needs_labels, self.fitted, self._state = needs_labels, None, state or {}

    def state(self):
        return self._state

    def fit(self, labels, names):
        self.fitted = (list(labels), names)

    def head(self, embedder): ...
    def step(self, model, batch, *, training=False): ...


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


def module(source, tokenizer=None, objective=None, seed=3, **options):
    return DataModule(
        source, tokenizer or Numbers(), objective or Any(), seed=seed, **records(**options)
    )


def set_up(*args, **options):
    data = module(*args, **options)
    data.setup()
    return data


def rows(loader):
    return [
        (tuple(b.content.flatten().tolist()), y if y is None else tuple(y.tolist()))
        for b, y in loader
    ]


# ── splits and setup ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_validation_is_taken_from_training_by_class_and_the_objective_is_not_fitted_on_it():
    source, objective = Given(LABELLED, LABELLED[:5], names=["a", "b", "c"]), Any(needs_labels=True)
    data = set_up(source, objective=objective, valid_fraction=0.2)
    splits = data.splits()
    assert (len(splits.train), len(splits.valid)) == (80, 21)
    assert sorted(s.raw[0] for s in [*splits.train, *splits.valid]) == list(range(101))
    assert objective.fitted == ([s.label for s in splits.train], ["a", "b", "c"])
    assert source.asked == 1


def test_a_validation_split_that_ships_is_used_and_none_is_an_empty_list():
    ships = set_up(Given(LABELLED, LABELLED[:5], valid=LABELLED[:7]))
    assert sum(len(b) for b, _ in ships.val_dataloader()) == 7
    assert len(ships.splits().train) == 101
    assert set_up(Given(LABELLED, LABELLED), valid_fraction=0).val_dataloader() == []
    # one sample cannot be divided
    assert set_up(Given(LABELLED[:1], LABELLED)).val_dataloader() == []


def test_of_one_graph_some_labelled_nodes_of_each_class_are_validation(caplog):
    label = torch.tensor([0, 1, IGNORE] * 20)
    raw = GraphData(torch.zeros(60, 2), torch.tensor([[0], [1]]))
    test = [Sample(raw, torch.full((60,), IGNORE))]

    def splits():
        return set_up(Given([Sample(raw, label)], test), Graph(2), valid_fraction=0.2).splits()

    (train,), (valid,) = splits().train, splits().valid
    assert "8 of 40 training nodes are held out for validation" in caplog.text
    assert train.raw is valid.raw is raw
    assert [int((valid.label == c).sum()) for c in (0, 1)] == [4, 4]
    assert bool(((train.label == IGNORE) | (valid.label == IGNORE)).all())
    torch.testing.assert_close(torch.maximum(train.label, valid.label), label)
    assert (
        set_up(Given([Sample(raw, label)], test), Graph(2), valid_fraction=0).splits().valid is None
    )


def test_the_tail_of_each_document_is_validation_and_the_tokenizer_is_not_fitted_on_it():
    train = [Sample("ab" * 45 + "z" * 10), Sample("cd" * 45 + "y" * 10)]
    tokenizer = Characters(unknown="unk")
    data = set_up(Given(train, [Sample("abcd")]), tokenizer, window=7)
    assert [s.raw for s in data.splits().valid] == ["z" * 10, "y" * 10]
    assert tokenizer.alphabet == "abcd"


def test_what_is_fitted_already_is_not_fitted_again():
    tokenizer, objective = Characters(), Any(needs_labels=True, state={"names": ["x"]})
    tokenizer.fit(["abcdefghijklmnopqrstuvwxyz0123456789"])
    set_up(Given(TEXT, TEXT), tokenizer, objective=Any(), window=7)
    assert len(tokenizer.alphabet) == 36
    set_up(Given(LABELLED, LABELLED), objective=objective)
    assert objective.fitted is None


@pytest.mark.parametrize("split", ["test", "validation"])
def test_characters_that_only_held_out_text_of_a_part_has_share_an_id(split, caplog):
    train = [Sample({"text": "abc", "ids": [i % 5]}, i % 2) for i in range(20)]
    tokenizer = Join({"text": Characters(), "ids": Ids(5)})
    held_out = [Sample({"text": "abzz"}, 0), Sample([("ids", [1]), ("text", "zc")], 1)]
    data = set_up(
        Given(train, held_out) if split == "test" else Given(train, train, held_out), tokenizer
    )
    assert tokenizer.parts["text"].unknown_id == 3
    assert f"{split} data: part text: 3 of 6 characters (1 kinds, such as 'z')" in caplog.text
    assert rows(data.test_dataloader() if split == "test" else data.val_dataloader())


def test_a_missing_label_is_an_error_only_where_one_is_needed():
    samples = [*LABELLED[:20], Sample([5])]
    with pytest.raises(DataError, match="test data, sample 20"):
        set_up(Given(LABELLED, samples), objective=Any(needs_labels=True))
    assert [y for _, y in set_up(Given([Sample([5])], [Sample([5])])).test_dataloader()] == [None]


def test_wrong_settings_are_refused():
    for options, said in (
        ({"valid_fraction": 1.0}, "valid_fraction is 1.0"),
        ({"limit": 0}, "limit is 0"),
        ({"num_workers": -1}, "num_workers is -1"),
        ({"window": 7, "augment": [Add()]}, "one of the two"),
        *(({"train_share": share}, "train_share is") for share in (0, -0.5, 1.5)),
    ):
        with pytest.raises(ValueError, match=said):
            module(Given([], []), **options)
    with pytest.raises(DataError, match="test split of Given"):
        module(Given(LABELLED, [])).splits()


def test_setup_works_once_and_loaders_need_it():
    source, tokenizer = Given(TEXT, TEXT), Characters()
    data = module(source, tokenizer, window=7)
    for loader in (data.train_dataloader, data.val_dataloader, data.test_dataloader):
        with pytest.raises(ValueError, match=r"not set up"):
            loader()
    assert source.asked == 0
    data.setup("fit")
    alphabet, splits = tokenizer.alphabet, data.splits()
    tokenizer.fit = None  # not called again
    data.setup("test")
    assert (source.asked, tokenizer.alphabet) == (1, alphabet)
    assert data.splits() is splits
    assert len(data.test_dataloader()) == 5


# ── batches ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_training_and_evaluation_have_every_sample_once():
    data = set_up(Given(LABELLED, LABELLED[:37]), batch_size=5, valid_fraction=0)
    for loader, n in ((data.train_dataloader(), 101), (data.test_dataloader(), 37)):
        seen = [int(row[0]) for batch, _ in loader for row in batch.content]
        assert sorted(seen) == list(range(n))
        assert len(loader) == -(-n // 5)
    for batch, labels in data.train_dataloader():
        assert labels.tolist() == [int(row[0]) % 3 for row in batch.content]


def test_a_limit_holds_for_every_split():
    data = set_up(Given(LABELLED, LABELLED), batch_size=5, limit=7)
    loaders = (data.train_dataloader(), data.val_dataloader(), data.test_dataloader())
    assert [sum(len(b) for b, _ in loader) for loader in loaders] == [7, 7, 7]
    # as it would be of a sorted list
    assert [s.raw for s in data.splits().test] != [s.raw for s in LABELLED[:7]]
    text = set_up(Given(TEXT, TEXT), Bytes(), window=5, limit=7)
    loaders = (text.train_dataloader(), text.val_dataloader(), text.test_dataloader())
    assert [sum(len(b) for b, _ in loader) for loader in loaders] == [7, 7, 7]


def test_the_whole_test_text_is_predicted():
    data = set_up(Given(TEXT, TEXT), Bytes(), window=11, batch_size=3)
    assert (
        sum(int(batch.valid.sum()) - len(batch) for batch, _ in data.test_dataloader()) == 1008 + 99
    )


def test_augmentation_is_for_training_alone():
    data = set_up(Given(LABELLED, LABELLED), augment=[Add()], batch_size=7, valid_fraction=0.2)
    for loader in (data.val_dataloader(), data.test_dataloader()):
        assert rows(loader) == rows(loader)
        assert max(int(b.content.max()) for b, _ in loader) <= 100
    assert max(int(b.content.max()) for b, _ in data.train_dataloader()) > 300


def test_workers_give_the_same_batches():
    options = {"augment": [Add()], "batch_size": 17}
    here, there = (
        set_up(Given(LABELLED, LABELLED), num_workers=k, **options).train_dataloader()
        for k in (0, 1)
    )
    with warnings.catch_warnings():
        # Python on fork in a process with threads
        warnings.simplefilter("ignore", DeprecationWarning)
        assert rows(here) == rows(there)


def test_an_error_in_a_sample_is_named_with_its_split():
    with pytest.raises(DataError, match=r"test data, sample 1: content"):
        set_up(Given(LABELLED, [Sample([1]), Sample([])]), valid_fraction=0).test_dataloader()


def test_a_data_module_can_be_pickled():
    data = set_up(Given(LABELLED, LABELLED), augment=[Add()])
    assert len(pickle.loads(pickle.dumps(data)).train_dataloader()) == 3


# ── epochs, stopping, resuming ───────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(params=["samples", "augmented", "windows"])
def loader(request):
    def make():
        if request.param == "windows":
            return set_up(Given(TEXT, TEXT), Bytes(), window=11, batch_size=7).train_dataloader()
        augment = [Add()] if request.param == "augmented" else None
        return set_up(Given(LABELLED, LABELLED), augment=augment, batch_size=7).train_dataloader()

    return make


def test_epochs_differ_and_are_reproducible(loader):
    first = loader()
    epochs = [rows(first) for _ in range(3)]
    assert epochs[0] != epochs[1] != epochs[2]
    second = loader()
    for epoch in (2, 0, 1):
        second.epoch_batches.set_epoch(epoch)
        assert rows(second) == epochs[epoch]


@pytest.mark.parametrize("stop", [0, 1, 5, 8])
def test_a_loader_resumes_where_it_stopped(loader, stop):
    straight = loader()
    expected = [*rows(straight), *rows(straight), *rows(straight)]
    stopped = loader()
    rows(stopped)
    stopped.epoch_batches.set_epoch(1)
    taken = rows(stopped)[: len(stopped)] if stop == len(stopped) else []
    if not taken:
        stopped = loader()
        stopped.epoch_batches.set_epoch(1)
        for i, _ in enumerate(stopped if stop else []):
            if i + 1 == stop:
                break
    state = stopped.state_dict()
    assert state == {"epoch": 1, "yielded": stop}
    resumed = loader()
    resumed.load_state_dict(state)
    iter(resumed)  # Lightning makes iterators that it does not use
    resumed.epoch_batches.set_epoch(1)
    rest = rows(resumed)
    resumed.epoch_batches.set_epoch(2)
    n = len(resumed)
    assert rest + rows(resumed) == expected[n + stop : 3 * n]


def test_processes_share_the_batches(loader, monkeypatch):
    whole = rows(loader())
    shares = []
    for rank in range(3):
        monkeypatch.setattr("seqkit.data.batching.rank_and_world_size", lambda rank=rank: (rank, 3))
        share = loader()
        shares.append(rows(share))
        assert len(shares[-1]) == len(share) == len(whole) // 3
    assert [row for trio in zip(*shares, strict=True) for row in trio] == whole[
        : len(whole) // 3 * 3
    ]


def test_processes_leave_nothing_out_of_evaluation(monkeypatch):
    data = set_up(Given(LABELLED, LABELLED), batch_size=7)
    seen = []
    for rank in range(4):
        monkeypatch.setattr("seqkit.data.batching.rank_and_world_size", lambda rank=rank: (rank, 4))
        loader = data.test_dataloader()
        own = [int(row[0]) for batch, _ in loader for row in batch.content]
        assert len(loader) == len(range(rank, 15, 4))
        seen += own
    assert sorted(seen) == list(range(101))


def test_the_loader_is_what_lightning_expects(loader):
    batches = loader()
    assert isinstance(batches, DataLoader)
    assert isinstance(batches, BatchLoader)
    batches.sampler.set_epoch(3)
    assert batches.epoch == 3


# ── shares and fingerprints ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_smaller_share_of_the_training_data_is_part_of_a_larger_one_and_the_other_splits_stay():
    sizes, shares = [], {}
    for share in (0.1, 0.5, 1.0):
        splits = module(Given(LABELLED, LABELLED[:37]), train_share=share).splits()
        shares[share] = {str(sample.raw) for sample in splits.train}
        sizes.append((len(splits.valid), len(splits.test)))
    assert shares[0.1] < shares[0.5] < shares[1.0]
    whole = [str(sample.raw) for sample in splits.train]
    assert shares[0.5] != set(whole[: len(shares[0.5])])  # as it would be of a sorted list
    assert len(set(sizes)) == 1


def test_with_windows_a_share_is_the_beginning_of_the_text():
    text = "abcdefghij" * 20
    splits = module(
        Given([Sample(text)], [Sample(text)]), window=5, train_share=0.25, valid_fraction=0.2
    ).splits()
    assert splits.train[0].raw == text[:40]
    assert splits.valid[0].raw == text[160:]


def test_splits_have_the_same_sha256_where_tokens_and_labels_are_the_same():
    def digests(train, test, **settings):
        data = module(Given(train, test), valid_fraction=0, **settings)
        data.setup()
        data.train_dataloader(), data.test_dataloader()
        return data.sha256()

    ours = digests(LABELLED, LABELLED[:37])
    assert set(ours) == {"training", "test"}
    assert digests(LABELLED, LABELLED[:37], batch_size=3, seed=5) == ours
    other_label = [Sample(LABELLED[0].raw, LABELLED[0].label + 1), *LABELLED[1:]]
    changed = digests(other_label, LABELLED[:36])
    assert changed["training"] != ours["training"]
    assert changed["test"] != ours["test"]


class Everything(Tokenizer):
    """Tokens with positions, edges and features that the raw list tells."""

    spec = TokenSpec(vocab_sizes=(300,), num_features=1, num_edge_types=2)

    def encode(self, raw, /):
        content, position, feature, edge_type = raw
        edges = Adjacency(torch.tensor([[0], [1]]), torch.tensor([edge_type]))
        return Tokens(
            torch.tensor([[content], [0]]),
            torch.tensor([[0.0], [position]]),
            edges,
            torch.full((2, 1), feature),
        )


@pytest.mark.parametrize("field", range(4))
def test_a_split_whose_tokens_differ_in_one_field_is_not_the_recorded_one(field, caplog):
    def digests(raw):
        data = set_up(Given([Sample(raw)] * 3, [Sample(raw)]), Everything(), valid_fraction=0)
        data.train_dataloader(), data.test_dataloader()
        return data

    raw = [7, 1.5, 0.5, 1]
    recorded = digests(raw).sha256()
    assert digests(raw).changed_splits(recorded) == []
    raw[field] += 1
    assert digests(raw).changed_splits(recorded) == ["training", "test"]
    assert not caplog.records
    older = {split: digest.partition(":")[2] for split, digest in recorded.items()}
    assert digests(raw).changed_splits(older) == []
    assert len(caplog.records) == 1


# ── the seed ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("what", ["order", "windows", "augmentation"])
def test_the_seed_reaches(what):
    """Single examples a batch, so that without their order windows and augmentation alone are compared."""

    def epoch(seed):
        if what == "windows":
            data = set_up(Given(TEXT, TEXT), Bytes(), window=11, batch_size=1, seed=seed)
        else:
            augment = [Add()] if what == "augmentation" else None
            data = set_up(Given(LABELLED, LABELLED), augment=augment, batch_size=1, seed=seed)
        found = rows(data.train_dataloader())
        return found if what == "order" else sorted(found, key=str)

    assert epoch(3) == epoch(3)
    assert epoch(3) != epoch(4)
    if what == "order":
        assert sorted(epoch(3)) == sorted(epoch(4))


@pytest.mark.parametrize(("m", "ahead", "number"), [(300, 4, 30), (60, 4, 15), (5, 9, 1)])
def test_windows_of_a_forecast_are_in_runs_no_shorter_than_what_is_ahead(m, ahead, number):
    windows = [
        Sample([float(i), 1.0, 2.0], [float(j) for j in range(i, i + ahead)]) for i in range(m)
    ]
    data = DataModule(Given(windows, windows), Series(), Regress(forecast=True))
    data.setup()
    found = data.test_groups()
    assert found == sorted(found)
    assert len({*found}) == number
    assert min(Counter(found).values()) >= min(m, ahead)


def test_groups_of_test_examples_are_numbered_and_follow_a_limit():
    grouped = [Sample([i] * 3, i % 2, f"author {i // 3}") for i in range(12)]
    assert set_up(Given(LABELLED, grouped)).test_groups() == [i // 3 for i in range(12)]
    assert set_up(Given(LABELLED, LABELLED)).test_groups() is None
    few = set_up(Given(LABELLED, grouped), limit=5)
    names = [sample.raw[0] // 3 for sample in few.splits().test]
    numbers = few.test_groups()
    assert len(numbers) == 5
    assert len({*zip(names, numbers)}) == len(set(names)) == len(set(numbers))


@pytest.mark.parametrize(("size", "is_said"), [(30, True), (2, False)])
def test_a_validation_part_that_is_far_from_its_share_by_groups_is_said(size, is_said, caplog):
    train = [Sample([i, 1], i % 2, f"speaker {i // size}") for i in range(60)]
    module(Given(train, LABELLED)).splits()
    said = "30 of 60 training examples are validation, not 10 %: groups stay whole"
    assert (said in caplog.text) == is_said


@pytest.mark.parametrize(("num_ill", "said"), [
    (1, "the validation split has 1 of 2 classes: its result says nothing of ill, as groups stay whole"),
    (2, ""),
    (6, ""),
])  # fmt: skip
def test_validation_by_groups_has_every_class_or_says_which_it_lacks(num_ill, said, caplog):
    train = [Sample([i, 1], int(i // 6 < num_ill), f"patient {i // 6}") for i in range(90)]
    splits = module(Given(train, LABELLED, names=["well", "ill"])).splits()
    assert ("its result says nothing" in caplog.text) == bool(said)
    assert said in caplog.text
    assert {*splits.train.labels} == {0, 1}
    assert not {*splits.train.groups} & {*splits.valid.groups}


def test_a_training_part_that_loses_a_class_by_groups_is_said(caplog):
    train = [Sample([i, 1], i // 20, f"patient {i // 20}") for i in range(40)]
    module(Given(train, LABELLED)).splits()
    assert "the training split has 1 of 2 classes" in caplog.text


def test_a_validation_part_keeps_groups_whole():
    train = [Sample([i, 1], i % 2, f"patient {i // 10}") for i in range(200)]
    splits = module(Given(train, LABELLED)).splits()
    assert len(splits.valid) == 20
    assert not {*splits.train.groups} & {*splits.valid.groups}


def test_test_examples_that_are_in_training_too_are_counted():
    train = [Sample([i, i + 1, i], i % 2) for i in range(20)]
    test = [Sample([3, 4, 3], 0), Sample([3, 4, 3], 1), Sample([99, 1], 0)]
    assert set_up(Given(train, test, train[:2])).test_in_training() == 2
    assert set_up(Given(train, test[:1], train[:2])).test_in_training() is None  # such as one graph
    assert set_up(Given(TEXT, TEXT), Bytes(), window=5).test_in_training() is None


# ── origins ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("limit", [None, 7])
def test_the_origin_of_a_test_example_is_where_it_is_read_after_splitting_shuffling_and_limiting(
    tmp_path, limit
):
    for i in range(61):
        path = tmp_path / "texts" / ("odd" if i % 2 else "even") / f"{i}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"number {i}", encoding="utf-8")
    table = tmp_path / "table.csv"  # some rows take two lines, and the empty one is left out
    rows = [f'"number {i}{chr(10) * (i % 3 == 0)}",{"odd" if i % 2 else "even"}' for i in range(61)]
    table.write_text("\n".join(["text,label", *rows[:5], ",odd", *rows[5:]]), encoding="utf-8")
    lines = table.read_text(encoding="utf-8").split("\n")
    for source in (TextFolder(str(tmp_path / "texts")), Table(str(table))):
        data = set_up(source, Bytes(), Classify(), limit=limit, batch_size=5)
        loader, seen = data.test_dataloader(), []
        for indices, (batch, _) in zip(loader.batch_indices(), loader):
            for place, row in zip(indices, range(len(batch))):
                raw, origin = (
                    Bytes().decode(batch.example(row)),
                    data.test_dataloader().examples.name(place),
                )
                seen.append(origin)
                if origin.endswith(".txt"):
                    assert Path(origin).read_text(encoding="utf-8") == raw
                else:
                    assert lines[int(origin.removeprefix(f"{table}, line ")) - 1].startswith(
                        f'"{raw.strip()}'
                    )
        assert len(set(seen)) == len(seen) == (limit or len(data.splits().test))


def test_the_origin_of_a_window_is_its_document():
    test = [Sample("b" * 23, name="first.txt"), Sample("c" * 23, name="second.txt")]
    data = set_up(
        Given([Sample("a" * 23)], test), Bytes(), NextToken(), window=5, valid_fraction=0.0
    )
    names = {"b": "first.txt, window", "c": "second.txt, window"}
    examples = data.test_dataloader().examples
    for i in range(len(examples)):
        letter = Bytes().decode(examples[0, [i]][0].content[0][:1])
        assert data.test_dataloader().examples.name(i) == f"{names[letter]} {i}"


def test_a_data_source_without_names_has_numbered_origins():
    data = set_up(Given(LABELLED, LABELLED[:11]), limit=3)
    assert [data.splits().test[i].raw for i in range(3)] == [
        LABELLED[int(data.test_dataloader().examples.name(i).removeprefix("sample "))].raw
        for i in range(3)
    ]
