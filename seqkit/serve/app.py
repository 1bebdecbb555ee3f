"""The routes: `/predict`, `/embed`, `/generate`, `/health`, and a page to try them; of several runs below `/NAME`."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import time
import uuid
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse, StreamingResponse
from jinja2 import Environment, PackageLoader, StrictUndefined
from litserve.utils import LitAPIStatus, ResponseBufferItem
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from seqkit import __version__
from seqkit.errors import printable
from seqkit.serve.limits import Limits
from seqkit.serve.requests import UPLOADS, Bodies, Inputs, Prompt, RequestError, busy, gone, parse

if TYPE_CHECKING:
    from seqkit.serve.server import RunsServer

log = logging.getLogger("seqkit")

FORMS: dict[str, type[BaseModel]] = {"predict": Inputs, "embed": Inputs, "generate": Prompt}
SUMMARIES = {
    "predict": "Predictions for one input or several",
    "embed": "Vectors of one input or several",
    "generate": "Text that continues the input, or that the model writes for it",
}


def application(server: RunsServer, described: Mapping[str, Mapping[str, Any]], limits: Limits) -> FastAPI:
    """The web application of a server. described: `ServedRun.description` of each run by name."""
    app = FastAPI(title="seqkit", version=__version__, lifespan=_watching_parent(server), redoc_url=None)
    ask = _Asker(server, limits)
    for name, run in described.items():
        below = f"/{name}" if len(described) > 1 else ""
        for action in run["offers"]:
            _add(app, f"{below}/{action}", action, run, ask.endpoint(name, action))
        app.add_api_route(f"{below}/", _page(name, run, below), include_in_schema=False)
    if len(described) > 1:
        app.add_api_route("/", _index(described), include_in_schema=False)

    @app.get("/health", summary="Whether the server answers, and what it serves")
    async def health() -> Response:
        runs = {name: {key: run[key] for key in ("recipe", "offers", "kind")} for name, run in described.items()}
        ready = server.is_ready
        return JSONResponse({"status": "ok" if ready else "starting", "runs": runs}, 200 if ready else 503)

    @app.exception_handler(RequestError)
    async def refused(_: Request, error: RequestError) -> Response:
        return JSONResponse({"error": printable(error)}, error.status, error.headers)

    @app.exception_handler(HTTPException)
    async def no_route(request: Request, error: HTTPException) -> Response:
        text = f"{error.detail}: {request.method} {printable(request.url.path)[:100]}; see /docs"
        return JSONResponse({"error": text}, error.status_code, error.headers)

    @app.exception_handler(Exception)
    async def failed(_: Request, __: Exception) -> Response:
        return JSONResponse({"error": "the server failed on this request; its log says why"}, 500)

    return app


def _add(app: FastAPI, path: str, action: str, run: Mapping[str, Any], endpoint: Any) -> None:
    """Add a route, with the form of its body as OpenAPI describes it."""
    content: dict[str, Any] = {
        "application/json": {"schema": FORMS[action].model_json_schema(), "example": {"input": run["example"]}}
    }
    if run["kind"] in ("image", "audio", "file"):
        content["application/octet-stream"] = {"schema": {"type": "string", "format": "binary"}}
    app.add_api_route(
        path,
        endpoint,
        methods=["POST"],
        summary=SUMMARIES[action],
        openapi_extra={"requestBody": {"required": True, "content": content}},
    )


class _Asker:
    """Passes requests to the process of the models, and its answers back.

    num_waiting: requests that have no answer yet.
    """

    def __init__(self, server: RunsServer, limits: Limits):
        self.server, self.limits, self.bodies, self.num_waiting = server, limits, Bodies(limits), 0

    def endpoint(self, run: str, action: str) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The function of a route."""
        answer = self._generated if action == "generate" else self._results

        async def endpoint(request: Request) -> Response:
            if self.num_waiting >= self.limits.waiting:
                raise busy()
            self.num_waiting += 1
            body = b""
            try:
                body = await self.bodies.read(request)
                form: Any = parse(request, body, FORMS[action], self.limits)
                return await answer(request, {"run": run, "action": action}, form)
            finally:
                self.num_waiting -= 1
                self.bodies.release(body)

        return endpoint

    async def _results(self, request: Request, payload: dict[str, Any], form: Inputs) -> Response:
        """Answers to one input or several."""
        given = form.model_fields_set
        if ("input" in given) == ("inputs" in given):
            raise RequestError(422, "give either input, for one example, or inputs, a list of several")
        if form.inputs is not None and not 1 <= len(form.inputs) <= self.limits.inputs:
            raise RequestError(422, f"inputs holds {len(form.inputs):,} examples; give 1 to {self.limits.inputs}")
        if "inputs" in given and form.inputs is None:
            raise RequestError(422, "inputs is null; give a list of examples")
        inputs = [form.input] if form.inputs is None else form.inputs
        message = await self._first(request, {**payload, "inputs": inputs, "probabilities": form.probabilities})
        if "results" not in message:
            raise RequestError(message["status"], message["error"])
        results = message["results"]
        statuses = [one.pop("status", 200) for one in results]
        if form.inputs is not None:
            return JSONResponse({"results": results})
        return JSONResponse(results[0], statuses[0])

    async def _generated(self, request: Request, payload: dict[str, Any], form: Prompt) -> Response:
        """A text, whole or streamed."""
        limits = self.limits
        if form.max_new_tokens is not None and form.max_new_tokens > limits.new_tokens:
            raise RequestError(
                422, f"max_new_tokens is {form.max_new_tokens:,}, and {limits.new_tokens:,} are the most"
            )
        if len(form.stop) > limits.stops or any(len(text) > limits.stop_characters for text in form.stop):
            most = f"{limits.stops} texts of {limits.stop_characters} characters are the most"
            raise RequestError(422, f"stop is too long; {most}")
        options = form.model_dump(exclude={"input", "stream"}, exclude_none=True)
        messages = self._messages({**payload, "input": form.input, "options": options})
        if not form.stream:
            text = await self._unless_gone(request, _joined(messages))
            return JSONResponse({"text": text})
        first = await anext(messages)  # an error before the first piece is an answer of its own
        if "error" in first:
            raise RequestError(first["status"], first["error"])
        return StreamingResponse(_events(first, messages, self._streaming), media_type="text/event-stream")

    async def _first(self, request: Request, payload: dict[str, Any]) -> dict[str, Any]:
        messages = self._messages(payload)
        try:
            return await self._unless_gone(request, anext(messages))
        finally:
            await messages.aclose()

    async def _unless_gone(self, request: Request, waiting: Any) -> Any:
        """The result of a coroutine, which is cancelled if the client goes away."""
        task = asyncio.ensure_future(waiting)

        async def until_gone() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass

        watch = asyncio.ensure_future(until_gone())
        try:
            await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise gone()
            return task.result()
        finally:
            for one in (task, watch):
                one.cancel()
            await asyncio.gather(task, watch, return_exceptions=True)

    def _streaming(self, change: int) -> None:
        self.num_waiting += change

    async def _messages(self, payload: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """Messages of the process of the models on a request, to the last one.

        Raises RequestError if it takes too long. If the request is given up, the process hears of it.
        """
        server, uid, event, queue = self.server, uuid.uuid4().hex, asyncio.Event(), deque[Any]()
        until = time.monotonic() + self.limits.seconds
        server.response_buffer[uid] = ResponseBufferItem(event=event, response_queue=queue)
        put, is_over = server._get_request_queue(server.api.api_path).put, False
        put((0, uid, time.monotonic(), payload))
        try:
            while not is_over:
                if not queue:
                    event.clear()
                    try:
                        async with asyncio.timeout(max(0.0, until - time.monotonic()) + bool(payload.get("options"))):
                            await event.wait()
                    except TimeoutError:
                        late = f"there was no answer within {self.limits.seconds:g} seconds"
                        raise RequestError(504, late) from None
                while queue:
                    message, status = queue.popleft()
                    is_over = status != LitAPIStatus.OK
                    yield message
        finally:
            server.response_buffer.pop(uid, None)
            if not is_over:
                put((0, uid, 0.0, None))


async def _joined(messages: AsyncIterator[dict[str, Any]]) -> str:
    """The whole text. Raises RequestError for an error, and where there was no time to end it."""
    text = ""
    async for message in messages:
        if "error" in message:
            raise RequestError(message["status"], message["error"])
        if message.get("end") == "timeout":
            raise RequestError(504, "the text took too long; give a smaller max_new_tokens, or stream it")
        text += message.get("text", "")
    return text


async def _events(
    first: dict[str, Any], messages: AsyncGenerator[dict[str, Any], None], count: Callable[[int], None]
) -> AsyncIterator[str]:
    """Server-sent events: {"text": piece}, and as the last one {"end": …} or {"error": …}. count: of such streams."""
    count(1)
    try:
        message: dict[str, Any] | None = first
        while message is not None:
            if message.get("text") != "":
                yield f"data: {json.dumps({key: x for key, x in message.items() if key != 'status'})}\n\n"
            message = await anext(messages, None)
    except RequestError as error:
        yield f"data: {json.dumps({'error': str(error)})}\n\n"
    finally:
        count(-1)
        await messages.aclose()


def _watching_parent(server: RunsServer) -> Any:
    """LitServe's lifespan, in a process that ends when the first one does."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        parent = os.getppid()

        async def watch() -> None:
            while os.getppid() == parent:
                await asyncio.sleep(1)
            os.kill(os.getpid(), signal.SIGTERM)

        task = asyncio.create_task(watch())
        async with server.lifespan(app):
            yield
        task.cancel()

    return lifespan


def _fill(template: str, **values: Any) -> HTMLResponse:
    environment = Environment(loader=PackageLoader("seqkit.serve", "."), autoescape=True, undefined=StrictUndefined)
    page = environment.get_template(template).render(**values)
    rules = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'"
    return HTMLResponse(page, headers={"Content-Security-Policy": f"{rules}; frame-ancestors 'none'"})


def _page(name: str, run: Mapping[str, Any], below: str) -> Any:
    async def page() -> Response:
        return _fill("page.html", name=name, run=run, below=below, runs=[], uploads=UPLOADS)

    return page


def _index(described: Mapping[str, Mapping[str, Any]]) -> Any:
    async def index() -> Response:
        return _fill("page.html", name="seqkit", run=None, below="", runs=list(described), uploads=UPLOADS)

    return index
