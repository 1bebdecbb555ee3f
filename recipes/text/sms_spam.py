"""Text messages, spam or not: a table that has a name."""

import logging

from seqkit.data import DataSource, Given, Splits, Table
from seqkit.data.download import find, missing


class SmsSpam(DataSource):
    """`sms-spam`: 5,574 text messages, `ham` or `spam` (13.4 %), from the UCI collection (Almeida and Hidalgo 2011).

    Split: a fifth of each class is test, `stratified(labels, 0.2, seed=0)`. 114 of the 1,114 test messages are in
    training, too, word for word.
    """

    def splits(self) -> Splits:
        name = "sms-spam/messages.tsv"
        if (path := find(name)) is None:
            raise missing(
                name,
                "put the UCI SMS Spam Collection there, a line a message: ham or spam, a tab, the text",
            )
        given = Given(
            input="text", target="label", target_kind="classes", columns=["label", "text"]
        )
        return Table(str(path), given).divided(logging.getLogger("seqkit").debug)
