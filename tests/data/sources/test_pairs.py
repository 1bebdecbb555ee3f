"""Pairs of samples: splits stay apart, every sample occurs equally often, labels follow from those of the parts."""

from collections import Counter

import pytest

from seqkit.config import complete
from seqkit.config.builder import build
from seqkit.data import DataSource, Samples, Splits
from seqkit.data.augment import OnPart
from seqkit.data.module import DataModule
from seqkit.data.sources.pairs import Pairs
from seqkit.errors import DataError, UsageError
from seqkit.objectives import Classify
from seqkit.tokenizers import Bytes, Join

CLASSES = ["a", "b", "c"]


class Numbered(Samples):
    """Samples "split.class.number", so many of each class, which count how often they are read."""

    def __init__(self, split, sizes, groups=None):
        self.names = [
            f"{split}.{label}.{i}" for label, size in enumerate(sizes) for i in range(size)
        ]
        super().__init__(self.raw, [int(name.split(".")[1]) for name in self.names], groups=groups)
        self.num_read = 0

    def raw(self, index):
        self.num_read += 1
        return self.names[index]


class Source(DataSource):
    def __init__(self, train, test, valid=None, *, names=CLASSES, groups=None):
        self.given = Splits(
            Numbered("train", train),
            Numbered("test", test, groups),
            valid and Numbered("valid", valid),
            names,
        )

    def splits(self):
        return self.given

    def read_for(self, tokenizer):
        self.reader = tokenizer


def pairs(**settings) -> Pairs:
    return Pairs(
        {"x": Source([20, 30, 10], [4, 3, 2]), "y": Source([10, 10, 31], [2, 5, 7])}, **settings
    )


def all_of(splits):
    return {"train": splits.train, "test": splits.test, "valid": splits.valid}.items()


@pytest.mark.parametrize("label", ["same", "sum"])
@pytest.mark.parametrize("rounds", [1, 3])
def test_splits_stay_apart_and_each_sample_occurs_equally_often(label, rounds):
    splits = pairs(label=label, rounds=rounds).splits()
    used = {
        (split, part): Counter(s.raw[part] for s in samples)
        for split, samples in all_of(splits)
        for part in "xy"
    }
    for part in "xy":
        assert all(name.startswith("test.") for name in used["test", part])
        assert not set(used["train", part]) & set(used["valid", part])
        source_names = set(pairs().parts[part].splits().train.names)
        assert set(used["train", part]) | set(used["valid", part]) == source_names
    for (split, part), counts in used.items():
        for one in range(3) if label == "same" else [None]:
            often = [n for name, n in counts.items() if one is None or f".{one}." in name]
            assert max(often) - min(often) <= 1, (split, part)
    assert max(used["train", "x"].values()) > 1 or rounds == 1


def test_the_label_is_the_class_or_the_sum_of_the_classes():
    for split, samples in all_of(pairs().splits()):
        for s in samples:
            assert {int(raw.split(".")[1]) for raw in s.raw.values()} == {s.label}, split
    for _, samples in all_of(pairs(label="sum").splits()):
        classes = [[int(raw.split(".")[1]) for raw in s.raw.values()] for s in samples]
        assert [s.label for s in samples] == [sum(each) % 3 for each in classes]
        assert any(first != second for first, second in classes)
        assert samples.labels == [s.label for s in samples]


def test_a_class_has_as_many_pairs_as_its_larger_part_and_each_round_pairs_anew():
    assert Counter(pairs().splits().test.labels) == {0: 4, 1: 5, 2: 7}
    assert len(pairs(label="sum").splits().test) == 14
    together = Counter(tuple(s.raw.values()) for s in pairs(rounds=3).splits().train)
    assert len(together) > 0.9 * together.total()


def test_the_same_arguments_give_the_same_pairs_in_an_order_without_classes():
    first, second = (list(pairs(rounds=2).splits().train) for _ in range(2))
    assert first == second
    labels = [s.label for s in first]
    assert labels != sorted(labels)


def test_no_sample_is_read_before_it_is_asked_for():
    source = pairs()
    splits = source.splits()
    assert not any(
        numbered.num_read
        for own in source.parts.values()
        for numbered in (own.given.train, own.given.test)
    )
    splits.test[0]
    assert [own.given.test.num_read for own in source.parts.values()] == [1, 1]


