"""Limits where requests may go: `Egress` judges a URL, then every address of its host."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, NamedTuple, NoReturn, get_args

from forge.core.errors import ErrorKind, ToolError
from forge.network.address import (
    METADATA_NAMES,
    Address,
    Network,
    Url,
    is_metadata,
    read_host,
    read_url,
    why_name_not_public,
    why_not_public,
)
from forge.network.program_secrets import ProgramSecret, covers_host, read_hosts

Mode = Literal["open", "allowlist", "deny-all"]

_ENTRY = re.compile(
    r"(\*\.)?(?:\[([^\[\]]+)\](/[0-9]{1,3})?|([^\[\]/:]+(?:/[0-9]{1,2})?))(?::([0-9]{1,5}))?"  # with a port or without
    r"|([0-9a-fA-F]*:[0-9a-fA-F:.]*:[0-9a-fA-F:.]*(?:/[0-9]{1,3})?)"  # bare IPv6
)


class _HostRule(NamedTuple):
    """One entry of `domains` or `private`."""

    host: str
    network: Network | None  # where it is an address or a range
    subdomains: bool
    port: int | None

    def covers_host(self, host: str, port: int) -> bool:
        if self.network is not None or self.port not in (None, port):
            return False
        return host.endswith(f".{self.host}") if self.subdomains else host == self.host

    def covers_address(self, address: Address, port: int) -> bool:
        return self.network is not None and self.port in (None, port) and address in self.network


@dataclass(frozen=True)
class Egress:
    """Says which addresses tools may reach. `open`: every public address; `allowlist`: the domains; `deny-all`:
    nothing.

    Addresses where clouds hand out credentials are refused whatever is set. With a proxy, only the text of a URL can be
    judged: the proxy resolves names, and has to refuse forbidden addresses.

    Args:
        mode: "open", "allowlist" or "deny-all".
        domains: hosts, `*.host` for subdomains only, with `:port` or without.
        private: non-public targets that may be reached all the same: hosts, addresses or ranges, with `:port` or
            without. In an allowlist such an entry stands for itself.
        proxy: the URL of a proxy; `FORGE_TRUST_ENV=1` takes it from the environment.
        inspect: the proxy of programs ends TLS, so that it sees all their requests.
        passed: hosts whose TLS it never ends: pinned and mutual TLS, gRPC.
        secrets: values that it puts into the requests of programs.

    Example:
        >>> Egress("allowlist", domains=("api.example.com",)).mode
        'allowlist'
    """

    mode: Mode = "open"
    domains: tuple[str, ...] = ()
    private: tuple[str, ...] = ()
    proxy: str = field(default="", repr=False)  # may hold a password
    inspect: bool = False
    passed: tuple[str, ...] = ()
    secrets: tuple[ProgramSecret, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        for where in ("domains", "private"):
            if isinstance(getattr(self, where), str):
                raise ValueError(f"egress.{where} must be a list; {_entry_advice(where)}")
        object.__setattr__(self, "domains", tuple(self.domains))
        object.__setattr__(self, "private", tuple(self.private))
        try:
            object.__setattr__(self, "passed", read_hosts(self.passed))
        except ValueError as error:
            raise ValueError(f"egress.pass: {error}") from None
        if self.mode not in get_args(Mode):
            raise ValueError(f"egress.mode: {self.mode!r} is not one of {', '.join(get_args(Mode))}")
        _ = self._domains, self._private  # a wrong entry is an error at once

    @classmethod
    def current(cls) -> Egress:
        """Returns the egress of the running call."""
        return _current.get()

    @classmethod
    def only(cls, url: str) -> Egress:
        """Returns an egress for the origin of a URL that a person configured, private or not, and nothing else."""
        there = read_url(url)
        allowed = cls("allowlist").reaching(there)
        is_plain = (there.scheme, there.port) == ("http", 80)
        return (
            allowed.reaching(replace(there, scheme="https", port=443)) if is_plain else allowed
        )  # the same server over https

    def reaching(self, url: Url) -> Egress:
        """Returns a copy that also allows this server, private or not; in mode `deny-all` returns itself."""
        host_and_port = f"[{url.host}]:{url.port}" if ":" in url.host else f"{url.host}:{url.port}"
        if self.mode == "deny-all" or host_and_port in self.private:
            return self
        return replace(self, private=(*self.private, host_and_port))

    def including(self, *hosts: str) -> Egress:
        """Returns a copy with a tool's own hosts in its allowlist; the other modes have no exceptions."""
        added = tuple(host for host in hosts if host not in self.domains)
        return replace(self, domains=self.domains + added) if added and self.mode == "allowlist" else self

    def ends_tls(self, host: str) -> bool:
        """Returns whether the proxy of programs ends their TLS to a host."""
        if any(covers_host(one, host) for one in self.passed):
            return False
        return self.inspect or any(one.is_for(host) for one in self.secrets)

    @property
    def ends_some_tls(self) -> bool:
        return self.inspect or bool(self.secrets)

    def judge(self, url: Url, *, proxied: bool = False) -> None:
        """Raises `ToolError` if the URL is not allowed, as far as that is known before its name is resolved."""
        if self.mode == "deny-all":
            _refuse(url, "requests are switched off (egress.mode is deny-all)", "mode: allowlist, domains: [{host}]")
        if url.host in METADATA_NAMES or (url.address is not None and is_metadata(url.address)):
            _refuse_metadata(url, url.host)
        if url.address is not None:
            self.judge_addresses(url, [url.address])
        if self.mode == "allowlist" and not self._lists(url):
            _refuse(url, f"{url.host} is not in the allowlist (egress.domains)", "domains: [{host}]")
        if proxied:
            self.judge_name(url)

    def judge_name(self, url: Url) -> None:
        """Raises `ToolError` for a name that is internal by its form, where a proxy or a browser resolves it."""
        if url.host in METADATA_NAMES:
            _refuse_metadata(url, url.host)
        if url.address is None and (why := why_name_not_public(url.host)) and not self._names_private(url):
            _refuse_address(url, url.host, why)

    def judge_addresses(self, url: Url, addresses: Sequence[Address]) -> list[Address]:
        """Returns the allowed addresses, at least one. Raises `ToolError`.

        A name that leads to both a public and a refused address is refused as a whole: such names deceive guards.
        """
        refused = [address for address in addresses if not self._permits(url, address)]
        for address in addresses:
            if is_metadata(address):
                _refuse_metadata(url, str(address))
        if refused and (len(refused) == len(addresses) or not all(map(why_not_public, addresses))):
            _refuse_address(url, str(refused[0]), why_not_public(refused[0]))
        return [address for address in addresses if address not in refused]

    def _permits(self, url: Url, address: Address) -> bool:
        if not why_not_public(address):
            return True
        return self._names_private(url) or any(entry.covers_address(address, url.port) for entry in self._private)

    def _lists(self, url: Url) -> bool:
        entries = (*self._domains, *self._private)
        if url.address is not None:
            return any(entry.covers_address(url.address, url.port) for entry in entries)
        return any(entry.covers_host(url.host, url.port) for entry in entries)

    def _names_private(self, url: Url) -> bool:
        return any(entry.covers_host(url.host, url.port) for entry in self._private)

    @cached_property
    def _domains(self) -> tuple[_HostRule, ...]:
        return tuple(_read_rule(entry, "domains") for entry in self.domains)

    @cached_property
    def _private(self) -> tuple[_HostRule, ...]:
        return tuple(_read_rule(entry, "private") for entry in self.private)


