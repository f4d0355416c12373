"""An MCP server and its authorization server on one origin, and a browser in which everyone is logged in."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import httpx2
import jwt

from forge.mcp.oauth.login import Browser, Redirect, read_redirect
from tests.mcp import hostile
from tests.network.serving import Asked, Reply


class Site:
    """Gives out `access-token-N`. `base` is set when its port is known; `issuer` may be another site."""

    def __init__(self) -> None:
        self.base = ""
        self.issuer = self
        self.elsewhere: dict[str, str] = {}  # endpoints that its metadata names instead of its own
        self.resource = ""  # of another site
        self.tokens = 0
        self.valid: set[str] = set()
        self.scopes: list[str] = []
        self.refuses_refresh = False
        self.requests: list[dict[str, str]] = []  # for tokens
        self.registered: list[dict[str, Any]] = []
        self.revoked: list[dict[str, str]] = []
        self.revocation = 200  # the status of its answers
        self.asked = 0  # MCP requests
        self.is_bound = False  # its tokens are bound to a key (DPoP)
        self.proofs: list[str] = []
        self._key = ""  # of the client
        self.seen: list[str] = []  # paths

    def __call__(self, asked: Asked) -> Reply:
        path = urlsplit(asked.path).path
        self.seen.append(path)
        answer = {"/mcp": self._serve, "/register": self._register, "/token": self._grant, "/authorize": self._redirect}
        if path in answer:
            return answer[path](asked)
        if path == "/revoke":
            self.revoked.append(dict(parse_qsl(asked.body.decode())))
            return Reply(status=self.revocation)
        if path == "/.well-known/oauth-protected-resource/mcp":
            return page({"resource": f"{self.base}/mcp", "authorization_servers": [self.issuer.base]})
        if path == "/.well-known/oauth-authorization-server":
            return page(self._metadata())
        return Reply(status=404)

    def _metadata(self) -> dict[str, Any]:
        endpoints = {f"{name}_endpoint": f"{self.base}/{path}" for name, path in ENDPOINTS.items()}
        return {
            "issuer": self.base,
            **endpoints,
            **self.elsewhere,
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
        }

    def _serve(self, asked: Asked) -> Reply:
        self.asked += 1
        scheme = "DPoP" if self.is_bound else "Bearer"
        token = asked.headers.get("authorization", "").removeprefix(f"{scheme} ")
        if token not in self.issuer.valid or (self.is_bound and not self._is_proven(asked, token)):
            where = f'{scheme} resource_metadata="{self.base}/.well-known/oauth-protected-resource/mcp"'
            return Reply([b"no"], 401, [("WWW-Authenticate", where)])
        message = json.loads(asked.body)
        if message["method"] == "server/discover":
            return Reply(status=404)
        results: dict[str, Any] = {
            "initialize": {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "x", "version": "1"},
            },
            "tools/list": {"tools": [hostile.tool("token")]},
            "tools/call": hostile.text(f"you sent {asked.headers.get('authorization')}"),
        }
        if "id" not in message:
            return Reply(status=202)
        return page({"jsonrpc": "2.0", "id": message["id"], "result": results[message["method"]]})

    def _register(self, asked: Asked) -> Reply:
        client = {**json.loads(asked.body), "client_id": f"client-{len(self.registered)}"}
        self.registered.append(client)
        return page(client, 201)

    def _redirect(self, asked: Asked) -> Reply:
        said = dict(parse_qsl(urlsplit(asked.path).query))
        self.scopes.append(said.get("scope", ""))
        assert said["code_challenge_method"] == "S256"
        assert said["resource"] == (self.resource or f"{self.base}/mcp")
        return Reply(status=302, headers=[("Location", f"{said['redirect_uri']}?code=c&state={said['state']}")])

    def _grant(self, asked: Asked) -> Reply:
        said = {name: values[0] for name, values in parse_qs(asked.body.decode()).items()}
        self.requests.append(said)
        if self.is_bound and not self._is_proven(asked, is_first=said["grant_type"] == "authorization_code"):
            return page({"error": "use_dpop_nonce"}, 400, ("DPoP-Nonce", NONCE))
        if said["grant_type"] == "refresh_token" and self.refuses_refresh:
            return page({"error": "invalid_grant"}, 400)
        self.tokens += 1
        token = f"access-token-{self.tokens}"
        self.valid = {token}
        refresh = {"refresh_token": "refresh-token"} if said["grant_type"] != "client_credentials" else {}
        kind = "DPoP" if self.is_bound else "Bearer"
        return page({"access_token": token, "token_type": kind, "expires_in": 3600, **refresh})

    def _is_proven(self, asked: Asked, token: str = "", *, is_first: bool = False) -> bool:
        """Checks a proof: the key of the login is the client's."""
        proof = asked.headers.get("dpop", "")
        if not proof:
            return False
        key = jwt.PyJWK(jwt.get_unverified_header(proof)["jwk"])
        said = jwt.decode(proof, key, algorithms=["ES256"])
        path = urlsplit(asked.path).path
        assert (said["htm"], said["htu"]) == ("POST", f"{self.base}{path}")
        assert jwt.get_unverified_header(proof)["typ"] == "dpop+jwt"
        self.proofs.append(said["jti"])
        if is_first:
            self._key = jwt.get_unverified_header(proof)["jwk"]["x"]
        if self._key != jwt.get_unverified_header(proof)["jwk"]["x"]:
            return False
        digest = urlsafe_b64encode(sha256(token.encode()).digest()).rstrip(b"=").decode()
        return bool(said["ath"] == digest if token else said.get("nonce") == NONCE)


