"""What is shown of a text that somebody else wrote: nothing in it steers a terminal, a log or a page."""

import logging
import sys

import pytest

from seqkit.errors import (
    MAX_FOREIGN,
    DataError,
    LogFormatter,
    attempt,
    described,
    one_line,
    printable,
    reason,
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("a\x00b", r"a\x00b"),
        ("\x07\x08\r\x7f\x9b", r"\x07\x08\r\x7f\x9b"),
        ("\u202eabc\u2066", r"\u202eabc\u2066"),
        ("a\u2028b", r"a\u2028b"),
        ("a\udc80b", r"a\udc80b"),
        ("two\nlines,\ta tab", "two\nlines,\ta tab"),
        ("Größe 数 👨‍👩‍👧 [red] <b> \\x1b", "Größe 数 👨‍👩‍👧 [red] <b> \\x1b"),
        (7, "7"),
    ],
)
def test_what_steers_a_terminal_is_escaped_and_the_rest_stays(text, shown):
    assert printable(text) == shown
    assert one_line(text) == shown.replace("\n", r"\n").replace("\t", r"\t")


def test_nothing_that_is_escaped_is_a_control_character():
    """Every character that Python calls a control, a surrogate or a line separator; by Unicode's own table."""
    import unicodedata

    for code in range(sys.maxunicode + 1):
        steers = (
            unicodedata.category(chr(code)) in ("Cc", "Cs", "Zl", "Zp") and chr(code) not in "\n\t"
        )
        if steers:
            assert printable(chr(code)).isprintable(), hex(code)
            assert one_line(chr(code)).isascii(), hex(code)


def test_a_name_in_a_log_line_cannot_fake_another_line_nor_colour_it():
    record = logging.LogRecord(
        "seqkit", logging.INFO, "", 0, "read %s", ("a\n2026 seqkit INFO \x1b[31mdone",), None
    )
    assert (
        LogFormatter("%(name)s %(message)s").format(record)
        == r"seqkit read a\n2026 seqkit INFO \x1b[31mdone"
    )


def test_a_traceback_in_a_log_keeps_its_lines():
    try:
        raise ValueError("a\x1bb")
    except ValueError:
        record = logging.LogRecord("seqkit", logging.ERROR, "", 0, "stopped", (), sys.exc_info())
    lines = LogFormatter("%(message)s").format(record).splitlines()
    assert (lines[0], lines[1], lines[-1]) == (
        "stopped",
        "Traceback (most recent call last):",
        r"ValueError: a\x1bb",
    )


def test_a_table_that_another_package_logs_keeps_its_lines():
    record = logging.LogRecord(
        "pytorch_lightning", logging.INFO, "", 0, "\n1 | layer\n2 | \x1bhead", (), None
    )
    assert LogFormatter("%(message)s").format(record) == "\n1 | layer\n2 | \\x1bhead"


class Reads:
    """A tokenizer whose `read` raises what it is given."""

    def read(self, error):
        raise error


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (KeyError("time"), "KeyError: 'time'"),
        (StopIteration(), "StopIteration"),
        (EOFError(), "EOFError"),
        (ValueError("two\nlines"), "ValueError: two lines"),
        (
            UnicodeDecodeError("utf-8", b"\xe9" * 10**6, 0, 1, "wrong"),
            "UnicodeDecodeError: 'utf-8' codec can't decode",
        ),
    ],
)
def test_an_error_of_another_is_its_class_and_message_in_a_line(error, shown):
    with pytest.raises(DataError) as refused:
        attempt(Reads(), "read", error)
    assert str(refused.value).startswith(f"Reads.read raised {shown}")
    assert len(described(error)) < 100


def test_a_long_message_is_cut_and_one_that_explains_itself_later():
    long = DataError("x" * 10_000)
    assert described(long) == f"DataError: {'x' * (MAX_FOREIGN - 1)}…"
    assert len(reason(long)) == 1000
    assert reason(DataError("no such file")) == "no such file"
    assert reason(OSError()) == "OSError"
