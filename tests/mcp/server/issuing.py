"""An authorization server on loopback: metadata, keys that rotate, client credentials, introspection."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse
from starlette.routing import Route

from forge.network.serve import serve_app


class Key:
    def __init__(self, name: str) -> None:
        self.name = name
        self.private = ec.generate_private_key(ec.SECP256R1())

    @property
    def public(self) -> dict[str, Any]:
        described = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(self.private.public_key()))
        return {**described, "kid": self.name, "use": "sig", "alg": "ES256"}


class TestIssuer:
    """Signs tokens, and counts how often it is asked."""

    __test__ = False

    def __init__(self) -> None:
        self.keys = [Key("first")]
        self.url = ""
        self.named = ""  # another issuer in the metadata
        self.asked: list[str] = []
        self.active: dict[str, dict[str, Any]] = {}  # what introspection answers, by token
        self.revoked: list[dict[str, str]] = []
        self.granted: list[dict[str, str]] = []

    def token(self, resource: str, key: Key | None = None, /, **changes: Any) -> str:
        """A signed token; a claim that is changed to None is left out."""
        used = key or self.keys[0]
        header = {"kid": used.name, "typ": "at+jwt", **changes.pop("header", {})}
        claims = {"iss": self.url, "aud": resource, "sub": "alice", "client_id": "app", "exp": int(time.time()) + 300}
        said = {name: value for name, value in {**claims, **changes}.items() if value is not None}
        return jwt.encode(said, used.private, "ES256", header)

    async def metadata(self, request: Request) -> JSONResponse:
        self.asked.append("metadata")
        endpoints = {
            name: f"{self.url}/{name}"
            for name in ("token_endpoint", "introspection_endpoint", "authorization_endpoint")
        }
        more: dict[str, Any] = {"revocation_endpoint": f"{self.url}/revoke"}
        more |= {"grant_types_supported": ["client_credentials", "authorization_code", "refresh_token"]}
        more |= {"code_challenge_methods_supported": ["S256"]}
        where = {"issuer": self.named or self.url, "jwks_uri": f"{self.url}/keys", **endpoints, **more}
        return JSONResponse({**where, "response_types_supported": ["code"]})

    async def jwks(self, request: Request) -> JSONResponse:
        self.asked.append("keys")
        return JSONResponse({"keys": [one.public for one in self.keys]})

    async def grant(self, request: Request) -> JSONResponse:
        form = {name: str(value) for name, value in (await request.form()).items()}
        self.granted.append(form)
        person = form.get("code") or form.get("refresh_token", "")  # of a login: the name of who agreed
        claims = {"scope": form.get("scope"), **({"sub": person} if person else {})}
        answer = {"access_token": self.token(form.get("resource", ""), **claims), "token_type": "Bearer"}
        return JSONResponse({**answer, "expires_in": 300, **({"refresh_token": person} if person else {})})

    async def authorize(self, request: Request) -> RedirectResponse:
        """Everyone agrees, as the person in the query."""
        asked = request.query_params
        found = urlencode({"code": asked["person"], "state": asked["state"]})
        return RedirectResponse(f"{asked['redirect_uri']}?{found}")

    async def introspect(self, request: Request) -> JSONResponse:
        self.asked.append("introspection")
        if not request.headers.get("authorization", "").startswith("Basic "):
            return JSONResponse({"error": "invalid_client"}, 401)
        token = str((await request.form())["token"])
        return JSONResponse(self.active.get(token, {"active": False}))

    async def revoke(self, request: Request) -> JSONResponse:
        self.revoked.append({name: str(value) for name, value in (await request.form()).items()})
        return JSONResponse({})

    @property
    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/.well-known/oauth-authorization-server", self.metadata),
                Route("/keys", self.jwks),
                Route("/token_endpoint", self.grant, methods=["POST"]),
                Route("/introspection_endpoint", self.introspect, methods=["POST"]),
                Route("/authorization_endpoint", self.authorize),
                Route("/revoke", self.revoke, methods=["POST"]),
            ]
        )


@asynccontextmanager
async def issuing(issuer: TestIssuer | None = None, port: int = 0):
    """The issuer while it runs, at its URL."""
    issuer = issuer or TestIssuer()
    ready = asyncio.Event()
    with socket.create_server(("127.0.0.1", port)) as listening:
        issuer.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        serving = asyncio.create_task(serve_app(issuer.app, listening, ready.set))
        try:
            await asyncio.wait_for(ready.wait(), 60)
            yield issuer
        finally:
            serving.cancel()
            await asyncio.wait({serving}, timeout=60)