def test_a_validation_split_that_ships_is_taken_and_groups_are_kept():
    source = Pairs(
        {
            "x": Source([5] * 3, [1] * 3, [2] * 3),
            "y": Source([5] * 3, [1] * 3, groups=["p", "q", "r"]),
        }
    )
    splits = source.splits()
    assert {s.raw["x"].split(".")[0] for s in splits.valid} == {"valid"}
    assert {s.raw["x"].split(".")[0] for s in splits.train} == {"train"}
    assert splits.test.groups == ["pqr"[s.label] for s in splits.test]
    assert len(pairs(valid_fraction=0).splits().valid) == 0


def test_words_only_and_pairs_without_labels():
    splits = pairs(words={"word": ["one", "two", "three"], "name": []}).splits()
    assert all(s.raw["word"] == ["one", "two", "three"][s.label] for s in splits.test)
    assert all(s.raw["name"] == CLASSES[s.label] for s in splits.test)
    whole, alone = pairs(label="sum").splits(), pairs(label="sum", only="y").splits()
    assert [(s.raw["y"], s.label) for s in whole.test] == [
        (s.raw["y"], s.label) for s in alone.test
    ]
    assert all(list(s.raw) == ["y"] for s in alone.test)
    unlabelled = pairs(unlabelled=True).splits()
    assert unlabelled.names is None
    assert [s.raw for s in unlabelled.train] == [s.raw for s in pairs().splits().train]
    assert all(s.label is None for s in unlabelled.train)


def test_a_fault_is_named_by_the_samples_of_the_pair():
    source = pairs()
    test = source.splits().test
    x, y = (
        own.given.test.names.index(raw)
        for own, raw in zip(source.parts.values(), test[3].raw.values())
    )
    assert test.name(3) == f"x sample {x}, y sample {y}"


def test_each_source_reads_for_the_tokenizer_of_its_part():
    source, own = pairs(), {"left": Bytes(), "y": Bytes()}
    DataModule(source, Join(own, reads={"left": "x"}), Classify()).setup()
    assert source.parts["x"].reader is own["left"]
    assert source.parts["y"].reader is own["y"]


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: Pairs({"x": Source([1] * 3, [1] * 3)}), "the parts x; give two or more"),
        (lambda: Pairs({}, words={"word": [], "name": []}), "give two or more, one with a source"),
        (lambda: pairs(only="z"), "only names 'z', which is no part"),
        (lambda: pairs(words={"x": []}), "x has a source and words"),
        (lambda: pairs(label="sum", words={"word": []}), "words hold the class"),
        (lambda: pairs(rounds=0), "rounds is 0"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(make, problem):
    with pytest.raises(ValueError, match=problem):
        make()


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        (Source([5, 5, 5], [1, 1, 1], names=["a", "b", "d"]), "the parts x and y have the classes"),
        (Source([5, 5, 5], [1, 0, 1]), "the test split of the part y has no sample of class b"),
    ],
)
def test_sources_that_do_not_fit_are_refused(source, problem):
    with pytest.raises(DataError, match=problem):
        Pairs({"x": Source([5, 5, 5], [1, 1, 1]), "y": source}).splits()
    with pytest.raises(DataError, match=r"2 words, .*3 classes"):
        pairs(words={"word": ["one", "two"]}).splits()


def test_a_change_on_a_part_leaves_the_others_and_absent_parts_alone():
    change = OnPart("x", [str.upper, lambda text: text + "!"])
    raw = {"x": "a", "y": "b"}
    assert change(raw) == {"x": "A!", "y": "b"}
    assert raw == {"x": "a", "y": "b"}
    assert change({"y": "b"}) == {"y": "b"}
    with pytest.raises(DataError, match="OnPart was given str"):
        change("a")


def test_a_recipe_names_the_sources_and_the_changes_of_its_parts():
    config = complete("multimodal/av-digits", "clip", ["--data.source.parts.image", "digits"])
    built = build(config)
    assert [type(own).__name__ for own in built.data["source"].parts.values()] == [
        "Digits",
        "SpokenDigits",
    ]
    assert [change.part for change in built.data["augment"]] == ["image", "sound"]
    with pytest.raises(UsageError, match="'digit'"):
        complete("multimodal/av-digits", "clip", ["--data.source.parts.image", "digit"])


def test_samples_without_a_group_are_in_none_together():
    groups = ["anna", *[None] * 8]
    own = Source([20, 30, 10], [4, 3, 2], groups=groups)
    found = Pairs({"x": own, "y": Source([10, 10, 31], [2, 5, 7])}).splits().test.groups
    raws = [
        sample.raw["x"]
        for sample in Pairs({"x": own, "y": Source([10, 10, 31], [2, 5, 7])}).splits().test
    ]
    assert len(set(found)) == len(set(raws)) > 2
