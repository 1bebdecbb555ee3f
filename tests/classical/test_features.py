"""Features of classical methods."""

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer

from seqkit.classical.features import Counts

RARE = [f"w{i:03}" for i in range(400)]


def test_of_equally_frequent_terms_the_first_in_the_alphabet_are_kept():
    rng = np.random.default_rng(0)
    for _ in range(3):
        rows = [f"often {word}" for word in rng.permutation(RARE)]
        counts = Counts(binary=True, max_features=301)
        found = counts.fit_transform(rows)
        assert list(counts.get_feature_names_out()) == ["often", *RARE[:300]]
        assert found.sum() == 700
        assert (counts.transform(rows) != found).nnz == 0
        assert counts.max_features == 301


def test_without_ties_the_terms_are_scikit_learns():
    rows = [" ".join(RARE[: i + 1]) for i in range(40)]
    for most in (None, 7, 100):
        ours = Counts(max_features=most)
        theirs = CountVectorizer(max_features=most)
        assert (ours.fit_transform(rows) != theirs.fit_transform(rows)).nnz == 0
        assert ours.vocabulary_ == theirs.vocabulary_
