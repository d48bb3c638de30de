"""Addresses of Jupyter servers."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit, urlunsplit


@dataclass(frozen=True, kw_only=True)
class Address:
    """The URL and token of a server. Its kernels may be on another server."""

    url: str
    token: str = field(default="", repr=False)
    kernel_url: str = ""
    kernel_token: str = field(default="", repr=False)

    @classmethod
    def parse(cls, url: str, token: str = "", kernel_url: str = "", kernel_token: str = "") -> Address:
        """Accepts the URL of a page, with its token in the query."""
        url, token = _split_token(url, token)
        kernel_url, kernel_token = _split_token(kernel_url, kernel_token)
        return cls(url=url, token=token, kernel_url=kernel_url, kernel_token=kernel_token or token)


def _split_token(url: str, token: str) -> tuple[str, str]:
    parts = urlsplit(url)
    token_in_url = parse_qs(parts.query).get("token", [""])[0]
    path = parts.path.removesuffix("/").removesuffix("/lab").removesuffix("/tree")
    return urlunsplit(parts._replace(path=path, query="", fragment="")), token or token_in_url
