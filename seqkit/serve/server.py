"""LitServe's server around the runs: one process holds all models, another answers HTTP.

LitServe gives the processes, their queues, restarts and uvicorn. The loop and the routes are ours, as docs/decisions.md
says why (Serving).
"""

from __future__ import annotations

import faulthandler
import logging
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from queue import Empty
from typing import Any

from litserve import LitAPI, LitServer
from litserve.loops.base import LitLoop
from litserve.utils import LitAPIStatus, LoopResponseType, WorkerSetupStatus

from seqkit.errors import UsageError, is_out_of_memory, one_line
from seqkit.serve.limits import Limits

BATCH_SECONDS = 0.005
"""Longest wait for more examples of a batch that has room."""

STUCK = 2
"""Times the limit of a request after which the process of the models counts as stuck, and ends."""

FEW_TOKENS = 512
"""Tokens of a piece of work that has this time; a piece of more has more time in proportion."""


class RunsAPI(LitAPI):
    """LitServe's side of the process that holds the models.

    folders: run folders by name. hang: file for the place where the process was stuck.
    """

    def __init__(
        self,
        folders: Mapping[str, Path],
        limits: Limits,
        hang: Path,
        *,
        max_batch_size: int,
        device: str,
        dtype: str | None,
    ):
        super().__init__(max_batch_size=max_batch_size, batch_timeout=BATCH_SECONDS, stream=True, loop=WorkerLoop())
        self.folders, self.limits, self.hang = dict(folders), limits, hang
        self.device_name, self.dtype = device, dtype
        self.descriptions = multiprocessing.get_context("spawn").SimpleQueue()

    def setup(self, device: str) -> None:
        """Load the runs, and tell the first process what they are, or the error in one line."""
        from seqkit.runs.trained_model import load_one
        from seqkit.serve.worker import ServedRun

        if self.hang.exists() and (dump := self.hang.read_text(encoding="utf-8", errors="replace")):
            logging.getLogger("seqkit").error("%s", told_hang(dump))
        try:
            self.runs = {
                name: ServedRun(load_one(folder, self.device_name, self.dtype), self.limits)
                for name, folder in self.folders.items()
            }
        except Exception as error:
            if not isinstance(error, ValueError | OSError) and not is_out_of_memory(error):
                raise
            self.descriptions.put(one_line(error))
            logging.getLogger("litserve").disabled = True  # it would print the traceback
            raise
        logging.getLogger("seqkit").setLevel(logging.ERROR)  # of each odd input its answer has the warning
        if self.descriptions.empty():  # nobody reads what a restarted process says
            self.descriptions.put({name: run.description() for name, run in self.runs.items()})

    def predict(self, x: Any, **kwargs: Any) -> Any:
        """Not used: `WorkerLoop` answers."""
        raise NotImplementedError


class WorkerLoop(LitLoop):
    """Takes requests from LitServe's queue and has a `Worker` answer them.

    LitServe's own loops ask the queue a thousand times a second while nothing comes, answer all requests of a batch
    with the error of one, and stream without batches of others.
    """

    def __call__(
        self,
        lit_api: Any,
        device: str,
        worker_id: int,
        request_queue: Any,
        transport: Any,
        workers_setup_status: Any,
        callback_runner: Any,
    ) -> None:
        """Answer until the first process ends."""
        from seqkit.serve.worker import Worker

        def send(uid: str, data: dict[str, Any], is_last: bool) -> None:
            status = LitAPIStatus.FINISH_STREAMING if is_last else LitAPIStatus.OK
            transport.send((uid, (data, status, LoopResponseType.STREAMING, worker_id)), consumer_id=0)

        parent = os.getppid()
        with lit_api.hang.open("w", encoding="utf-8") as dump:

            def working(num_tokens: int) -> None:
                # nothing can interrupt a library that hangs; LitServe starts the process again
                seconds = STUCK * lit_api.limits.seconds * max(1.0, num_tokens / FEW_TOKENS)
                faulthandler.dump_traceback_later(seconds, exit=True, file=dump)

            worker = Worker(lit_api.runs, lit_api.limits, lit_api.max_batch_size, send, working)
            try:
                while os.getppid() == parent:
                    self._receive(worker, request_queue, lit_api)
                    worker.turn()
                    faulthandler.cancel_dump_traceback_later()
            except (KeyboardInterrupt, EOFError, BrokenPipeError, ConnectionError):
                return  # the server stops
            finally:
                faulthandler.cancel_dump_traceback_later()

    def _receive(self, worker: Any, request_queue: Any, lit_api: Any) -> None:
        """Take what has come; if there is nothing to do, wait for it, and a moment longer for more."""
        until = 0.0
        if worker.is_idle:
            if not self._take(worker, request_queue, 1.0):
                return
            until = time.monotonic() + lit_api.batch_timeout
        while self._take(worker, request_queue, max(0.0, until - time.monotonic())):
            if worker.num_waiting >= lit_api.max_batch_size:
                until = 0.0

    def _take(self, worker: Any, request_queue: Any, seconds: float) -> bool:
        try:
            _, uid, sent, payload = request_queue.get(seconds > 0, seconds or None)
        except Empty:
            return False
        if uid is not None:
            worker.add(uid, sent, payload)
        return True


