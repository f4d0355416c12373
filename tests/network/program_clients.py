"""Runs in a network namespace of its own: real clients in the sandbox, against servers that stand for package hosts.

Prints one line of JSON for each client and way: TLS that is passed through, and TLS that the proxy ends.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import io
import json
import os
import pwd
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from forge import Egress, Scope, ToolCall, rules
from forge.pipeline import standard_executor
from forge.tools.bash import Bash
from tests.network import inside_namespace as world
from tests.network.authority import Authority

HOST = "packages.test"
TYPES = {".html": "text/html", ".json": "application/json"}
JAVA = f"""
import java.net.URI;
import java.net.http.*;
public class Get {{
    public static void main(String[] a) throws Exception {{
        var asked = HttpRequest.newBuilder(URI.create("https://{HOST}/hello")).build();
        System.out.println(HttpClient.newHttpClient().send(asked, HttpResponse.BodyHandlers.ofString()).body());
    }}
}}
"""
# a client, the program that it needs, the line, and what the line prints if it worked
CLIENTS = (
    ("curl", "curl", f"curl -sS https://{HOST}/hello", "hello"),
    ("wget", "wget", f"wget -qO- https://{HOST}/hello", "hello"),
    ("git clone", "git", f"rm -rf got; git clone -q https://{HOST}/repository.git got && cat got/file", "cloned"),
    (
        "pip install",
        "python3",
        f"python3 -m pip install -q --index-url https://{HOST}/simple/ --target pipped tiny && cat pipped/tiny.py",
        "installed",
    ),
    (
        "uv pip install",
        "uv",
        f"uv pip install -q --no-cache --index-url https://{HOST}/simple/ --target uved tiny && cat uved/tiny.py",
        "installed",
    ),
    (
        "npm ci",
        "npm",
        f"cd project && npm ci --silent --registry https://{HOST}/npm/ --cache ./cache; cat node_modules/tiny/index.js",
        "from npm",
    ),
    ("cargo fetch", "cargo", "cd crate && CARGO_HOME=$PWD/home cargo fetch && find home -name 'tiny-*.crate'", "tiny-"),
    (
        "Node fetch",
        "node",
        f"""node -e 'fetch("https://{HOST}/hello").then(r => r.text()).then(console.log)'""",
        "hello",
    ),
    ("Java HttpClient", "java", "java -XX:TieredStopAtLevel=1 $JAVA_TRUST Get.java", "hello"),
    (
        "urllib",
        "python3",
        f"""python3 -c 'import urllib.request; print(urllib.request.urlopen("https://{HOST}/hello").read())'""",
        "hello",
    ),
    (
        "requests",
        "python3:requests",
        f"""python3 -c 'import requests; print(requests.get("https://{HOST}/hello").text)'""",
        "hello",
    ),
    (
        "httpx",
        "python3:httpx",
        f"""python3 -c 'import httpx; print(httpx.get("https://{HOST}/hello").text)'""",
        "hello",
    ),
    ("aiohttp", "python3:aiohttp", "python3 asked.py", "hello"),
    ("Go", "go", "cd go && GOCACHE=$PWD/cache GOFLAGS=-mod=mod GOTOOLCHAIN=local go run .", "hello"),
)
AIOHTTP = f"""
import aiohttp, asyncio
async def main():
    async with aiohttp.ClientSession() as session, session.get("https://{HOST}/hello") as answer:
        print(await answer.text())
