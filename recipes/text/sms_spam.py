"""Text messages, spam or not: a table of your own becomes a data set with a name."""

from __future__ import annotations

import logging

from seqkit.data import DataSource, Splits, Table
from seqkit.data.download import find, missing

log = logging.getLogger("seqkit")


class SmsSpam(DataSource):
    """`sms-spam`: 5,574 text messages, `ham` or `spam` (13.4 %), from the UCI collection (Almeida and Hidalgo 2011).

    Split: a fifth of each class is test, `stratified(labels, 0.2, seed=0)`. 114 of the 1,114 test messages are in
    training, too, word for word.
    """

    def splits(self) -> Splits:
        """Raises DataError where `sms-spam/messages.tsv` is missing."""
        name = "sms-spam/messages.tsv"
        path = find(name)
        if path is None:
            raise missing(name, "put the UCI SMS Spam Collection there, a line a message: ham or spam, a tab, the text")
        table = Table(
            str(path), columns=["label", "text"], input="text", target="label", kind="text", target_kind="classes"
        )
        return table.divided(log.debug)
