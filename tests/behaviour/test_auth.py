"""Who is let in over HTTP: tokens, JWTs, hosts, origins; each against a real server."""

from __future__ import annotations

import base64
import hmac
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import anyio
import httpx2
import pytest
from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport
from fastmcp.server.auth.providers.jwt import RSAKeyPair
from joserfc import jwk, jwt
from mcp.client.subscriptions import listen

from tests.support import preloaded
from tests.support.http_users import Users, bearer, issuer
from tests.support.servers import call, http_server, server_environment, stdio_client, text
from tests.support.waiting import DEADLINE

QUICK: dict[str, Any] = {"preload": "", "spare_kernels": 0, "snapshot_interval": 0}
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
ACCEPT = {"Accept": "application/json, text/event-stream"}


def post(url: str, **headers: str) -> httpx2.Response:
    return httpx2.post(url, json=HELLO, headers={**ACCEPT, **headers}, timeout=DEADLINE)


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Users]:
    data_dir = tmp_path_factory.mktemp("auth") / "data"
    with http_server(data_dir, auth="tokens", allowed_hosts="quire.test,localhost:6274", **QUICK) as (url, _):
        yield Users(url, data_dir)


# Tokens


def test_a_missing_or_wrong_token_is_answered_with_401(users: Users) -> None:
    without, wrong = post(users.url), post(users.url, Authorization="Bearer quire_wrong")
    assert (without.status_code, without.headers["www-authenticate"]) == (401, "Bearer")
    assert wrong.status_code == 401 and wrong.headers["www-authenticate"].startswith('Bearer error="invalid_token"')
    assert post(users.url, Authorization=f"Basic {users.token('alice')}").status_code == 401
    assert post(f"{users.url}?token={users.token('alice')}").status_code == 401
    assert post(users.url, **users.headers("alice")).status_code == 200
    assert httpx2.get(users.url.replace("/mcp", "/healthz")).json() == {"status": "ok"}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.test"}, 421),
        ({"Origin": "http://evil.test"}, 403),
        ({"Origin": "http://{own}"}, 200),
        ({"Origin": "https://{own}"}, 200),  # behind a proxy that speaks TLS
        ({"Origin": "http://127.0.0.1:1"}, 403),  # a page of another program of this machine
        ({"Origin": "http://127.0.0.1"}, 403),
        ({"Origin": "http://localhost:1"}, 403),
        ({"Origin": "http://[::1]:1"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://["}, 403),
        ({"Origin": "http://localhost:6274"}, 200),  # named in allowed_hosts
        ({"Host": "quire.test"}, 200),
        ({"Host": "quire.test", "Origin": "https://quire.test"}, 200),
        ({"Host": "quire.test", "Origin": "https://evil.test"}, 403),
        ({"Host": "quire.test.evil.test"}, 421),
    ],
)
def test_host_and_origin_are_checked_with_a_token_too(users: Users, headers: dict[str, str], status: int) -> None:
    own = urlsplit(users.url).netloc
    given = {name: value.format(own=own) for name, value in headers.items()}
    assert post(users.url, **given, **users.headers("alice")).status_code == status


async def test_a_removed_token_is_refused_at_once_and_what_it_listens_to_ends(users: Users) -> None:
    async with users.client("mallory") as mallory, users.client("alice") as alice:
        await call(mallory, "execute", code="1")
        async with listen(mallory.session, resource_subscriptions=["notebook://main/cells"]) as events:
            shared = await call(mallory, "share_notebook", notebook="main", with_whom="alice", access="write")
            assert not shared.is_error, text(shared)
            headers = users.headers("mallory")
            users.remove("mallory")
            assert post(users.url, **headers).status_code == 401
            ran = await call(alice, "execute", notebook="mallory/main", code="2")  # would be told to mallory
            assert not ran.is_error, text(ran)
            heard = []
            with anyio.fail_after(DEADLINE):
                try:
                    async for event in events:
                        heard.append(event)
                except Exception as error:
                    assert heard == [], error
            assert heard == []


