"""A certificate authority of our own, made with the openssl program."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Authority:
    """`file` is what a client has to trust."""

    directory: Path

    @property
    def file(self) -> Path:
        return self.directory / "ca.pem"

    def certify(self, *names: str) -> ssl.SSLContext:
        """A server's context with a certificate for names such as `DNS:example.com` or `IP:127.0.0.1`."""
        at = self.directory / "server"
        at.with_suffix(".ext").write_text(f"subjectAltName={','.join(names)}\n")
        _openssl("req", "-subj", "/CN=server", *_NEW_KEY, "-keyout", f"{at}.key", "-out", f"{at}.csr")
        _openssl(
            *("x509", "-req", "-in", f"{at}.csr", "-CA", str(self.file), "-CAkey", f"{self.directory}/ca.key"),
            *("-CAcreateserial", "-days", "2", "-extfile", f"{at}.ext", "-out", f"{at}.pem"),
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(f"{at}.pem", f"{at}.key")
        return context


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def make_authority(directory: Path) -> Authority:
    """Skips the test, loudly, where there is no openssl program."""
    if shutil.which("openssl") is None:
        pytest.skip("NOT TESTED: HTTPS needs the openssl program for its certificates")
    made = Authority(directory)
    _openssl(
        *("req", "-x509", *_NEW_KEY, "-days", "2", "-subj", "/CN=tests"),
        *("-keyout", f"{directory}/ca.key", "-out", str(made.file)),
        *("-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign"),
    )
    return made


def _openssl(*arguments: str) -> None:
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr
