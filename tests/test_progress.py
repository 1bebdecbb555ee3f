import pytest

from seqkit.progress import ProgressBar, track


def test_track_gives_all_items_with_and_without_a_bar(capsys):
    assert list(track(range(7), "counting", 7)) == list(range(7))
    assert capsys.readouterr().err == ""
    assert list(track(range(7), "counting", 7, patience=-1)) == list(range(7))


def test_a_bar_that_vanishes_leaves_nothing_in_a_log(capsys):
    assert list(track(range(7), "counting", 7, patience=-1)) == list(range(7))
    assert capsys.readouterr().err == ""


def test_a_loop_that_breaks_stops_the_bar(monkeypatch):
    stopped = []
    monkeypatch.setattr(ProgressBar, "stop", lambda bar: stopped.append(bar._shown is not None))
    items = track(range(7), "counting", 7, patience=-1)
    assert [next(items), next(items)] == [0, 1]
    items.close()
    assert stopped == [True]


def test_a_bar_shows_what_how_far_and_a_note_on_stderr(capsys):
    with ProgressBar("training", 11) as bar:
        bar.update(7, "train/loss 0.250")
    out, error = capsys.readouterr()
    assert out == ""
    for shown in ("training", "7/11", "train/loss 0.250", "left"):
        assert shown in error


def test_a_total_may_grow(capsys):
    with ProgressBar("comparing", 11) as bar:
        bar.total = 13
        bar.update(12)
    assert "12/13" in capsys.readouterr().err


def test_bytes_are_shown_in_their_unit(capsys):
    with ProgressBar("fetching a.gz", 2_000_000, in_bytes=True) as bar:
        bar.update(500_000)
    assert "0.5/2.0 MB" in capsys.readouterr().err


def test_updates_before_start_and_after_stop_show_nothing(capsys):
    bar = ProgressBar("training", 11)
    bar.update(3)
    bar.stop()
    assert capsys.readouterr().err == ""
    bar.start()
    bar.start()
    bar.stop()
    assert capsys.readouterr().err.count("0/11") == 1


def test_an_unknown_total_is_allowed(capsys):
    with ProgressBar("reading", None) as bar:
        bar.update(3)
    assert "3/?" in capsys.readouterr().err


def test_an_error_in_the_loop_is_not_swallowed():
    with pytest.raises(ZeroDivisionError), ProgressBar("dividing", 2):
        _ = 1 / 0


def test_a_name_in_a_bar_is_text_and_neither_markup_nor_control(capsys):
    with ProgressBar("[red]a[/blue] :smile: \x1b[31m\nb", 11) as bar:
        bar.update(7, "[b] \x07 [/i]")
    error = capsys.readouterr().err
    assert r"[red]a[/blue] :smile: \x1b[31m\nb" in error
    assert r"[b] \x07 [/i]" in error


def test_without_a_terminal_there_is_a_line_soon_and_one_every_30_seconds_with_the_time_left(
    monkeypatch, capsys
):
    now = 100.0
    monkeypatch.setattr("seqkit.progress.time.monotonic", lambda: now)
    with ProgressBar("[red]training", 400) as bar:
        for done in range(1, 101):
            now += 1
            bar.update(done, "train/loss 0.250")
        lines = capsys.readouterr().err.splitlines()
    assert lines == [
        f"[red]training: {done} of 400, train/loss 0.250, {taken} taken, about {left} left"
        for done, taken, left in (
            (2, "0:02", "6:38"),
            (32, "0:32", "6:08"),
            (62, "1:02", "5:38"),
            (92, "1:32", "5:08"),
        )
    ]
