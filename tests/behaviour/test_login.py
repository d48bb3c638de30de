"""A login at an OpenID Connect issuer, as an MCP client does it: registered, asked, redirected, and let in."""

from __future__ import annotations

import base64
import hashlib
import html
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urljoin, urlsplit

import httpx2
from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport
from fastmcp.server.auth.providers.jwt import RSAKeyPair
from joserfc import jwk

from tests.support.http_users import bearer, issuer
from tests.support.processes import free_port
from tests.support.servers import call, server_environment, text
from tests.support.waiting import DEADLINE, wait_until

REDIRECT = "http://127.0.0.1:1/callback"


def pages(address: list[str], keys: RSAKeyPair, subject: str) -> dict[str, Any]:
    """What an issuer answers, that lets everybody in as one subject."""
    published = jwk.import_key(keys.public_key, "RSA").as_dict(private=False, kid="one", use="sig")

    def configuration(asked: dict[str, str]) -> Any:
        here = address[0]
        return {
            "issuer": here,
            "authorization_endpoint": f"{here}/authorize",
            "token_endpoint": f"{here}/token",
            "jwks_uri": f"{here}/keys",
            "response_types_supported": ["code"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256"],
        }

    def authorize(asked: dict[str, str]) -> str:
        return f"{asked['redirect_uri']}?{urlencode({'code': 'theirs', 'state': asked['state']})}"

    def token(asked: dict[str, str]) -> Any:
        assert asked["code"] == "theirs"
        proof = keys.create_token(subject=subject, issuer=address[0], audience="quire-app", kid="one")
        return {
            "access_token": "opaque",
            "id_token": proof,
            "token_type": "Bearer",
            "expires_in": 600,
            "scope": "openid",
        }

    return {
        "/.well-known/openid-configuration": configuration,
        "/keys": lambda asked: {"keys": [published]},
        "/authorize": authorize,
        "/token": token,
    }


@contextmanager
def server(data_dir: Path, port: int, **settings: Any) -> Iterator[None]:
    command = [sys.executable, "-m", "quire", "serve", "--server-transport", "http", "--server-port", str(port)]
    env = server_environment(data_dir, preload="", spare_kernels=0, **settings)
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            wait_until(lambda: "Quire listens at" in process.stderr.readline(), "it listens")
            yield
        finally:
            process.terminate()


def logged_in(url: str) -> str:
    """Every step of a client and its person's browser; the access token."""
    with httpx2.Client(base_url=url, timeout=DEADLINE) as browser:
        redirects = {"redirect_uris": [REDIRECT], "token_endpoint_auth_method": "none", "client_name": "test"}
        client = browser.post("/register", json=redirects).json()["client_id"]
        verifier = "v" * 64
        digest = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        asked = {
            "response_type": "code",
            "client_id": client,
            "redirect_uri": REDIRECT,
            "state": "s",
            "scope": "openid",
        }
        asked |= {"code_challenge": digest, "code_challenge_method": "S256", "resource": f"{url}/mcp"}
        place = browser.get("/authorize", params=asked).headers["location"]
        consent = browser.get(place)
        fields = dict(re.findall(r'name="(\w+)"[^>]*value="([^"]*)"', consent.text))
        fields = {name: html.unescape(value) for name, value in fields.items()} | {"action": "approve"}
        answer = browser.post(place, data=fields)
        while not answer.headers["location"].startswith(REDIRECT):
            answer = browser.get(urljoin(url, answer.headers["location"]))
        code = parse_qs(urlsplit(answer.headers["location"]).query)["code"][0]
        wanted = {"grant_type": "authorization_code", "code": code, "client_id": client, "redirect_uri": REDIRECT}
        given = browser.post("/token", data={**wanted, "code_verifier": verifier, "resource": f"{url}/mcp"})
        return str(given.json()["access_token"])


async def test_a_login_makes_a_user_with_the_name_from_the_issuer(tmp_path: Path) -> None:
    keys, port, where = RSAKeyPair.generate(), free_port(), [""]
    (tmp_path / "secret").write_text("a-client-secret-that-is-long-enough")
    with issuer(pages(where, keys, "alice")) as where[0]:
        url = f"http://127.0.0.1:{port}"
        settings = {"auth_issuer": where[0], "auth_client_id": "quire-app", "public_url": url}
        secret = {"auth_client_secret": f"file:{tmp_path / 'secret'}"}
        with server(tmp_path / "data", port, auth="oidc", **settings, **secret):
            refused = httpx2.post(f"{url}/mcp", json={}, timeout=DEADLINE)
            assert refused.status_code == 401 and "resource_metadata=" in refused.headers["www-authenticate"]
            token = logged_in(url)
            async with Client(StreamableHttpTransport(f"{url}/mcp", headers=bearer(token))) as client:
                ran = await call(client, "execute", code="1 + 1")
                assert not ran.is_error, text(ran)
                shared = await call(client, "share_notebook", notebook="main", with_whom="bob")
                assert f"to others alice@{urlsplit(where[0]).netloc}/main" in text(shared)
            wrong = httpx2.post(f"{url}/mcp", json={}, headers=bearer(token[:-4] + "AAAA"), timeout=DEADLINE)
            assert wrong.status_code == 401
    kept = [file for file in (tmp_path / "data" / "logins").rglob("*") if file.is_file()]
    assert kept and all(b"opaque" not in file.read_bytes() for file in kept)
