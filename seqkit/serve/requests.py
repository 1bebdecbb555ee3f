"""Requests as they come: bodies within the limits, JSON as plain data, and errors in one line."""

from __future__ import annotations

import asyncio
import math
from typing import Annotated, Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import ClientDisconnect

from seqkit.errors import one_line, printable, suggest
from seqkit.files import load_json
from seqkit.serve.limits import Limits

UPLOADS = ("image/", "audio/", "application/octet-stream")
"""Content types whose body is the input itself."""

Form = TypeVar("Form", bound=BaseModel)


class RequestError(Exception):
    """A request that is refused. status: of HTTP. headers: of the answer."""

    def __init__(self, status: int, text: str, headers: dict[str, str] | None = None):
        super().__init__(text)
        self.status, self.headers = status, headers or {}


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Inputs(_Strict):
    """Body of `/predict` and `/embed`: `input` for one example, or `inputs` for several."""

    input: Any = None
    inputs: list[Any] | None = None
    probabilities: bool = Field(False, description="give the probability of each class")


class Prompt(_Strict):
    """Body of `/generate`. The options are those of `seqkit generate`."""

    input: Any = Field(description="the text to continue, or the source")
    stream: bool = Field(False, description="send pieces of the text as server-sent events as they come")
    max_new_tokens: Annotated[int, Field(ge=1)] | None = None
    stop: list[Annotated[str, Field(min_length=1)]] = Field([], description="end before one of these texts")
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    seed: int | None = None


class Bodies:
    """Reads bodies of requests. held: bytes of all bodies that are being received or worked on."""

    def __init__(self, limits: Limits):
        self.limits, self.held = limits, 0

    async def read(self, request: Request) -> bytes:
        """The whole body; `release` gives its room back. Raises RequestError: too large, too slow, or encoded."""
        limits, most = self.limits, self.limits.body_bytes
        too_large = RequestError(413, f"the body is larger than {most:,} bytes, the most here", {"Connection": "close"})
        if request.headers.get("content-encoding", "identity") != "identity":
            raise RequestError(415, "the body is compressed; send it as it is, without Content-Encoding")
        declared = request.headers.get("content-length", "")
        if declared.isdigit() and (len(declared) > 15 or int(declared) > most):
            raise too_large
        chunks, size = list[bytes](), 0
        try:
            async with asyncio.timeout(limits.seconds):
                async for chunk in request.stream():
                    size += len(chunk)
                    self.held += len(chunk)
                    if size > most:
                        raise too_large
                    if self.held > limits.bodies_bytes:
                        raise busy()
                    chunks.append(chunk)
        except BaseException as error:
            self.held -= size
            if isinstance(error, ClientDisconnect):
                raise gone() from None
            if isinstance(error, TimeoutError):
                slow = f"the body did not come within {limits.seconds:g} seconds"
                raise RequestError(408, slow, {"Connection": "close"}) from None
            raise
        return b"".join(chunks)

    def release(self, body: bytes) -> None:
        """Give back the room of a body."""
        self.held -= len(body)


def busy() -> RequestError:
    """The answer while too many requests wait."""
    return RequestError(503, "too many requests wait; try again", {"Retry-After": "1"})


def gone() -> RequestError:
    """The end of a request whose client went away; nobody reads it."""
    return RequestError(499, "the client is gone")


def parse(request: Request, body: bytes, form: type[Form], limits: Limits) -> Form:
    """A body as its form. Raises RequestError for another content type, for what is no JSON, and for wrong fields."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind.startswith(UPLOADS):
        if not body:
            raise RequestError(400, "the body is empty; send a file")
        return form(input=body)
    if kind != "application/json":
        raise RequestError(
            415, f"the content type is {printable(kind)[:60] or 'missing'}; send application/json, or a file as image/…"
        )
    if sum(map(body.count, (b",", b"[", b"{"))) > limits.json_values:
        raise RequestError(413, f"the body has more than {limits.json_values:,} commas and brackets, the most here")
    try:
        values = load_json(body.decode("utf-8"))
    except ValueError as error:
        raise RequestError(400, f"the body is no JSON ({one_line(error)[:200]})") from None
    if not _is_finite(values):
        raise RequestError(400, "the body holds NaN or an infinite number, which JSON cannot say")
    if not isinstance(values, dict):
        raise RequestError(400, 'the body is no JSON object; send {"input": …}')
    try:
        return form.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        if first["type"] == "extra_forbidden":
            raise RequestError(
                422, f"{printable(place)[:60]} is no field of this request; {suggest(place[:60], form.model_fields)}"
            ) from None
        raise RequestError(422, f"{printable(place)[:60]}: {one_line(first['msg'])[:200]}") from None


def _is_finite(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_is_finite, value.values()))
    if isinstance(value, list):
        return all(map(_is_finite, value))
    return not isinstance(value, float) or math.isfinite(value)
