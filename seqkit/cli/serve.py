"""`seqkit serve RUN…`."""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from importlib.util import find_spec
from multiprocessing import active_children
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from seqkit.cli.options import add_device, whole
from seqkit.errors import Interrupted, UsageError, one_line, printable

HOSTS = ("127.0.0.1", "0.0.0.0", "::")  # noqa: S104 - the default is the first
"""Addresses that LitServe binds to."""

TAKEN = ("health", "docs", "openapi.json", "predict", "embed", "generate", "")
"""First parts of the server's own paths."""


def run(args: Namespace) -> int:
    """Serve runs until Ctrl-C or SIGTERM."""
    from seqkit.runs.summary import check_trained

    folders = named(args.runs)
    for folder in folders.values():
        check_trained(folder)
    if find_spec("litserve") is None:
        raise UsageError('serving needs LitServe; install it: pip install "seqkit[serve]"')
    if args.host not in HOSTS:
        raise UsageError(f"--host is {one_line(args.host)}; give one of {', '.join(HOSTS)}")
    if not 1024 <= args.port <= 65535:
        raise UsageError(f"--port is {args.port}; give 1024 to 65535")
    if args.max_batch_size < 1 or not 0 < args.timeout < 86400:
        raise UsageError("--max-batch-size counts examples, 1 or more; --timeout is in seconds, above 0, below a day")
    check_port(args.host, args.port)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # its threads do not survive a fork
    from seqkit.serve.limits import Limits
    from seqkit.serve.server import RunsAPI, RunsServer, taken

    def announce(described: Mapping[str, Any]) -> None:
        what = "; ".join(f"{name}: {', '.join(one['offers'])} ({one['kind']})" for name, one in described.items())
        host = "[::1]" if args.host == "::" else args.host
        print(f"serve  http://{host}:{args.port}  {printable(what)}", flush=True)

    # uvicorn logs an error of the system beside its exit, which one line says here
    logging.getLogger("uvicorn.error").addFilter(lambda record: not isinstance(record.msg, OSError))
    limits = Limits(seconds=args.timeout)
    terminated = False

    def stop(*_: Any) -> None:
        nonlocal terminated
        terminated = True
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)  # else the other processes would stay
    with TemporaryDirectory() as place:
        hang, (size, device, dtype) = Path(place, "hang.txt"), (args.max_batch_size, args.device, args.dtype)
        api = RunsAPI(folders, limits, hang, max_batch_size=size, device=device, dtype=dtype)
        try:
            RunsServer(api, limits, announce).run(
                host=args.host, port=args.port, num_api_servers=1, log_level="warning", generate_client_file=False,
                limit_concurrency=4 * limits.waiting, server_header=False,
            )  # fmt: skip
        except KeyboardInterrupt:  # before it listens; the others would say at length that the first one is gone
            for process in active_children():
                process.kill()
            if terminated:
                raise Interrupted("stopped before it listened", signal.SIGTERM) from None
            raise
        except SystemExit:  # of uvicorn, which cannot bind the port
            raise UsageError(taken(args.port, "it cannot be bound")) from None
    return 0


def named(given: list[str]) -> dict[str, Path]:
    """Run folders by the name that their paths begin with: of `NAME=RUN` this name, else the folder's."""
    folders: dict[str, Path] = {}
    for word in given:
        name, separator, path = word.partition("=")
        folder = Path(path if separator else word)
        name = name if separator else folder.resolve().name
        if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", name) or name in TAKEN:
            raise UsageError(f"{one_line(name)!r} cannot be part of an address; give the run a name: NAME={folder}")
        if name in folders:
            raise UsageError(f"two runs are called {name}; give them names: NAME=RUN")
        folders[name] = folder
    return folders


def check_port(host: str, port: int) -> None:
    """Raise UsageError if nothing can listen there."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind((host, port))
        except OSError as error:
            raise UsageError(f"port {port} of {host} cannot be used ({error.strerror}); give another --port") from None


def add_arguments(parser: ArgumentParser) -> None:
    """Options of the command."""
    add = parser.add_argument
    add("runs", nargs="+", metavar="RUN", help="run folder, or NAME=RUN; several runs are served at /NAME")
    add("--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1: this machine only)")
    add("--port", type=whole, default=8000, help="port to listen on (default 8000)")
    add("--max-batch-size", type=whole, default=32, metavar="N", help="largest batch, in examples (default 32)")
    add("--timeout", type=float, default=30.0, metavar="S", help="seconds after which a request fails (default 30)")
    add_device(parser)
