"""Checks deploy/kubernetes against the schemas of Kubernetes that the package kubernetes-validate carries.

`python -m scripts.check_manifests`; `make check-manifests` installs the package into an environment of its own. The
ScaledObject is KEDA's, whose schema is not there: tests/packaging/test_deploy.py checks it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent.parent / "deploy" / "kubernetes"
VERSIONS = ("1.30", "1.37")  # the oldest and the newest that we check
OTHERS = ("Kustomization", "ScaledObject")


def read_manifests() -> list[tuple[str, dict[str, Any]]]:
    """Returns every document of the folder with the name of its file."""
    files = sorted(FOLDER.glob("*.yaml"))
    return [(file.name, one) for file in files for one in yaml.safe_load_all(file.read_text(encoding="utf-8"))]


def main() -> int:
    import kubernetes_validate  # type: ignore[import-not-found, unused-ignore]

    checked = 0
    for name, document in read_manifests():
        for version in VERSIONS if document["kind"] not in OTHERS else ():
            try:
                kubernetes_validate.validate(document, version, strict=True)
            except kubernetes_validate.ValidationError as error:
                print(f"{name}: {document['kind']} does not fit Kubernetes {version}: {error.message}", file=sys.stderr)
                return 1
            checked += 1
    print(f"{checked} checks of {FOLDER.name} passed, against Kubernetes {' and '.join(VERSIONS)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
