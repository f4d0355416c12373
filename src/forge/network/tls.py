"""Loads the trusted certificates for every connection that Forge opens."""

from __future__ import annotations

import os
from functools import cache
from ssl import SSLContext

from forge.core.execution.threads import in_thread


def trusts_environment() -> bool:
    """Returns True if proxies and certificates named by environment variables count."""
    return os.environ.get("FORGE_TRUST_ENV") == "1"


async def load_tls_context() -> SSLContext:
    """Returns the TLS context. Reads the certificates once and in a thread: reading takes a tenth of a second."""
    environment = trusts_environment()
    context: SSLContext = await in_thread(lambda: _load(environment))
    return context


@cache
def _load(environment: bool) -> SSLContext:
    import httpx2  # heavy: only for https

    return httpx2.create_ssl_context(trust_env=environment)
