"""LitServe's server around a run: one process holds the model, another answers HTTP.

LitServe has the queue, the batches, the restarts and the routes. Ours are the forms of requests, a deadline, which
LitServe does not put on an answer, and errors in one line.
"""

import asyncio
import faulthandler
import logging
import signal
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

from fastapi import HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from litserve import LitAPI, LitServer
from litserve.server import RegularRequestHandler
from pydantic import BaseModel, ConfigDict, Field, model_validator
from starlette.middleware.trustedhost import TrustedHostMiddleware

from seqkit.errors import one_line, printable, reason
from seqkit.files import decoded, load_json
from seqkit.generation.sampling import Sampling
from seqkit.serve.inputs import MAX_TOKENS

MAX_BYTES = 2**23
"""Most bytes of the body of a request."""

MAX_CONNECTIONS = 512
"""Requests that may wait at a time; others get status 503."""

BATCH_SECONDS = 0.005
"""Longest wait for more requests of a batch that has room."""

LOCAL = "127.0.0.1"


class _Form(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    input: Any = Field(description='the raw example; the content of a file is {"base64": …}')


class Predict(_Form):
    """Body of `/predict`."""

    probabilities: bool = Field(False, description="give the probability of each class")


class Embed(_Form):
    """Body of `/embed`."""


class Generate(_Form):
    """Body of `/generate`. The options are those of `seqkit generate`."""

    max_new_tokens: Annotated[int, Field(ge=1, le=MAX_TOKENS)] | None = None
    stop: list[Annotated[str, Field(min_length=1, max_length=100)]] = Field([], max_length=8)
    temperature: float = 0.8
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int = 0

    @model_validator(mode="after")
    def _check(self) -> "Generate":
        self.sampling()
        return self

    def sampling(self) -> Sampling:
        """How tokens are drawn. Raises ValueError for options that mean nothing."""
        names = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed")
        return Sampling(**{name: getattr(self, name) for name in names})


class RunAPI(LitAPI):
    """LitServe's side of the process that holds the model.

    load: makes the ServedRun, in that process. seconds: time budget of a request.
    """

    def __init__(self, load: Callable[[], Any], seconds: float, **options: Any):
        super().__init__(**options)
        self.load = load
        self.seconds = seconds

    def setup(self, device: str) -> None:
        """Load the run. Ctrl-C is left to the first process, which ends this one."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        # the first process has said what is odd about the run
        logging.getLogger("seqkit").setLevel(logging.ERROR)
        self.run = self.load()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Context that ends the process after twice the time budget: nothing else interrupts a library that hangs."""
        faulthandler.dump_traceback_later(2 * self.seconds, exit=True)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()


class AnswersAPI(RunAPI):
    """Answers `/predict` and `/embed`, several requests at a time."""

    def __init__(self, load: Callable[[], Any], seconds: float, max_batch_size: int):
        # LitServe streams to one request at a time, and makes batches of two or more
        super().__init__(
            load, seconds, max_batch_size=max(2, max_batch_size), batch_timeout=BATCH_SECONDS
        )

    def decode_request(self, request: Predict, **_: Any) -> Predict | Embed:
        """The body, as FastAPI has checked it."""
        return request

    def predict(self, x: Sequence[Predict | Embed], **_: Any) -> list[tuple[dict[str, Any], bool]]:
        """The answer to each request, and whether probabilities were asked for."""
        with self.watched():
            answers = self.run.answers(
                [("predict" if isinstance(one, Predict) else "embed", one.input) for one in x]
            )
        return [
            (answer, getattr(one, "probabilities", False))
            for one, answer in zip(x, answers, strict=True)
        ]

    def encode_response(self, output: tuple[dict[str, Any], bool], **_: Any) -> Response:
        """The answer as JSON; an error if it holds a number that is not finite, which JSON cannot say."""
        answer, has_probabilities = output
        if not has_probabilities:
            answer.pop("probabilities", None)
        elif "probabilities" not in answer and "detail" not in answer:
            said = "this run predicts no classes; leave out probabilities"
            answer = {"status": 422, "detail": said}
        try:
            return JSONResponse(answer, answer.pop("status", 200))
        except ValueError:
            return JSONResponse(
                {"detail": "the model's answer is not finite (NaN or infinite)"}, 500
            )


class TextsAPI(RunAPI):
    """Answers `/generate`: a JSON object a line, {"text": piece} or, as the last one, {"detail": error}."""

    def __init__(self, load: Callable[[], Any], seconds: float):
        super().__init__(load, seconds, stream=True, api_path="/generate")

    def decode_request(self, request: Generate, **_: Any) -> Generate:
        """The body, as FastAPI has checked it."""
        return request

    def predict(self, x: Generate, **_: Any) -> Iterator[dict[str, str]]:
        """Pieces of the text as they come."""
        try:
            with self.watched():
                for piece in self.run.text(x.input, x.max_new_tokens, x.sampling(), x.stop):
                    yield {"text": piece}
        except (ValueError, OSError) as error:
            yield {"detail": printable(reason(error))}

    # FastAPI reads this annotation
    def encode_response(self, output: Iterator[dict[str, str]], **_: Any) -> Any:
        """The same: LitServe writes a line for each."""
        yield from output


class StrictRequest(Request):
    """A request whose JSON is read as all JSON of seqkit: a key that is given twice is refused."""

    async def json(self) -> Any:
        """The body. Raises HTTPException, status 422, where it is no such JSON."""
        try:
            return load_json(decoded(await self.body()))
        except ValueError as error:
            raise HTTPException(422, f"the body is no JSON: {one_line(error)[:200]}") from error


class StrictRoute(APIRoute):
    """A route whose requests are StrictRequests."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, as FastAPI asks for it."""
        handle = super().get_route_handler()

        async def strictly(request: Request) -> Response:
            return await handle(StrictRequest(request.scope, request.receive))

        return strictly


class Guard:
    """ASGI middleware: status 504 after `seconds` without a word, 422 for a stream that begins with an error, 413 for a
    body that is declared to be too large."""

    def __init__(self, app: Any, seconds: float):
        self.app = app
        self.seconds = seconds

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on, and its answer back."""
        start: dict[str, Any] | None = None
        is_open = False
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        declared = dict(scope["headers"]).get(b"content-length", b"")
        if declared.isdigit() and int(declared) > MAX_BYTES:
            large = JSONResponse({"detail": f"a body has at most {MAX_BYTES:,} bytes"}, 413)
            await large(scope, receive, send)
            return

        async def relay(message: dict[str, Any]) -> None:
            nonlocal start, is_open
            if message["type"] == "http.response.start":
                start = message
                return
            if not is_open and start is not None:
                is_open = True
                is_error = start["status"] == 200 and message.get("body", b"").startswith(
                    b'{"detail"'
                )
                await send(start | ({"status": 422} if is_error else {}))
            deadline.reschedule(asyncio.get_running_loop().time() + self.seconds)
            await send(message)

        with suppress(TimeoutError):
            async with asyncio.timeout(self.seconds) as deadline:
                await self.app(scope, receive, relay)
            return
        if not is_open:
            late = JSONResponse(
                {"detail": f"there was no answer within {self.seconds:g} seconds"}, 504
            )
            await late(scope, receive, send)


class RunServer(LitServer):
    """LitServe's server of one run. ready: is called when it listens."""

    def __init__(self, api: AnswersAPI | TextsAPI, host: str, ready: Callable[[], None]):
        middlewares: list[Any] = [(Guard, {"seconds": api.seconds})]
        if host == LOCAL:  # a name that somebody else points here is no door
            middlewares.append((TrustedHostMiddleware, {"allowed_hosts": [LOCAL, "localhost"]}))
        super().__init__(
            api, accelerator="cpu", timeout=api.seconds, restart_workers=True, max_payload_size=MAX_BYTES,
            middlewares=middlewares,
        )  # fmt: skip
        self.ready = ready
        self.app.add_exception_handler(RequestValidationError, _invalid)
        if isinstance(api, AnswersAPI):
            handler = RegularRequestHandler(api, self)

            async def embed(request: Embed) -> Response:
                answer: Response = await handler.handle_request(request, Embed)
                return answer

            self.app.add_api_route("/embed", embed, methods=["POST"])

    def register_endpoints(self) -> None:
        """Register LitServe's routes as strict ones."""
        self.app.router.route_class = StrictRoute
        super().register_endpoints()

    def _start_server(
        self, port: int, number: int, log_level: str, sockets: Any, kind: str, **options: Any
    ) -> Any:
        for listener in sockets:
            # clients that come from now on wait, instead of being refused
            listener.listen(MAX_CONNECTIONS)
        before = {
            one: signal.signal(one, signal.SIG_DFL) for one in (signal.SIGINT, signal.SIGTERM)
        }
        # end without a traceback
        processes = super()._start_server(port, number, log_level, sockets, kind, **options)
        for one, handler in before.items():
            signal.signal(one, handler)
        self.ready()
        return processes


async def _invalid(_: Any, error: Exception) -> Response:
    """A body that does not fit its form, in one line."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    place = ".".join(map(str, first["loc"][1:]))
    return JSONResponse(
        {"detail": f"{printable(place)[:60]}: {one_line(first['msg'])[:200]}".removeprefix(": ")},
        422,
    )


def load(
    folder: Path, plugins: Sequence[Path], device: str, dtype: str | None, seconds: float
) -> Any:
    """The ServedRun of a folder. plugins: Python files that register its components."""
    from seqkit.registry.plugins import import_plugins
    from seqkit.runs.trained_model import load_one
    from seqkit.serve.answers import ServedRun

    import_plugins(plugins)
    return ServedRun(load_one(folder, device, dtype), seconds)
