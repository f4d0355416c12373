"""A certificate authority of this process, by which its proxies end the TLS of programs in the sandbox.

Its key never leaves the memory of this process. Programs in the sandbox trust it beside the machine's authorities;
nothing else does. It needs the extra `secrets` (PyPI `cryptography`).
"""

from __future__ import annotations

import asyncio
import datetime
import os
import socket
import ssl
import tempfile
import threading
import warnings
from functools import cache, lru_cache
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from forge.core.extras import check_extra
from forge.network.program_requests import StreamWire

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
"""Where a program finds the trusted authorities. Most clients read it by themselves …"""
_OTHER_BUNDLES = ("/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem", "/etc/ssl/ca-bundle.pem")
BUNDLE_VARIABLES = tuple(
    "SSL_CERT_FILE REQUESTS_CA_BUNDLE CURL_CA_BUNDLE GIT_SSL_CAINFO PIP_CERT NODE_EXTRA_CA_CERTS AWS_CA_BUNDLE"
    " CARGO_HTTP_CAINFO UV_NATIVE_TLS_CERT".split()
)
"""… and the others by one of these variables."""

JAVA_BUNDLE = "/etc/ssl/certs/java/cacerts"

_AUTHORITY_DAYS = 20 * 365  # longer than any process: its key ends with the process
_DAYS = 60  # of a host's certificate …
_KEPT_DAYS = 30  # … which is made again after half of them
_MOST_HOSTS = 1_000  # certificates that are kept


async def end_tls(client: socket.socket, host: str) -> StreamWire:
    """Answers a client's TLS greeting as this host. Raises `ssl.SSLError` if the client does not accept that."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=256 * 1024)
    made: list[asyncio.StreamWriter] = []
    transport, protocol = await loop.connect_accepted_socket(
        lambda: asyncio.StreamReaderProtocol(reader, lambda _, writer: made.append(writer)),
        client,
        ssl=await asyncio.to_thread(find_context, host),
    )
    return StreamWire(reader, made[0] if made else asyncio.StreamWriter(transport, protocol, reader, loop))


@cache
def trust_bundle() -> bytes:
    """Returns the machine's trusted authorities and this process's own."""
    return _system_authorities().rstrip() + b"\n" + _authority_text()


def _system_authorities() -> bytes:
    """Returns what the machine trusts; b"" where no such file is known: then only hosts whose TLS is ended work."""
    for path in (BUNDLE, ssl.get_default_verify_paths().cafile, *_OTHER_BUNDLES):
        if path and os.path.isfile(path):
            with open(path, "rb") as file:
                return file.read()
    try:
        import certifi  # other packages often bring it
    except ImportError:
        return b""
    return certifi.contents().encode()


@cache
def java_bundle() -> bytes:
    """Returns the same authorities as Java reads them; b"" where this machine has no such file."""
    if not os.path.isfile(JAVA_BUNDLE):
        return b""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import NoEncryption
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12Certificate, serialize_java_truststore

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some public authority or other has an odd number
        found = x509.load_pem_x509_certificates(trust_bundle())
    return serialize_java_truststore([PKCS12Certificate(one, None) for one in found], NoEncryption())


def _authority_text() -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return _authority()[1].public_bytes(Encoding.PEM)


_lock = threading.Lock()


def _authority() -> tuple[EllipticCurvePrivateKey, x509.Certificate]:
    """Returns the one authority of this process and its forks: programs that start at once all trust the same."""
    with _lock:
        return _make_authority()


@cache
def _make_authority() -> tuple[EllipticCurvePrivateKey, x509.Certificate]:
    check_extra("secrets", "TLS cannot be ended for a program")
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    return key, _sign("Forge (this session only)", key.public_key(), key, None)


def find_context(host: str) -> ssl.SSLContext:
    """Returns a context with a certificate for a host, the same one for some time."""
    return _make_context(host, _now().toordinal() // _KEPT_DAYS)


@lru_cache(maxsize=_MOST_HOSTS)
def _make_context(host: str, period: int) -> ssl.SSLContext:
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    authority_key, authority = _authority()
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = _sign(host, key.public_key(), authority_key, authority)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["http/1.1"])

    def check(_: object, name: str | None, __: object) -> int | None:
        is_named = name is None or name.lower().removesuffix(".") == host
        return None if is_named else ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME

    context.sni_callback = check
    with tempfile.TemporaryDirectory(prefix="forge-tls-") as folder:  # of this user alone; ssl reads files only
        path = os.path.join(folder, "pair.pem")
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(private + certificate.public_bytes(Encoding.PEM))
        context.load_cert_chain(path)
    return context


def _sign(name: str, public: Any, key: EllipticCurvePrivateKey, authority: x509.Certificate | None) -> x509.Certificate:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
    now = _now()
    days = _AUTHORITY_DAYS if authority is None else _DAYS
    built = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if authority is None else authority.subject)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=2))  # clocks differ
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=authority is None, path_length=0 if authority is None else None), True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), False)
        .add_extension(_usage(signs_others=authority is None), True)
    )
    if authority is not None:
        built = built.add_extension(x509.SubjectAlternativeName([_general_name(name)]), False)
        built = built.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False)
    return built.sign(key, hashes.SHA256())


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _usage(*, signs_others: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_others,
        crl_sign=signs_others,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)
