"""Signals that stop a run: kept or raised, the second one ends the process, and what was ignored stays so."""

import os
import signal
import subprocess
import sys

import pytest

from seqkit.errors import Interrupted
from seqkit.training.interrupt import SIGNALS, StopSignals

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals")


@pytest.fixture(autouse=True)
def _handlers():
    """Python's own handlers: a process in the background begins with SIGINT ignored. What was there comes back."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number in SIGNALS:
        signal.signal(
            number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        )
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_a_signal_is_raised_with_what_the_run_was_doing(number):
    signals = StopSignals()
    signals.phase, signals.next_step = "testing", "; finish it"
    with (
        signals.installed(),
        pytest.raises(Interrupted, match=f"{number.name}: .*testing") as stop,
    ):
        os.kill(os.getpid(), number)
    assert stop.value.signum == number
    assert signals.received == number


def test_a_deferred_signal_is_kept_and_said(caplog):
    signals = StopSignals()
    signals.deferred = True
    with signals.installed():
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals.received == signal.SIGTERM
    assert (
        "SIGTERM: a checkpoint is written at the end of this step, then the run stops"
        in caplog.text
    )


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_a_second_signal_ends_the_process(number):
    code = (
        "import os, signal\n"
        "from seqkit.training.interrupt import StopSignals\n"
        f"signal.signal({int(number)}, signal.SIG_DFL)\n"
        "signals = StopSignals(); signals.deferred = True\n"
        "with signals.installed():\n"
        f"    os.kill(os.getpid(), {int(number)})\n"
        "    print('goes on', flush=True)\n"
        f"    os.kill(os.getpid(), {int(number)})\n"
        "    print('is not reached', flush=True)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "goes on\n"
    assert done.returncode == -number


def test_a_signal_in_an_import_ends_the_process_with_its_line_where_an_error_would_be_taken_for_another(
    tmp_path,
):
    (tmp_path / "slow.py").write_text(
        "import os, signal\ntry:\n    os.kill(os.getpid(), signal.SIGTERM)\nexcept BaseException:\n    pass\n"
    )
    code = (
        "from seqkit.training.interrupt import StopSignals\n"
        "signals = StopSignals(); signals.exits_in_imports = True; signals.next_step = '; go on'\n"
        "with signals.installed():\n    import slow\nprint('is not reached')\n"
    )
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{code}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (128 + signal.SIGTERM, "")
    assert done.stderr == "seqkit: SIGTERM: stopped while starting; go on\n"


def test_what_nohup_had_ignored_stays_ignored_and_the_handlers_come_back():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    before = {number: signal.getsignal(number) for number in SIGNALS}
    signals = StopSignals()
    with signals.installed():
        for _ in range(2):
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            assert signal.getsignal(signal.SIGTERM) == signals._handle
            signal.signal(signal.SIGTERM, signal.SIG_DFL)  # as Lightning does
            signals.install_again()
    assert {number: signal.getsignal(number) for number in SIGNALS} == before
