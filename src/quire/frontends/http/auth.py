"""Authentication over HTTP: bearer tokens of the operator, JWTs of an issuer, or a login at an issuer."""

from __future__ import annotations

import hashlib
import hmac
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from fastmcp.server.auth import AccessToken, AuthProvider, RemoteAuthProvider, TokenVerifier
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from pydantic import AnyHttpUrl
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quire.core.errors import InvalidRequest, OperationFailed
from quire.core.notebooks import access
from quire.core.notebooks.access import EVERY_SCOPE, LOCAL_CALLER, Caller
from quire.core.ports.store import Tokens
from quire.frontends.mcp.callers import VerifiedToken

log = logging.getLogger(__name__)
_MAX_CACHED_TOKENS = 10_000
_JWT_CACHE_S = 300.0
_LOGIN_CACHE_S = 30.0  # shorter, since the issuer may end a login
_MAX_CLOCK_SKEW_S = 30


class TokenFileVerifier(TokenVerifier):
    """Tokens that the operator has made (`quire token`)."""

    def __init__(self, tokens: Tokens) -> None:
        super().__init__()
        self._tokens = tokens
        self._known: dict[Caller, VerifiedToken] = {}  # made once, since every request is verified

    async def verify_token(self, token: str) -> AccessToken | None:
        caller = self._tokens.find_caller(token)
        if caller is None:
            return None
        known = self._known.get(caller)
        if known is None or known.token != token:
            name, scopes = str(caller.principal), [str(each) for each in caller.scopes]
            known = VerifiedToken(token=token, client_id=name, scopes=scopes, subject=name, caller=caller)
            self._known[caller] = known
        return known

    def is_valid(self, token: VerifiedToken) -> bool:
        return self._tokens.find_caller(token.token) is not None


class SharedTokenVerifier(TokenVerifier):
    """One token for all clients. Who sends it is the local user."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token.encode("utf-8", "surrogatepass")
        name, scopes = str(LOCAL_CALLER.principal), [str(each) for each in LOCAL_CALLER.scopes]
        self._proven = VerifiedToken(token=token, client_id=name, scopes=scopes, subject=name, caller=LOCAL_CALLER)

    async def verify_token(self, token: str) -> AccessToken | None:
        same = hmac.compare_digest(token.encode("utf-8", "surrogatepass"), self._token)
        return self._proven if same else None


@dataclass(frozen=True, kw_only=True)
class Issuer:
    """The settings of an issuer of tokens, with references to secrets resolved."""

    issuer: str | None
    audience: str | None
    keys: str | None  # for JWTs: the URL of a JWKS, or a public key
    algorithm: str
    scope: str | None  # that a token must have
    admin_scope: str
    client_id: str | None  # for a login
    secret: str | None
    public_url: str | None

    @property
    def required(self) -> list[str]:
        return [self.scope] if self.scope else []


def by_issuer(kind: str, issuer: Issuer, folder: Path) -> AuthProvider:
    """`kind`: `jwt` for tokens of clients, `oidc` for a login. Raises InvalidRequest if a setting is missing."""
    address = _needed(kind, "auth.issuer", issuer.issuer)
    if kind == "oidc":
        return _by_login(issuer, address, folder)
    verifier = JwtVerifier(issuer, address)
    if issuer.public_url is None:
        return verifier
    scopes = [*issuer.required, issuer.admin_scope]  # published for clients (RFC 9728)
    return RemoteAuthProvider(verifier, [AnyHttpUrl(address)], issuer.public_url, scopes, resource_name="Quire")


def _needed(method: str, setting: str, value: str | None) -> str:
    if not value:
        raise InvalidRequest(f"The authentication method {method} needs the setting {setting}.")
    return value


class PrincipalResolver:
    """The principals of an issuer's tokens, with a cache of tokens that were checked."""

    def __init__(self, address: str, admin_scope: str, seconds: float) -> None:
        self._address = address
        self._label = access.issuer_label(address)
        self._admin_scope = admin_scope
        self._seconds = seconds
        self._known: OrderedDict[bytes, tuple[float, VerifiedToken]] = OrderedDict()

    async def resolve(self, token: str, check: Callable[[str], Awaitable[AccessToken | None]]) -> VerifiedToken | None:
        digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        until, proven = self._known.get(digest, (0.0, None))
        if proven is not None and time.time() < until:
            return proven
        checked = await check(token)
        proven = self._proven(checked) if checked is not None else None
        if proven is not None:
            self._remember(digest, proven)
        return proven

    def _proven(self, checked: AccessToken) -> VerifiedToken | None:
        claims, now = checked.claims or {}, time.time()
        subject = checked.subject or claims.get("sub")
        principal = access.issued_principal(subject, self._label)
        starts = claims.get("nbf", 0)
        if principal is None or checked.expires_at is None or not isinstance(starts, int | float):
            log.warning("a token of %s is not taken: it needs a plain sub, and an exp", self._address)
            return None
        if starts > now + _MAX_CLOCK_SKEW_S:
            return None
        admin = self._admin_scope in checked.scopes
        caller = Caller(principal=principal, scopes=EVERY_SCOPE) if admin else Caller(principal=principal)
        return VerifiedToken(**{**checked.model_dump(), "subject": subject}, caller=caller)

    def _remember(self, digest: bytes, proven: VerifiedToken) -> None:
        until = min(time.time() + self._seconds, float(proven.expires_at or 0))
        self._known[digest] = (until, proven)
        while len(self._known) > _MAX_CACHED_TOKENS:
            self._known.popitem(last=False)