def test_a_session_is_its_owners_alone(users: Users) -> None:
    opened = post(users.url, **users.headers("alice"))
    session = {"mcp-session-id": opened.headers["mcp-session-id"]}
    asked = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
    for name, status in (("bob", 404), ("alice", 200)):
        headers = {**ACCEPT, **session, **users.headers(name)}
        answer = httpx2.post(users.url, json=asked, headers=headers, timeout=DEADLINE)
        assert answer.status_code == status, answer.text
    taken = httpx2.delete(users.url, headers={**session, **users.headers("bob")}, timeout=DEADLINE)
    assert taken.status_code == 404


def quire(data_dir: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = preloaded.quire(*arguments)
    env = server_environment(data_dir)
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=DEADLINE)


def test_the_commands_add_list_and_remove_tokens_of_a_running_server(users: Users) -> None:
    added = quire(users.data_dir, "token", "add", "dora", "--admin")
    assert added.returncode == 0 and "dora is an admin now" in added.stderr
    token = added.stdout.strip()
    assert post(users.url, **bearer(token)).status_code == 200
    listed = quire(users.data_dir, "token", "list").stdout
    assert "dora" in listed and "admin, use" in listed and token not in listed
    assert "has a token already" in quire(users.data_dir, "token", "add", "dora").stderr
    assert quire(users.data_dir, "token", "add", "local").returncode == 2
    assert quire(users.data_dir, "token", "remove", "dora").returncode == 0
    assert post(users.url, **bearer(token)).status_code == 401
    assert "There is no token 'dora'" in quire(users.data_dir, "token", "remove", "dora").stderr


# Without auth


def serve(data_dir: Path, *arguments: str) -> subprocess.Popen[str]:
    command = preloaded.quire("serve", "--server-transport", "http", "--server-port", "0", *arguments)
    env = server_environment(data_dir, **QUICK)
    return subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)


def test_without_auth_other_machines_are_kept_out_unless_told_otherwise(data_dir: Path) -> None:
    with serve(data_dir, "--server-host", "0.0.0.0") as refused:
        _, said = refused.communicate(timeout=DEADLINE)
    assert refused.returncode == 2
    assert "everyone who reaches it can run code" in said and "--auth-method tokens" in said and "Traceback" not in said
    with serve(data_dir, "--server-host", "0.0.0.0", "--auth-insecure") as server:
        assert server.stderr is not None
        warned, listens = server.stderr.readline(), server.stderr.readline()
        assert warned.startswith("Warning: everyone who reaches 0.0.0.0 can run code") and "listens at" in listens
        url = listens.split()[-1].replace("0.0.0.0", "127.0.0.1")
        assert post(url).status_code == 200
        assert post(url, Host="evil.test").status_code == 421
        server.terminate()


def test_with_auth_other_machines_may_call(data_dir: Path) -> None:
    with serve(data_dir, "--server-host", "0.0.0.0", "--auth-method", "tokens") as server:
        assert server.stderr is not None
        listens = server.stderr.readline()
        assert listens.startswith("Quire listens at"), listens
        assert post(listens.split()[-1].replace("0.0.0.0", "127.0.0.1")).status_code == 401
        server.terminate()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (["--auth-method", "jwt"], "jwt needs the setting auth.issuer"),
        (["--auth-method", "jwt", "--auth-issuer", "https://id.test"], "jwt needs the setting auth.keys"),
        (
            ["--auth-method", "jwt", "--auth-issuer", "nonsense", "--auth-keys", "https://id.test/keys"],
            "The issuer 'nonsense'",
        ),
        (["--auth-method", "jwt", "--auth-issuer", "https://id.test", "--auth-keys", "file:/nowhere"], "/nowhere"),
        (["--auth-method", "oidc", "--auth-issuer", "https://id.test"], "oidc needs the setting auth.client_id"),
        (["--auth-method", "oidc", "--auth-client-secret", "hunter2"], "a secret is referred to"),
        (["--auth-method", "everybody"], "Setting 'auth.method' cannot be 'everybody'"),
    ],
)
def test_incomplete_authentication_settings_are_refused(data_dir: Path, settings: list[str], says: str) -> None:
    with serve(data_dir, *settings) as refused:
        _, said = refused.communicate(timeout=DEADLINE)
    assert refused.returncode == 2 and says in said and "Traceback" not in said and "hunter2" not in said