asyncio.run(main())
"""
GO = f"""package main
import ("fmt"; "io"; "net/http")
func main() {{
	r, err := http.Get("https://{HOST}/hello")
	if err != nil {{ panic(err) }}
	body, _ := io.ReadAll(r.Body)
	fmt.Println(string(body))
}}
"""


def make_site(top: Path) -> None:
    """Makes the files of a package host: a Git repository, and packages for Python, Node and Rust."""
    top.mkdir()
    (top / "hello").write_text("hello\n")
    work = top.parent / "work"
    for line in (
        f"git init -q {work}",
        f"git -C {work} -c user.name=a -c user.email=a@b commit -q --allow-empty -m first",
    ):
        subprocess.run(line.split(), check=True)
    (work / "file").write_text("cloned\n")
    subprocess.run(["git", "-C", str(work), "add", "file"], check=True)
    subprocess.run(f"git -C {work} -c user.name=a -c user.email=a@b commit -q -m second".split(), check=True)
    subprocess.run(f"git clone -q --bare {work} {top}/repository.git".split(), check=True)
    subprocess.run(f"git -C {top}/repository.git update-server-info".split(), check=True)
    wheel = "tiny-1.0-py3-none-any.whl"
    (top / "simple/tiny").mkdir(parents=True)
    with zipfile.ZipFile(top / "simple/tiny" / wheel, "w") as made:
        made.writestr("tiny.py", "# installed\n")
        made.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        made.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        made.writestr("tiny-1.0.dist-info/RECORD", "tiny.py,,\n")
    (top / "simple/tiny/index.html").write_text(f'<a href="{wheel}">{wheel}</a>')
    packed = _tar({"package/package.json": '{"name":"tiny","version":"1.0.0"}', "package/index.js": "// from npm\n"})
    (top / "npm/tiny/-").mkdir(parents=True)
    (top / "npm/tiny/-/tiny-1.0.0.tgz").write_bytes(packed)
    manifest = '[package]\nname = "tiny"\nversion = "1.0.0"\nedition = "2021"\n'
    crate = _tar({"tiny-1.0.0/Cargo.toml": manifest, "tiny-1.0.0/src/lib.rs": ""})
    (top / "index/ti/ny").mkdir(parents=True)
    (top / "index/config.json").write_text(json.dumps({"dl": f"https://{HOST}/crates/{{crate}}-{{version}}.crate"}))
    entry = {"name": "tiny", "vers": "1.0.0", "deps": [], "cksum": hashlib.sha256(crate).hexdigest(), "features": {}}
    (top / "index/ti/ny/tiny").write_text(json.dumps({**entry, "yanked": False}) + "\n")
    (top / "crates").mkdir()
    (top / "crates/tiny-1.0.0.crate").write_bytes(crate)


def make_workspace(top: Path, site: Path) -> None:
    top.mkdir()
    (top / "Get.java").write_text(JAVA)
    (top / "asked.py").write_text(AIOHTTP)
    (top / "go").mkdir()
    (top / "go/go.mod").write_text("module get\n")
    (top / "go/main.go").write_text(GO)
    (top / "project").mkdir()
    (top / "project/package.json").write_text('{"name":"project","version":"1.0.0","dependencies":{"tiny":"1.0.0"}}')
    packed = hashlib.sha512((site / "npm/tiny/-/tiny-1.0.0.tgz").read_bytes()).digest()
    tiny = {
        "version": "1.0.0",
        "resolved": f"https://{HOST}/npm/tiny/-/tiny-1.0.0.tgz",
        "integrity": f"sha512-{base64.b64encode(packed).decode()}",
    }
    root = {"name": "project", "version": "1.0.0", "dependencies": {"tiny": "1.0.0"}}
    lock = {
        "name": "project",
        "version": "1.0.0",
        "lockfileVersion": 3,
        "packages": {"": root, "node_modules/tiny": tiny},
    }
    (top / "project/package-lock.json").write_text(json.dumps(lock))
    (top / "crate/src").mkdir(parents=True)
    (top / "crate/.cargo").mkdir()
    (top / "crate/src/lib.rs").touch()
    (top / "crate/Cargo.toml").write_text(
        '[package]\nname = "mine"\nversion = "0.1.0"\nedition = "2021"\n[dependencies]\ntiny = "1"\n'
    )
    (top / "crate/.cargo/config.toml").write_text(
        f'[source.crates-io]\nreplace-with = "here"\n[source.here]\nregistry = "sparse+https://{HOST}/index/"\n'
    )


def _tar(files: dict[str, str]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as tar:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
    return made.getvalue()


def serve(site: Path) -> object:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                asked = head.split(b" ")[1].decode().split("?")[0]
                path = site / asked.strip("/")
                path = path / "index.html" if path.is_dir() else path
                body = path.read_bytes() if path.is_file() else b"none"
                status = "200 OK" if path.is_file() else "404 Not Found"
                kind = TYPES.get(path.suffix, "application/octet-stream")
                shown = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
                writer.write(shown.encode() + (b"" if head.startswith(b"HEAD") else body))
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    return answer


def trust_here(folder: Path) -> None:
    """Makes this namespace's machine trust the authority of the tests, as it trusts public ones."""
    for path in ("/etc/ssl/certs/ca-certificates.crt",):
        if os.path.exists(path):
            both = folder / "both.pem"
            both.write_bytes(Path(path).read_bytes() + b"\n" + (folder / "ca.pem").read_bytes())
            subprocess.run(["mount", "--bind", str(both), path], check=True)