class JwtVerifier(TokenVerifier):
    """JWTs of one issuer. A missing scope is answered with 403, as MCP requires."""

    def __init__(self, issuer: Issuer, address: str) -> None:
        from fastmcp.server.auth.providers.jwt import JWTVerifier

        super().__init__(required_scopes=issuer.required)
        self._resolver = PrincipalResolver(address, issuer.admin_scope, _JWT_CACHE_S)
        keys = _needed("jwt", "auth.keys", issuer.keys)
        fetched = keys.startswith(("http://", "https://"))
        try:
            self._inner = JWTVerifier(
                public_key=None if fetched else keys,
                jwks_uri=keys if fetched else None,
                issuer=address,
                audience=_needed("jwt", "auth.audience", issuer.audience),
                algorithm=issuer.algorithm,
            )
        except ValueError as error:
            raise InvalidRequest(f"JWTs cannot be checked as the settings say: {error}") from None

    async def verify_token(self, token: str) -> AccessToken | None:
        return await self._resolver.resolve(token, self._inner.verify_token)


def _by_login(issuer: Issuer, address: str, folder: Path) -> AuthProvider:
    """OAuth for MCP clients with a login at an OpenID Connect issuer. `folder` keeps the logins, encrypted."""
    import fastmcp
    from fastmcp.server.auth.oidc_proxy import OIDCProxy

    resolver = PrincipalResolver(address, issuer.admin_scope, _LOGIN_CACHE_S)

    class ByLogin(OIDCProxy):
        async def verify_token(self, token: str) -> AccessToken | None:
            return await resolver.resolve(token, super().verify_token)

    fastmcp.settings.home = folder
    client_id = _needed("oidc", "auth.client_id", issuer.client_id)
    secret = _needed("oidc", "auth.client_secret", issuer.secret)
    public_url = _needed("oidc", "server.public_url", issuer.public_url)
    try:
        return ByLogin(
            config_url=f"{address.rstrip('/')}/.well-known/openid-configuration",
            client_id=client_id,
            client_secret=secret,
            algorithm=issuer.algorithm,
            required_scopes=["openid", *issuer.required],
            valid_scopes=["openid", *issuer.required, issuer.admin_scope],
            verify_id_token=True,  # every issuer signs it, for this client
            base_url=public_url,
        )
    except Exception as error:  # fastmcp raises many kinds for a bad answer of the issuer
        raise OperationFailed(f"The OpenID Connect issuer {address} cannot be used: {error}") from error


class RevocationMiddleware:
    """End a streamed answer when the token of its request is revoked or expires."""

    def __init__(self, app: ASGIApp, auth: AuthProvider) -> None:
        self._app = app
        self._auth = auth

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        user = scope.get("user")
        if not isinstance(user, AuthenticatedUser) or not isinstance(user.access_token, VerifiedToken):
            await self._app(scope, receive, send)
            return
        token, is_ended = user.access_token, False

        async def guarded(message: Message) -> None:
            nonlocal is_ended
            if is_ended:
                return
            if message["type"] == "http.response.body" and message.get("more_body") and not self._is_valid(token):
                is_ended, message = True, {"type": "http.response.body", "body": b"", "more_body": False}
            await send(message)

        await self._app(scope, receive, guarded)

    def _is_valid(self, token: VerifiedToken) -> bool:
        if isinstance(self._auth, TokenFileVerifier):
            return self._auth.is_valid(token)
        return token.expires_at is None or token.expires_at > time.time()
