"""A server of private repositories: Git's own `git http-backend` behind a password."""

from __future__ import annotations

import asyncio
import base64
import subprocess
from pathlib import Path


def make_repository(top: Path) -> None:
    """Makes `top/private.git`, with one commit of a large file, which takes pushes."""
    work = top / "work"
    work.mkdir(parents=True)
    (work / "file").write_text("cloned\n" + "a line of a large file\n" * 50_000)
    for line in (
        f"git init -q -b main {work}",
        f"git -C {work} add file",
        f"git -C {work} -c user.name=a -c user.email=a@b commit -q -m first",
        f"git clone -q --bare {work} {top}/private.git",
        f"git -C {top}/private.git config http.receivepack true",
    ):
        subprocess.run(line.split(), check=True, capture_output=True)


async def answer_git(
    top: Path, password: str, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Answers a request to a repository; one without the user `x-access-token` and the password is refused."""
    lines = head.decode("latin-1").split("\r\n")
    method, target, _ = lines[0].split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:] if line)}
    body = await _read_body(headers, reader)
    wanted = base64.b64encode(f"x-access-token:{password}".encode()).decode()
    if headers.get("authorization") != f"Basic {wanted}":
        writer.write(b'HTTP/1.1 401 No\r\nWWW-Authenticate: Basic realm="git"\r\nContent-Length: 0\r\n\r\n')
        return await writer.drain()
    path, _, query = target.partition("?")
    environment = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": str(top),
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "safe.directory",
        "GIT_CONFIG_VALUE_0": "*",
        "GIT_PROJECT_ROOT": str(top),
        "GIT_HTTP_EXPORT_ALL": "1",
        "PATH_INFO": path,
        "QUERY_STRING": query,
        "REQUEST_METHOD": method,
        "REMOTE_USER": "me",
        "CONTENT_TYPE": headers.get("content-type", ""),
        "CONTENT_LENGTH": str(len(body)),
        "HTTP_CONTENT_ENCODING": headers.get("content-encoding", ""),
        "HTTP_GIT_PROTOCOL": headers.get("git-protocol", ""),
    }
    backend = await asyncio.create_subprocess_exec(
        "git", "http-backend", env=environment, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    said, _ = await backend.communicate(body)
    given, _, content = said.partition(b"\r\n\r\n")
    status = next((one[8:] for one in given.split(b"\r\n") if one.startswith(b"Status: ")), b"200 OK")
    rest = b"".join(one + b"\r\n" for one in given.split(b"\r\n") if not one.startswith(b"Status: "))
    writer.write(b"HTTP/1.1 %s\r\n%sContent-Length: %d\r\n\r\n" % (status, rest, len(content)) + content)
    await writer.drain()


async def _read_body(headers: dict[str, str], reader: asyncio.StreamReader) -> bytes:
    if "chunked" not in headers.get("transfer-encoding", ""):
        return await reader.readexactly(int(headers.get("content-length", "0")))
    pieces = []
    while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        pieces.append(await reader.readexactly(size))
        await reader.readexactly(2)
    await reader.readuntil(b"\r\n")
    return b"".join(pieces)
