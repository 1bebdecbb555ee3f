import logging
from collections import Counter

import pytest

from seqkit.errors import DataError
from seqkit.recipes.text.punctuation import ENDS, Punctuation, sentences, tagged
from seqkit.recipes.text.shakespeare import Shakespeare, TinyShakespeare, dialogue
from seqkit.recipes.text.sms_spam import SmsSpam

PLAY = r"""# A Play

## ACT I

### SCENE I. A street.

_Enter ROMEO, with
others_

**ROMEO**
_[Aside]_
Soft, what light?
It is the east,

_Beats him_

and Juliet is the sun.

_Exit_

**JULIET**
[Within]_
Ay me!\--
She speaks, & c.

**NURSE**
__\[Calls]_

**KING**

*Sound trumpets.*

Away! _[To her]_ Come.
"""


def test_dialogue_keeps_speeches_and_speakers():
    assert dialogue(PLAY.replace("**\n", "**  \n")) == (
        "ROMEO:\nSoft, what light?\nIt is the east,\nand Juliet is the sun.\n\n"
        "JULIET:\nAy me!--\nShe speaks, &c.\n\n"
        "KING:\nAway! Come.\n"
    )


@pytest.mark.slow
def test_shakespeare_is_clean_and_split_by_play():
    splits = Shakespeare().splits()
    assert (len(splits.train), len(splits.test)) == (34, 4)
    train, test = ("".join(s.raw for s in samples) for samples in (splits.train, splits.test))
    assert not set("_*[]#\\\0") & set(train + test)
    assert set(test) <= set(train)  # or a character model could not read its test
    for spoken in ("\n\nMACBETH:\n", "\n\nPROSPERO:\n"):
        assert spoken in test
        assert spoken not in train
    assert "But, soft! what light through yonder window breaks?\n" in train
    assert "_Exit" not in train
    assert "\nSCENE " not in train


def test_tinyshakespeare_is_the_usual_text_and_split(shared_data):
    splits = TinyShakespeare().splits()
    (train,), (test,) = splits.train, splits.test
    assert train.raw + test.raw == (shared_data / "tinyshakespeare" / "input.txt").read_text(
        encoding="utf-8"
    )
    assert (len(train.raw), len(test.raw)) == (1_003_854, 111_540)


def test_tinyshakespeare_offline_says_what_to_put_where(own_folder, monkeypatch):
    def unreachable(*args):
        raise OSError("no network")

    monkeypatch.setattr("seqkit.data.download._download", unreachable)
    with pytest.raises(DataError, match=rf"{own_folder / 'tinyshakespeare' / 'input.txt'}"):
        TinyShakespeare().splits()


def test_sms_spam_is_split_by_class_into_a_fifth(shared_data, caplog):
    with caplog.at_level(logging.WARNING, "seqkit"):
        splits = SmsSpam().splits()
    assert (len(splits.train), len(splits.test)) == (4460, 1114)
    assert splits.names == ["ham", "spam"]
    assert Counter(splits.test.labels) == {0: 965, 1: 149}
    lines = (shared_data / "sms-spam" / "messages.tsv").read_text(encoding="utf-8").split("\n")
    found = Counter(
        (splits.names[s.label], s.raw) for part in (splits.train, splits.test) for s in part
    )
    assert found == Counter(tuple(line.split("\t", 1)) for line in lines if line)
    assert not caplog.records


def test_sms_spam_that_is_missing_is_said(own_folder):
    with pytest.raises(DataError, match=r"sms-spam/messages\.tsv .*SEQKIT_DATA"):
        SmsSpam().splits()


def test_a_mark_behind_a_word_is_its_tag():
    words, tags = tagged("Who's there? Nay, answer me; stand--and unfold yourself.")
    assert words == ["who's", "there", "nay", "answer", "me", "stand", "and", "unfold", "yourself"]
    assert tags == ["none", "question", "comma", "none", "colon", "none", "none", "none", "stop"]


def test_a_sentence_has_the_mark_that_ended_it():
    found = [
        (s.raw, ENDS[s.label]) for s in sentences("Who's there? Nay, answer me:\nstand. Long\n")
    ]
    assert found == [("who's there", "question"), ("nay answer me stand", "stop")]


@pytest.mark.slow
def test_punctuation_has_a_tag_for_each_word_and_no_marks():
    splits = Punctuation().splits()
    assert len(splits.train) > 10 * len(splits.test) > 10_000
    for sample in splits.test[:200]:
        assert len(sample.raw.split()) == len(sample.label) <= 64
        assert not set(sample.raw) & set(",.?!:;ABC")
