"""Which certificates count, for every connection that Forge opens."""

from __future__ import annotations

import os
from functools import cache
from ssl import SSLContext

from forge.core.execution.threads import in_thread


def trusts_environment() -> bool:
    """Whether proxies and certificates that environment variables name count."""
    return os.environ.get("FORGE_TRUST_ENV") == "1"


async def trusted_context() -> SSLContext:
    """The certificates, read once and in a thread: that takes a tenth of a second."""
    environment = trusts_environment()
    context: SSLContext = await in_thread(lambda: _read(environment))
    return context


@cache
def _read(environment: bool) -> SSLContext:
    import httpx2  # heavy: only for https

    return httpx2.create_ssl_context(trust_env=environment)
