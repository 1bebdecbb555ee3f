"""`seqkit serve RUN`."""

from __future__ import annotations

import logging
import os
import signal
from argparse import ArgumentParser, Namespace
from functools import partial
from importlib.util import find_spec
from multiprocessing import active_children
from typing import Any

from seqkit.cli.options import add_device, add_run, whole
from seqkit.errors import UsageError, one_line

HOSTS = ("127.0.0.1", "0.0.0.0", "::")  # noqa: S104 - the default is the first
"""Addresses that LitServe binds to."""


def run(args: Namespace) -> int:
    """Serve a run until Ctrl-C or SIGTERM."""
    from seqkit.runs.summary import check_trained

    check_trained(args.run)
    if find_spec("litserve") is None:
        raise UsageError('serving needs LitServe; install it: pip install "seqkit[serve]"')
    if args.host not in HOSTS:
        raise UsageError(f"--host is {one_line(args.host)}; give one of {', '.join(HOSTS)}")
    if not 1024 <= args.port <= 65535:
        raise UsageError(f"--port is {args.port}; give 1024 to 65535")
    if args.max_batch_size < 1 or not 0 < args.timeout < 86400:
        raise UsageError(
            "--max-batch-size counts examples, 1 or more; --timeout is in seconds, above 0, below a day"
        )
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # its threads do not survive a fork
    from seqkit.runs.trained_model import find_device
    from seqkit.serve.server import MAX_CONNECTIONS, AnswersAPI, RunServer, TextsAPI, load

    of_run = partial(load, args.run, dtype=args.dtype, seconds=args.timeout)
    find_device(args.device)
    # here as well: a run that cannot be served is an error before anything starts
    served = of_run([], "cpu")
    kind = served.reader.kind
    writes_text = served.writes_text
    del served
    again = partial(of_run, args.plugin, args.device)
    if writes_text:
        api = TextsAPI(again, args.timeout)
    else:
        api = AnswersAPI(again, args.timeout, args.max_batch_size)

    def announce() -> None:
        host = "[::1]" if args.host == "::" else args.host
        paths = "/generate" if writes_text else "/predict, /embed"
        print(f"serve  http://{host}:{args.port}  {paths} ({kind})", flush=True)

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)  # else the other processes would stay
    # uvicorn logs an error of the system beside its exit, which one line says here
    logging.getLogger("uvicorn.error").addFilter(lambda record: not isinstance(record.msg, OSError))
    try:
        RunServer(api, args.host, announce).run(
            host=args.host, port=args.port, num_api_servers=1, log_level="warning", generate_client_file=False,
            limit_concurrency=MAX_CONNECTIONS, server_header=False,
        )  # fmt: skip
    except SystemExit:  # of uvicorn, which cannot bind the port
        raise UsageError(
            f"port {args.port} of {args.host} cannot be used; give another --port"
        ) from None
    finally:
        for process in active_children():
            process.kill()
    return 0


def add_arguments(parser: ArgumentParser) -> None:
    """Options of the command."""
    add_run(parser)
    add = parser.add_argument
    add(
        "--host",
        default="127.0.0.1",
        help="address to listen on (default 127.0.0.1: this machine only)",
    )
    add("--port", type=whole, default=8000, help="port to listen on (default 8000)")
    add(
        "--max-batch-size",
        type=whole,
        default=32,
        metavar="N",
        help="largest batch, in examples (default 32)",
    )
    add(
        "--timeout",
        type=float,
        default=30.0,
        metavar="S",
        help="seconds after which a request fails (default 30)",
    )
    add_device(parser)
