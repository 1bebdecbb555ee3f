"""From a data source to batches of tokens: what a recipe's `data:` section builds.

b batch · n tokens
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from pytorch_lightning import LightningDataModule

from seqkit.data.batching import BatchDataset, BatchLoader, LengthGroupedBatchSampler
from seqkit.data.dataset import Augmentation, TokenizedDataset
from seqkit.data.documents import are_texts, num_characters
from seqkit.data.drop_parts import DropParts
from seqkit.data.encoding import Encoder, encode_split, naming
from seqkit.data.notes import Notes
from seqkit.data.packing import PackedDataset
from seqkit.data.sample import Samples, Splits
from seqkit.data.selection import Selection, check_counts
from seqkit.data.source import DataSource
from seqkit.data.windows import TextWindows
from seqkit.errors import DataError
from seqkit.interfaces import Backbone, Objective, Tokenizer
from seqkit.progress import track
from seqkit.tokenizers.text import Text

log = logging.getLogger("seqkit")

MIN_TEXT = 2**23
"""Characters from which on texts are kept on disk however fast they are encoded: it saves memory."""

NUM_THREADS = 4
"""Threads that make batches ahead for a GPU."""

NUM_BATCHES = 30
"""Runs of consecutive windows of a forecast that count as independent, at most."""

DIGEST_VERSION = 2
"""Version of the digest of a split. 1 had no prefix, and left positions, features and edges out."""


@dataclass(frozen=True)
class Loading:
    """How examples become batches.

    batch_size: examples (or windows) a batch. tokens_per_batch: most tokens of a batch, padding counted; with a large
    batch_size, batches are equal in work instead of in number. packing: most tokens of a row in training, which several
    whole examples share, told apart by segments; batch_size then counts rows. None: one example a row, as in evaluation
    always. For objectives that support segments. num_workers: processes that encode.
    """

    is_settings = True

    batch_size: int = 32
    tokens_per_batch: int | None = None
    packing: int | None = None
    num_workers: int = 0

    def __post_init__(self) -> None:
        check_counts(
            {
                "batch_size": self.batch_size,
                "tokens_per_batch": self.tokens_per_batch,
                "packing": self.packing,
            }
        )
        if self.num_workers < 0:
            raise ValueError(
                f"num_workers is {self.num_workers}; give 0 (encode in this process) or more"
            )


class DataModule(LightningDataModule):
    """LightningDataModule of a data source: its splits, tokenized, in batches of (TokenBatch, targets or None).

    tokenizer, objective: fitted by `setup` on the training split, unless they are fitted already.
    augment: changes to raw training samples, drawn anew in every epoch. drop_parts: probability with which each part of
    a joined example is left out in training, or one by name of a part; never are all, and not the part that is
    predicted. seed: seed of the order, the windows, the augmentation in every epoch. The attribute `notes` keeps what
    `setup` logs of the data.

    >>> from seqkit.objectives import NextToken
    >>> from seqkit.tokenizers import Bytes
    >>> class Words(DataSource):
    ...     def splits(self):
    ...         return Splits(train=[Sample("tea"), Sample("coffee")], test=[Sample("milk")])
    >>> data = DataModule(Words(), Bytes(), NextToken(), Loading(batch_size=2), Selection(valid_fraction=0))
    >>> data.setup()
    >>> tokens, targets = next(iter(data.train_dataloader()))
    >>> tokens.content.shape, tokens.valid.sum(dim=1).sort().values
    (torch.Size([2, 6]), tensor([3, 6]))
    """

    def __init__(
        self,
        source: DataSource,
        tokenizer: Tokenizer,
        objective: Objective,
        loading: Loading = Loading(),
        selection: Selection = Selection(),  # noqa: B008, it is frozen
        *,
        augment: Sequence[Callable[[Any], Any]] | None = None,
        drop_parts: float | dict[str, float] | None = None,
        seed: int = 0,
    ):
        super().__init__()
        window = selection.window
        if window is not None and augment:
            raise ValueError(
                "augment changes whole samples and window cuts documents; use one of the two"
            )
        if window is not None and drop_parts is not None:
            raise ValueError(
                "drop_parts leaves out parts of examples and window cuts documents; use one of the two"
            )
        if loading.packing is not None and not objective.supports_segments:
            which = f"which {type(objective).__name__} cannot tell apart (no segments)"
            raise ValueError(
                f"packing puts examples into a row, {which}; use NextToken or Masked, or tokens_per_batch"
            )
        if loading.packing is not None and (window or augment or drop_parts is not None):
            raise ValueError(
                "packing fills rows with whole examples; leave out window, augment and drop_parts"
            )
        self.drop = None
        if drop_parts is not None:
            kept = getattr(objective, "part", None)
            self.drop = DropParts(tokenizer, drop_parts, kept=kept, seed=seed)
        self.source = source
        self.tokenizer = tokenizer
        self.objective = objective
        self.loading = loading
        self.selection = selection
        self.augment = list(augment or ())
        self.seed = seed
        self.batch_size = loading.batch_size
        self.num_workers = loading.num_workers
        self.window = window
        self.limit = selection.limit
        source.read_for(tokenizer)
        self.notes = Notes()
        self._is_set_up = False
        self._splits: Splits | None = None
        self._datasets: dict[str, TokenizedDataset | TextWindows | PackedDataset] = {}

    def splits(self) -> Splits:
        """The samples of each split as they are used: validation taken out, limited. Read once.

        Raises DataError where a split is empty.
        """
        if self._splits is None:
            selection = self.selection
            given = self.source.splits()
            train = given.train
            valid = given.valid
            for split, samples in (("training", train), ("test", given.test)):
                if len(samples) == 0:
                    raise DataError(
                        f"the {split} split of {type(self.source).__name__} is empty; add examples"
                    )
            train = self._with_plain_labels("training", train)
            if valid is None:
                train, valid = selection.without_validation(
                    train, given.names, follows_time=self.objective.follows_time
                )
            test = self._with_plain_labels("test", selection.limited(given.test))
            if valid:
                valid = self._with_plain_labels("validation", selection.limited(valid))
            else:
                valid = None
            self._splits = Splits(
                selection.limited(selection.shared(train)), test, valid, given.names, given.rule
            )
        return self._splits

    def setup(self, stage: str | None = None) -> None:
        """Read the data, fit the tokenizer and the objective where they are not fitted yet, check the labels; once.

        stage: Lightning's; all splits are read whatever it is. A split is encoded when its loader is first made.
        Raises DataError where the objective needs labels and a sample has none.
        """
        if self._is_set_up:
            return
        with self.notes.kept():
            self._set_up()
        self._is_set_up = True

    def _set_up(self) -> None:
        splits = self.splits()
        if self.objective.needs_labels:
            self._check_labels()
        if hasattr(self.tokenizer, "fit") and not getattr(self.tokenizer, "was_fitted", False):
            self._fit_tokenizer(splits)
        is_new = not self.objective.state()
        if is_new:
            self.objective.fit(splits.train.labels, splits.names)
        self.objective.read_from(self.tokenizer)
        if is_new:
            # encoded if an objective takes them
            examples = (
                (self.tokenizer.encode(splits.train.read(i)), splits.train.labels[i])
                for i in range(len(splits.train))
            )
            self.objective.fit_inputs(examples)

    def train_dataloader(self) -> BatchLoader:
        """Batches of the training split, shuffled by (seed, epoch). Raises ValueError before `setup`, as all three."""
        return self._loader("training")

    def val_dataloader(self) -> BatchLoader | list[Any]:
        """Batches of the validation split; an empty list where there is none."""
        if self._is_set_up and not self.splits().valid:
            return []
        return self._loader("validation")

    def test_dataloader(self) -> BatchLoader:
        """Batches of the whole test split."""
        return self._loader("test")

    def extents(self) -> list[list[float]]:
        """[smallest, largest] last position of the training examples on each axis; empty for windows and for graphs."""
        examples = self._datasets.get("training")
        if isinstance(examples, TokenizedDataset | PackedDataset):
            return examples.extents
        return []

    def unknown(self) -> dict[str, list[int]]:
        """[tokens that are unknown, all tokens] of each split of windows that has some and whose loader was made."""
        found = {}
        for split, examples in self._datasets.items():
            if not isinstance(self.tokenizer, Text) or not isinstance(examples, TextWindows):
                continue
            token = self.tokenizer.unknown_id
            count = [0, 0] if token is None else [*examples.count(token)]
            if count[0]:
                found[split] = count
        return found

    def test_groups(self) -> list[int] | None:
        """Number of the group of each test example, as those of one are not independent; None: each is by itself.

        Known from sources of several speakers, from `--data.group` of a table, and for windows of a text. Windows of a
        forecast overlap, so runs of them in the order of time are the groups, none shorter than the steps ahead (batch
        means; Schmeiser 1982, "Batch size effects in the analysis of simulation output").
        """
        examples = self.test_dataloader().examples
        known: Sequence[Any] | None = self.splits().test.groups
        if isinstance(examples, TextWindows):
            known = examples.groups
        if known is None and self.objective.follows_time:
            m = len(examples)
            steps_ahead = len(self.splits().test.labels[0])
            num_batches = min(NUM_BATCHES, max(1, m // steps_ahead))
            return [i * num_batches // m for i in range(m)]
        if known is None:
            return None
        number: dict[Any, int] = {}
        return [
            number.setdefault(("alone", i) if group is None else group, len(number))
            for i, group in enumerate(known)
        ]

    def test_in_training(self) -> int | None:
        """Number of test examples that are in the training split too, token for token; None: it is not counted.

        Windows of a text are not counted, nor is a single graph, of which training and test label other nodes.
        """
        test = self.test_dataloader().examples
        train: Any = self.train_dataloader().examples
        if isinstance(train, PackedDataset):
            train = train.examples
        if (
            not (isinstance(test, TokenizedDataset) and isinstance(train, TokenizedDataset))
            or len(test) == 1
        ):
            return None
        known = set(train.digests())
        return sum(digest in known for digest in test.digests())

    def sha256(self) -> dict[str, str]:
        """Digest of all tokens and labels of each split whose loader was made: `DIGEST_VERSION`, a colon, SHA-256."""
        return {
            split: f"{DIGEST_VERSION}:{examples.sha256}"
            for split, examples in self._datasets.items()
        }

    def changed_splits(self, recorded: Mapping[str, str]) -> list[str]:
        """Splits whose loader was made and whose digest is another than the recorded one.

        Digests of another version cannot be compared, which is logged.
        """
        found = {split: digest for split, digest in self.sha256().items() if split in recorded}
        old = [split for split in found if not recorded[split].startswith(f"{DIGEST_VERSION}:")]
        if old:
            said = "are of another version of seqkit; whether the data changed cannot be told"
            log.warning("the digests of the %s data %s", " and ".join(old), said)
        return [split for split in found if split not in old and found[split] != recorded[split]]

    def check_supported(self, backbone: Backbone) -> None:
        """Raise ValueError if its batches are packed, and this backbone would let examples of a row mix."""
        if self.loading.packing is not None and not backbone.supports_segments:
            which = f"which this {type(backbone).__name__} cannot tell apart (no segments)"
            raise ValueError(
                f"packing puts examples into a row, {which}; use a backbone that supports segments, as LSTM does, "
                "or tokens_per_batch"
            )

    def _fit_tokenizer(self, splits: Splits) -> None:
        """Fit it on the training split, and count what only held-out text has."""
        samples = splits.train
        raws = [
            samples.read(i)
            for i in track(range(len(samples)), "reading training data", len(samples))
        ]
        self.tokenizer.fit(raws)  # type: ignore[attr-defined]
        share = getattr(self.tokenizer, "share_unknown", None)
        for split, others in (("validation", splits.valid), ("test", splits.test)):
            if share and others:
                for sentence in share(others.read(i) for i in range(len(others))):
                    log.warning("%s", f"{split} data: {sentence}")

    def _samples(self) -> dict[str, Samples]:
        splits = self.splits()
        found = {"training": splits.train, "test": splits.test}
        if splits.valid:
            found["validation"] = splits.valid
        return found

    def _check_labels(self) -> None:
        for split, samples in self._samples().items():
            for i, label in enumerate(samples.labels):
                if label is None:
                    who = f"{samples.name(i)} has no label, which {type(self.objective).__name__} needs"
                    raise DataError(
                        f"{split} data, {who}; label it, or pretrain without labels (NextToken, Masked)"
                    )

    def _with_plain_labels(self, split: str, samples: Samples) -> Samples:
        """The samples with labels as the objective's `plain_label` makes them; as they are if all are so already."""
        plain_label = getattr(self.objective, "plain_label", None)
        if plain_label is None:
            return samples
        labels = []
        for i, label in enumerate(samples.labels):
            with naming(split, samples, i):
                labels.append(None if label is None else plain_label(label))
        if all(made is given for made, given in zip(labels, samples.labels)):
            return samples
        return samples.labelled(labels)

    def _loader(self, split: str) -> BatchLoader:
        if not self._is_set_up:
            raise ValueError(
                "this DataModule is not set up; call setup() first (Trainer.fit(datamodule=...) does)"
            )
        shuffle = split == "training"
        if split not in self._datasets:
            self._datasets[split] = self._dataset(split, self._samples()[split], training=shuffle)
        examples = self._datasets[split]
        sort_keys = None
        if shuffle and self.augment:
            sort_keys = getattr(examples, "sort_keys", None)
        sampler = LengthGroupedBatchSampler(
            examples.lengths,
            self.batch_size,
            shuffle=shuffle,
            seed=self.seed,
            tokens_per_batch=self.loading.tokens_per_batch,
            sort_keys=sort_keys,
        )
        draws = shuffle and (self.augment or self.drop)
        threads = 0
        if torch.cuda.is_available() and not (draws or self.num_workers):
            threads = NUM_THREADS
        return BatchLoader(cast(BatchDataset, examples), sampler, self.num_workers, threads)

    def _dataset(
        self, split: str, samples: Samples, *, training: bool
    ) -> TokenizedDataset | TextWindows | PackedDataset:
        if self.window is not None:
            is_long = are_texts(samples) and num_characters(samples) >= MIN_TEXT
            encoder = Encoder(samples, self.tokenizer, split)
            documents = encode_split(encoder, [None] * len(samples), is_long_text=is_long)
            return TextWindows(
                documents,
                self.window,
                split,
                shuffle=training,
                seed=self.seed,
                limit=self.limit,
                name=samples.name,
            )
        changes = None
        if training and self.augment:
            changes = Augmentation(self.augment, self.seed)
        examples = TokenizedDataset(
            samples,
            self.tokenizer,
            split,
            objective=self.objective if self.objective.needs_labels else None,
            augment=changes,
            cache=self.num_workers == 0,
            max_tokens=self.selection.max_tokens,
            drop=self.drop if training else None,
        )
        if self.loading.packing is None or not training:
            return examples
        return PackedDataset(examples, self.loading.packing, seed=self.seed)
