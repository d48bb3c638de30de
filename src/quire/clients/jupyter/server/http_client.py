"""HTTP requests to one Jupyter server, and what its error responses mean."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote, urlsplit

from quire.clients.jupyter.ports import JupyterError, Missing, Unreachable

MAX_REASON_CHARS = 300  # quoted of a server's message


class HttpClient:
    """Every request has a timeout; every error message names the server."""

    def __init__(self, url: str, token: str = "", *, timeout: float = 10.0) -> None:
        import httpx2

        self.url = normalize_url(url)
        self.token = token
        self.timeout = timeout
        self._http = httpx2.AsyncClient(
            base_url=self.url, headers=self.headers, timeout=timeout, limits=httpx2.Limits(max_connections=32)
        )

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"token {self.token}"} if self.token else {}

    async def request_json(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        query: dict[str, str] | None = None,
        missing: str = "",
        timeout: float | None = None,
    ) -> Any:
        """The JSON of the response; None if it has no body. A 404 raises Missing with the message `missing`; without
        one it means that the URL is not that of a Jupyter server."""
        status, text = await self.request(method, path, body=body, query=query, timeout=timeout)
        if status == 404 and missing:
            raise Missing(missing)
        if status >= 300:
            raise self._error(status, text, f"{method} {path}")
        return self._parse_json(text)

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        query: dict[str, str] | None = None,
        timeout: float | None = None,
    ) -> tuple[int, str]:
        """Status and text of any response. Raises Unreachable without a response."""
        import httpx2

        timeout_s = timeout or self.timeout
        try:
            response = await self._http.request(
                method, quote(path, safe="/:@"), json=body, params=query, timeout=timeout_s, follow_redirects=False
            )
            return response.status_code, response.text
        except httpx2.TimeoutException:
            raise Unreachable(self.timeout_message(timeout_s)) from None
        except (httpx2.TransportError, httpx2.InvalidURL, httpx2.DecodingError, OSError, RuntimeError) as error:
            raise Unreachable(
                f"The Jupyter server at {self.url} cannot be reached ({shorten(str(error) or type(error).__name__)}). "
                "Check that it runs and that the url is right."
            ) from None

    def timeout_message(self, seconds: float) -> str:
        return (
            f"The Jupyter server at {self.url} did not answer within {seconds:g} s. It may be overloaded or stuck: "
            "try again, or restart it."
        )

    def _error(self, status: int, text: str, request: str) -> JupyterError:
        if status in (301, 302, 303, 307, 308, 401, 403):
            return Unreachable(self.access_denied_message(status))
        if status == 404:
            return Unreachable(
                f"There is no Jupyter server at {self.url} ({request} is not known there). Check the url, its path too."
            )
        return JupyterError(f"The Jupyter server at {self.url} refused {request} ({status}): {error_reason(text)}")

    def access_denied_message(self, status: int) -> str:
        token_problem = "the token is wrong or may not do that" if self.token else "it wants a token"
        path = ", or the path of the url is wrong" if 300 <= status < 400 else ""
        return (
            f"The Jupyter server at {self.url} does not let us in ({status}): {token_problem}{path}. Give the token it "
            "prints to connect_to_jupyter, or as --jupyter-token."
        )

    def _parse_json(self, text: str) -> Any:
        if not text:
            return None
        try:
            return json.loads(text)
        except ValueError:
            raise Unreachable(
                f"What answers at {self.url} is not a Jupyter server: it says {shorten(text)!r} where JSON belongs."
            ) from None

    async def close(self) -> None:
        await self._http.aclose()


def normalize_url(url: str) -> str:
    """The URL with a trailing slash. Raises JupyterError if it is invalid."""
    try:
        parts = urlsplit(url.strip())
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_valid = False
    if not is_valid:
        raise JupyterError(f"{url!r} is no address of a Jupyter server; write one such as http://localhost:8888/")
    path = parts.path.rstrip("/")
    for page in ("/lab", "/tree", "/notebooks"):  # a URL copied from a browser
        path = path.removesuffix(page)
    return f"{parts.scheme}://{parts.netloc}{path}/"


def error_reason(text: str) -> str:
    """The reason that the body of an error response states."""
    try:
        body = json.loads(text)
        return shorten(str(body.get("message") or body.get("reason") or text))
    except (ValueError, AttributeError):
        return shorten(text)


def shorten(text: str) -> str:
    """The text on one line of limited length."""
    line = " ".join(text.split())
    return line if len(line) <= MAX_REASON_CHARS else line[:MAX_REASON_CHARS] + "…"
