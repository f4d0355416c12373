"""Stands for npm: it knows one package, `say-server`, and "installs" a server of these tests."""

from __future__ import annotations

import json
import pathlib
import sys

SERVER, WORD, *_ = sys.argv[1:]
PACKAGE = {"version": "1.2.3", "integrity": "sha512-aaaa", "bin": {"say-server": "index.js"}}


def main() -> None:
    wanted = json.loads(pathlib.Path("package.json").read_text())["dependencies"]
    if list(wanted) != ["say-server"]:
        sys.exit(f"npm error 404  {list(wanted)} is not in this registry.")
    if WORD == "install":
        assert "--ignore-scripts" in sys.argv
        found = {"": {"dependencies": wanted}, "node_modules/say-server": PACKAGE}
        pathlib.Path("package-lock.json").write_text(json.dumps({"lockfileVersion": 3, "packages": found}))
        return
    locked = json.loads(pathlib.Path("package-lock.json").read_text())["packages"]["node_modules/say-server"]
    if WORD != "ci" or locked["integrity"] != PACKAGE["integrity"]:
        sys.exit("npm error EINTEGRITY")
    place = pathlib.Path("node_modules/say-server")
    place.mkdir(parents=True)
    (place / "package.json").write_text(json.dumps({"name": "say-server", "bin": PACKAGE["bin"]}))
    (place / "index.js").write_text(pathlib.Path(SERVER).read_text())


main()