async def test_over_stdio_the_caller_is_the_local_user_whatever_auth_says(data_dir: Path) -> None:
    async with stdio_client(data_dir, auth="tokens", approve_unasked=True, **QUICK) as client:
        made = (await call(client, "create_notebook", python=sys.executable)).structured_content
        assert made["name"] == "notebook-1"
        install = {"code": "caps.install('x', command='/nowhere/quire-test')", "notebook": "notebook-1"}
        assert "/nowhere/quire-test" in text(await call(client, "execute", **install))
        shared = await call(client, "share_notebook", notebook="notebook-1", with_whom="bob", access="write")
        assert text(shared) == "Notebook 'notebook-1', to others local/notebook-1, is shared with bob (write)."
        assert "only admins install one" in text(await call(client, "execute", **install))


# JWTs


ISSUER, AUDIENCE = "https://id.test/realm", "quire"


@pytest.fixture(scope="module")
def keys() -> RSAKeyPair:
    return RSAKeyPair.generate()


@pytest.fixture(scope="module")
def by_jwt(tmp_path_factory: pytest.TempPathFactory, keys: RSAKeyPair) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("jwt")
    (folder / "key.pem").write_text(keys.public_key)
    settings = {"auth_issuer": ISSUER, "auth_audience": AUDIENCE, "auth_keys": f"file:{folder / 'key.pem'}"}
    more = {"auth_scope": "quire", "public_url": "https://quire.test"}
    with http_server(folder / "data", auth="jwt", **settings, **more, **QUICK) as (url, _):
        yield url


def token_of(keys: RSAKeyPair, subject: str = "alice", **claims: Any) -> str:
    given = {"issuer": ISSUER, "audience": AUDIENCE, "scopes": ["quire"], "expires_in_seconds": 600, **claims}
    return keys.create_token(subject=subject, **given)


def signed(keys: RSAKeyPair, **claims: Any) -> str:
    key = jwk.import_key(keys.private_key.get_secret_value(), "RSA")
    now = int(time.time())
    given = {"sub": "alice", "iss": ISSUER, "aud": AUDIENCE, "scope": "quire", "exp": now + 600, **claims}
    return jwt.encode({"alg": "RS256"}, {name: value for name, value in given.items() if value is not None}, key)


async def jwt_client(url: str, token: str) -> AsyncIterator[Client[Any]]:
    async with Client(StreamableHttpTransport(url, headers=bearer(token))) as client:
        yield client


async def test_a_jwt_proves_a_subject_of_its_issuer(by_jwt: str, keys: RSAKeyPair) -> None:
    one, other = token_of(keys, "alice"), token_of(keys, "auth0|bob")
    admin = token_of(keys, "local", scopes=["quire", "quire:admin"])
    async for client in jwt_client(by_jwt, one):
        ran = await call(client, "execute", code="mine = 1")
        assert not ran.is_error, text(ran)
        shared = await call(client, "share_notebook", notebook="main", with_whom="auth0|bob@id.test~realm")
        assert "to others alice@id.test~realm/main" in text(shared)
    async for client in jwt_client(by_jwt, other):
        assert "alice@id.test~realm/main: 1 cell," in text(await call(client, "list_notebooks"))
        shown = await call(client, "get_cell", notebook="alice@id.test~realm/main", cell_id_or_number=0)
        address = f"notebook://{quote(shown.structured_content['notebook'], safe='')}/cell/0"
        assert "mine = 1" in (await client.read_resource(address))[0].text
        refused = await call(client, "execute", notebook="alice@id.test~realm/main", code="mine")
        assert refused.is_error and "read only" in text(refused)
        assert (await call(client, "execute", notebook="alice/main", code="1")).is_error
    async for client in jwt_client(by_jwt, admin):  # whose subject is not the local user
        assert text(await call(client, "list_notebooks")) == "no notebooks yet"
        ran = await call(client, "execute", notebook="alice@id.test~realm/main", code="mine")
        assert ran.structured_content["return_value"] == 1