class CredentialEgress(Egress):
    """Allows every address, also where clouds give out credentials: for a person's own login, never for a tool."""

    def judge(self, url: Url, *, proxied: bool = False) -> None:
        pass

    def judge_addresses(self, url: Url, addresses: Sequence[Address]) -> list[Address]:
        return list(addresses)


_current: ContextVar[Egress] = ContextVar("forge_egress", default=Egress())  # noqa: B039 - frozen


@contextmanager
def use_egress(egress: Egress) -> Iterator[None]:
    """Judges the requests made inside by this egress."""
    token = _current.set(egress)
    try:
        yield
    finally:
        _current.reset(token)


def _read_rule(entry: str, where: str) -> _HostRule:
    parts = _ENTRY.fullmatch(entry.strip()) if isinstance(entry, str) else None
    if parts is None:
        raise ValueError(f"egress.{where}: {entry!r} is not a host; {_entry_advice(where)}")
    port = int(parts[5]) if parts[5] else None
    if port is not None and not 0 < port < 65_536:
        raise ValueError(f"egress.{where}: {entry!r} has an invalid port; use 1 to 65535")
    host = parts[6] or (parts[2] + (parts[3] or "") if parts[2] else parts[4])
    if "/" in host:
        return _HostRule(host, _read_network(host, entry, where), False, port)
    try:
        name, address = read_host(host)
    except ToolError as error:
        raise ValueError(f"egress.{where}: {entry!r}: {error}; {_entry_advice(where)}") from None
    network = ipaddress.ip_network(address) if address is not None else None
    return _HostRule(name, network, bool(parts[1]), port)


def _read_network(host: str, entry: str, where: str) -> Network:
    if where == "private":
        try:
            return ipaddress.ip_network(host)
        except ValueError as error:
            raise ValueError(f"egress.{where}: {entry!r} is not an address range: {error}") from None
    raise ValueError(f"egress.{where}: {entry!r} is not a domain; {_entry_advice(where)}")


def _entry_advice(where: str) -> str:
    if where == "domains":
        return "write it like api.example.com or *.example.org, with :port or without"
    return "write it like intranet.example.com, 127.0.0.1:8080, 10.0.0.0/8 or [::1]:8080"


def _refuse_address(url: Url, address: str, why: str) -> NoReturn:
    what = url.host if url.host == address else f"{url.host} leads to {address},"
    _refuse(url, f"{what} is {why}" if url.host == address else f"{what} {why}", "private: [{host_and_port}]")


def _refuse_metadata(url: Url, what: str) -> NoReturn:
    raise ToolError(
        f"{url.origin} is not allowed: {what} is a cloud's metadata address, which gives out credentials",
        ErrorKind.SECURITY,
        "No setting allows it.",
    )


def _refuse(url: Url, why: str, setting: str) -> NoReturn:
    host = f"[{url.host}]" if ":" in url.host else url.host
    written = setting.format(host=f'"{host}"', host_and_port=f'"{host}:{url.port}"')
    raise ToolError(
        f"{url.origin} is not allowed: {why}",
        ErrorKind.SECURITY,
        f"A person can allow it with `egress: {{{written}}}` in the forge.yaml that --config names; do not try other "
        "spellings.",
    )