def taken(port: int, why: str) -> str:
    """The error of a port that another process took after it was found to be free."""
    return f"port {port} was taken by another process meanwhile ({why}); give another --port"


def told_hang(dump: str) -> str:
    """A line on a process that was stuck. dump: what faulthandler wrote of its threads, the first one last."""
    seconds, _, threads = dump.partition("\n")
    frames = [line.strip() for line in threads.rpartition("\nThread")[2].splitlines() if line.startswith("  File")]
    where = f", at {one_line(frames[0])}" if frames else ""
    return (
        f"the process of the models did nothing for {seconds[seconds.find('(') + 1 : -2]}{where}; it is started again"
    )


class RunsServer(LitServer):
    """LitServe's server with the routes of `application`. announce: called with the descriptions when it listens."""

    def __init__(self, api: RunsAPI, limits: Limits, announce: Callable[[Mapping[str, Any]], None]):
        super().__init__(
            api, accelerator="cpu", timeout=limits.seconds, restart_workers=True, max_payload_size=limits.body_bytes
        )
        self.api, self.limits, self.announce = api, limits, announce
        self.described: Mapping[str, Any] = {}

    def launch_inference_worker(self, lit_api: Any) -> Any:
        """Start the process of the models, which leaves Ctrl-C to the first one: it would answer by a traceback."""
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            return super().launch_inference_worker(lit_api)
        finally:
            signal.signal(signal.SIGINT, before)

    def verify_worker_status(self) -> None:
        """Wait for the models. Raises UsageError if a run cannot be served, RuntimeError if the process ended."""
        while self.api.descriptions.empty():
            if not all(process.is_alive() for process in self.inference_workers):
                time.sleep(0.2)
                if self.api.descriptions.empty():
                    raise RuntimeError("the process that loads the runs ended")
            time.sleep(0.02)
        found = self.api.descriptions.get()
        if isinstance(found, str):
            raise UsageError(found)
        self.described = found
        while not all(state == WorkerSetupStatus.READY for state in self.workers_setup_status.values()):
            time.sleep(0.02)

    def _start_server(self, port: int, num: int, log_level: str, sockets: Any, kind: str, **options: Any) -> Any:
        from seqkit.serve.app import application

        self.app = application(self, self.described, self.limits)
        try:
            for listener in sockets:
                listener.listen(2048)  # clients that come from now on wait, instead of being refused
        except OSError as error:  # another process has bound the same port, and listens since
            raise UsageError(taken(port, str(error.strerror))) from None
        before = {one: signal.signal(one, signal.SIG_DFL) for one in (signal.SIGINT, signal.SIGTERM)}
        processes = super()._start_server(port, num, log_level, sockets, kind, **options)  # ends without a traceback
        for one, handler in before.items():
            signal.signal(one, handler)
        self.announce(self.described)
        return processes

    @property
    def is_ready(self) -> bool:
        """Whether the process of the models answers."""
        return all(state == WorkerSetupStatus.READY for state in self.workers_setup_status.values())
