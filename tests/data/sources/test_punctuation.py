"""Marks of punctuation as tags of words and as classes of sentences."""

import pytest

from seqkit.data.sources.punctuation import TAGS, Punctuation, SentenceEnds, sentences, tagged


def test_a_mark_behind_a_word_is_its_tag():
    words, tags = tagged("Who's there? Nay, answer me; stand--and unfold yourself.")
    assert words == ["who's", "there", "nay", "answer", "me", "stand", "and", "unfold", "yourself"]
    assert [TAGS[tag] for tag in tags] == ["none", "question", "comma", "none", "colon", "none", "none", "none", "stop"]


def test_a_sentence_has_the_mark_that_ended_it():
    found = [
        (s.raw, SentenceEnds.NAMES[s.label]) for s in sentences("HAMLET:\nWho's there? Nay, answer me:\nstand. Long\n")
    ]
    assert found == [("who's there", "question"), ("nay answer me stand", "stop")]


@pytest.mark.slow
def test_punctuation_has_a_tag_for_each_word_and_no_marks():
    splits = Punctuation().splits()
    assert len(splits.train) > 10 * len(splits.test) > 10_000
    for sample in splits.test[:200]:
        assert len(sample.raw.split()) == len(sample.label) <= 64
        assert not set(sample.raw) & set(",.?!:;ABC")