class UserSite(Site):
    """Knows its users apart: a token, and a session, belongs to one. `/authorize` is opened by `?person=`."""

    def __init__(self) -> None:
        super().__init__()
        self.owners: dict[str, str] = {}  # token -> user
        self.begun: dict[str, str] = {}  # session -> user; a login begins one, too
        self.sessions: dict[str, str] = {}  # those in use
        self.mixed: list[str] = []  # requests with a token of one user and a session of another
        self.calls: list[str] = []  # users whose token a call had

    def _serve(self, asked: Asked) -> Reply:
        token = asked.headers.get("authorization", "").removeprefix("Bearer ")
        user = self.owners.get(token, "") if token in self.valid else ""
        session = asked.headers.get("mcp-session-id", "")
        if user and session and self.begun.get(session) != user:
            self.mixed.append(f"{user} in {session}")
        if asked.method == "DELETE":
            self.sessions.pop(session, None)
            return Reply(status=200)
        if asked.method == "GET":
            return Reply(status=405)
        answer = super()._serve(asked)
        message = json.loads(asked.body)
        if answer.status == 202 and message["method"] == "notifications/initialized":
            self.sessions[session] = user
        if answer.status != 200:
            return answer
        if message["method"] == "initialize":
            session = f"session-{len(self.begun)}-{user}"
            self.begun[session] = user
            answer.headers = [*answer.headers, ("Mcp-Session-Id", session)]
        if message["method"] == "tools/call":
            self.calls.append(user)
            result = hostile.text(f"{user} with {token}")
            return page({"jsonrpc": "2.0", "id": message["id"], "result": result})
        return answer

    def _redirect(self, asked: Asked) -> Reply:
        said = dict(parse_qsl(urlsplit(asked.path).query))
        found = {"code": f"code-of-{said.get('person', '')}", "state": said["state"]}
        return Reply(status=302, headers=[("Location", f"{said['redirect_uri']}?{urlencode(found)}")])

    def _grant(self, asked: Asked) -> Reply:
        said = {name: values[0] for name, values in parse_qs(asked.body.decode()).items()}
        self.requests.append(said)
        if said["grant_type"] == "refresh_token" and self.refuses_refresh:
            return page({"error": "invalid_grant"}, 400)
        user = said.get("code", "").removeprefix("code-of-") or said["refresh_token"].removeprefix("refresh-of-")
        self.tokens += 1
        token = f"access-token-{self.tokens}"
        self.owners[token] = user
        self.valid.add(token)
        granted = {"access_token": token, "token_type": "Bearer", "expires_in": 3600}
        return page({**granted, "refresh_token": f"refresh-of-{user}"})


NONCE = "once-more"
ENDPOINTS = {"authorization": "authorize", "token": "token", "registration": "register", "revocation": "revoke"}


def page(document: Any, status: int = 200, *headers: tuple[str, str]) -> Reply:
    return Reply([json.dumps(document).encode()], status, [("Content-Type", "application/json"), *headers])


async def visit(url: str, person: str) -> str:
    """Opens a page as a person, and returns where it redirects to."""
    async with httpx2.AsyncClient(verify=False, trust_env=False) as client:
        return str((await client.get(f"{url}&person={person}")).headers["location"])


def browser() -> Browser:
    """Opens the page, and follows its redirect."""
    found: list[str] = []

    async def show(url: str) -> None:
        async with httpx2.AsyncClient(verify=False, trust_env=False) as client:
            found.append((await client.get(url)).headers["location"])

    async def wait() -> Redirect:
        return read_redirect(found.pop())

    return Browser("http://127.0.0.1:33418/callback", show, wait)