@pytest.mark.parametrize(
    "claims",
    [
        pytest.param({"iss": "https://evil.test"}, id="another issuer"),
        pytest.param({"iss": None}, id="no issuer"),
        pytest.param({"aud": "another"}, id="another audience"),
        pytest.param({"aud": None}, id="no audience"),
        pytest.param({"exp": 1}, id="expired"),
        pytest.param({"exp": None}, id="without an end"),
        pytest.param({"nbf": int(time.time()) + 5000}, id="not yet"),
        pytest.param({"nbf": "x"}, id="a beginning that is not a number"),
        pytest.param({"sub": None}, id="no subject"),
        pytest.param({"sub": ""}, id="an empty subject"),
        pytest.param({"sub": "a/b"}, id="a subject with a slash"),
        pytest.param({"sub": "x" * 200}, id="a long subject"),
        pytest.param({"sub": 5}, id="a number for a subject"),
    ],
)
def test_a_jwt_that_is_not_for_here_proves_nothing(by_jwt: str, keys: RSAKeyPair, claims: dict[str, Any]) -> None:
    refused = post(by_jwt, **bearer(signed(keys, **claims)))
    assert refused.status_code == 401 and 'error="invalid_token"' in refused.headers["www-authenticate"]


def test_a_jwt_with_another_signature_or_none_proves_nothing(by_jwt: str, keys: RSAKeyPair) -> None:
    good = signed(keys)
    assert post(by_jwt, **bearer(good)).status_code == 200
    head, body, mark = good.split(".")
    unsigned = _part({"alg": "none"}) + f".{body}."
    start = f"{_part({'alg': 'HS256'})}.{body}"  # signed with the public key, as if it were a shared secret
    symmetric = f"{start}.{_base64(hmac.digest(keys.public_key.encode(), start.encode(), 'sha256'))}"
    for wrong in (token_of(RSAKeyPair.generate()), unsigned, symmetric, f"{head}.{body}.{mark[:-4]}AAAA", "a.b.c", "x"):
        assert post(by_jwt, **bearer(wrong)).status_code == 401, wrong


def _part(said: dict[str, str]) -> str:
    return _base64(json.dumps(said).encode())


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def test_a_jwt_without_the_scope_is_answered_403_with_the_scope(by_jwt: str, keys: RSAKeyPair) -> None:
    refused = post(by_jwt, **bearer(signed(keys, scope="other")))
    said = refused.headers["www-authenticate"]
    assert refused.status_code == 403 and 'error="insufficient_scope"' in said and 'scope="quire"' in said


def test_clients_are_told_where_tokens_are_had(by_jwt: str) -> None:
    said = post(by_jwt).headers["www-authenticate"]
    assert 'resource_metadata="https://quire.test/.well-known/oauth-protected-resource/mcp"' in said
    told = httpx2.get(by_jwt.replace("/mcp", "/.well-known/oauth-protected-resource/mcp")).json()
    assert told["resource"] == "https://quire.test/mcp"
    assert told["authorization_servers"] == [ISSUER]
    assert told["scopes_supported"] == ["quire", "quire:admin"]


def test_keys_of_jwts_are_fetched_from_where_they_are_published(tmp_path: Path, keys: RSAKeyPair) -> None:
    published = jwk.import_key(keys.public_key, "RSA").as_dict(private=False, kid="one", use="sig")
    with issuer({"/keys": lambda asked: {"keys": [published]}}) as address:
        settings = {"auth_issuer": address, "auth_audience": AUDIENCE, "auth_keys": f"{address}/keys"}
        with http_server(tmp_path / "data", auth="jwt", **settings, **QUICK) as (url, _):
            assert post(url, **bearer(token_of(keys, issuer=address, kid="one"))).status_code == 200
            assert post(url, **bearer(token_of(keys, issuer=address, kid="two"))).status_code == 401
            assert post(url, **bearer(token_of(RSAKeyPair.generate(), issuer=address, kid="one"))).status_code == 401
            assert post(url).headers["www-authenticate"] == "Bearer"