async def main(folder: Path) -> None:
    site = folder / "site"
    make_site(site)
    world.NAMES[HOST] = [[world.PUBLIC]]
    loop = asyncio.get_running_loop()
    await loop.create_datagram_endpoint(world.NameServer, local_addr=("127.0.0.1", 53))
    await asyncio.start_server(serve(site), "0.0.0.0", 443, ssl=Authority(folder).certify(f"DNS:{HOST}"))  # type: ignore[arg-type]
    for way, egress in (("passed", Egress()), ("ended", Egress(inspect=True))):
        workspace = folder / way
        make_workspace(workspace, site)
        (workspace / "ca.pem").write_bytes((folder / "ca.pem").read_bytes())
        if shutil.which("keytool"):
            import_it = "keytool -importcert -noprompt -alias tests -file ca.pem -keystore ca.p12 -storepass changeit"
            subprocess.run(import_it.split(), cwd=workspace, check=True, capture_output=True)
        executor = standard_executor([Bash()], policy=rules("allow execute", f"allow network {HOST}"), egress=egress)
        for name, needed, line, expected in CLIENTS:
            program, _, module = needed.partition(":")
            if (
                not shutil.which(program, path=os.environ["PATH"])
                or (module and _fails("python3", "-c", f"import {module}"))
                or (
                    program == "cargo" and _fails("env", "HOME=/nonexistent", "cargo", "--version")
                )  # rustup without Rust
            ):
                sys.stdout.write(json.dumps({"name": name, "way": way, "came": "not installed"}) + "\n")
                continue
            bundles = ("PIP_CERT", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE")
            told = "".join(f"export {one}=/etc/ssl/certs/ca-certificates.crt; " for one in bundles)
            told += (
                "export JAVA_TRUST='-Djavax.net.ssl.trustStore=ca.p12 -Djavax.net.ssl.trustStorePassword=changeit'; "
            )
            given = told if way == "passed" else ""
            call = ToolCall("bash", {"command": f"{given}{line}", "timeout": 60})
            result = await executor.execute(call, Scope(session_id="clients", workspace=workspace))
            came = "works" if expected in str((result.data or {}).get("output")) else result.for_llm[-400:]
            sys.stdout.write(json.dumps({"name": name, "way": way, "came": came}) + "\n")
            sys.stdout.flush()


def _fails(*command: str) -> bool:
    return subprocess.run(command, capture_output=True).returncode != 0


if __name__ == "__main__":
    rust = [str(one) for one in Path(pwd.getpwuid(os.getuid()).pw_dir).glob(".rustup/toolchains/*/bin")]
    os.environ["PATH"] = os.pathsep.join((os.path.dirname(sys.executable), *rust, os.environ["PATH"]))
    world.prepare(Path(sys.argv[1]))
    trust_here(Path(sys.argv[1]))
    asyncio.run(main(Path(sys.argv[1])))
