"""The image and the manifests of deploy/: what they say fits together, and the steps of the image work.

Where a container engine runs, the image is built and run. Elsewhere its steps are run, and its command is started with
the same user, read-only files and signals, in bubblewrap.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from forge.project.config import read_configuration
from scripts.check_manifests import read_manifests
from tests import programs

ROOT = Path(__file__).parents[2]
FILE = ROOT / "deploy" / "Containerfile"


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Containerfile: name and rest."""
    lines = [line for line in FILE.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in lines)]


def rest_of(name: str) -> list[str]:
    return [rest for one, rest in instructions() if one == name]


def find(kind: str, name: str = "") -> dict[str, Any]:
    (found,) = [one for _, one in read_manifests() if one["kind"] == kind and name in ("", one["metadata"]["name"])]
    return found


def test_the_image_needs_no_root_and_ends_in_good_order() -> None:
    said = dict(instructions())
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", said["USER"])
    assert said["STOPSIGNAL"] == "SIGTERM"
    assert json.loads(said["ENTRYPOINT"]) == ["tini", "--", "forge"]
    assert json.loads(said["CMD"]) == ["worker"]
    assert "/healthz" in said["HEALTHCHECK"]
    assert said["EXPOSE"] in said["ENV"]
    assert all(re.match(r"python:\$\{PYTHON\}-slim\b", image) for image in rest_of("FROM"))  # no registry's name


def test_the_image_has_scripts_in_code_and_exports_telemetry() -> None:
    """Both stages name the same packages: what is built is what is installed."""
    stages = [rest for rest in rest_of("RUN") if "pip wheel" in rest or "pip install" in rest]
    wanted = [re.findall(r'"[^"]*\[([a-z,]+)\]"(.*)', rest)[0] for rest in stages]
    assert len(wanted) == 2
    assert wanted[0] == wanted[1]
    extras, more = wanted[0]
    assert {"azure", "bedrock", "code", "console", "durable", "mcp", "otel", "vertex"} <= set(extras.split(","))
    assert set(more.split()) == {"opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http"}


def test_all_that_is_copied_is_there_and_not_ignored() -> None:
    kept = (ROOT / "deploy" / "Containerfile.dockerignore").read_text(encoding="utf-8").split()
    for copied in rest_of("COPY"):
        *sources, _ = copied.split()
        for source in sources:
            assert (ROOT / source).exists()
            assert f"!{source}" in kept


@pytest.mark.parametrize("name", ["shop-worker", "shop-console"])
def test_a_deployment_drains_before_it_is_killed_and_is_locked_down(name: str) -> None:
    deployment = find("Deployment", name)
    pod = deployment["spec"]["template"]
    assert deployment["spec"]["selector"]["matchLabels"] == pod["metadata"]["labels"]
    spec = pod["spec"]
    (container,) = spec["containers"]
    arguments = container["args"]
    drain = float(arguments[arguments.index("--drain-seconds") + 1])
    assert spec["terminationGracePeriodSeconds"] >= drain + 15
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["securityContext"]["runAsUser"] == int(rest_of("USER")[0].split(":")[0])
    locked = container["securityContext"]
    assert locked["readOnlyRootFilesystem"]
    assert not locked["allowPrivilegeEscalation"]
    assert locked["capabilities"] == {"drop": ["ALL"]}
    (port,) = container["ports"]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["port"] == port["name"]
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert {"name": "FORGE_HEALTH", "value": f"0.0.0.0:{port['containerPort']}"} in container["env"]
    volumes = {one["name"]: one for one in spec["volumes"]}
    mounted = {one["mountPath"]: volumes[one["name"]] for one in container["volumeMounts"]}
    assert {"/workspace", "/tmp", "/etc/forge"} == mounted.keys()
    assert mounted["/etc/forge"]["configMap"]["name"] == find("ConfigMap")["metadata"]["name"]


def test_the_arguments_are_flags_of_the_command() -> None:
    from forge.cli import forge

    worker: Any = forge.get_command(None, "worker")  # type: ignore[arg-type]
    for name in ("shop-worker", "shop-console"):
        (container,) = find("Deployment", name)["spec"]["template"]["spec"]["containers"]
        command, *arguments = container["args"]
        assert command == "worker"
        worker.make_parser(worker.make_context("worker", [], resilient_parsing=True)).parse_args(list(arguments))


def test_a_project_has_names_of_its_own() -> None:
    """Two projects in one namespace and on one database do not touch each other's pods, settings or runs."""
    project = read_configuration(find("ConfigMap")["data"]["forge.yaml"], "forge.yaml").agent.id
    assert project == "shop"
    for _, one in read_manifests():
        if one["kind"] == "Kustomization":
            continue
        name, labels = one["metadata"]["name"], one["metadata"]["labels"]
        assert name.split("-")[0] == project
        assert labels["app.kubernetes.io/instance"] == project
    for name in ("shop-worker", "shop-console"):
        spec = find("Deployment", name)["spec"]
        assert spec["selector"]["matchLabels"]["app.kubernetes.io/instance"] == project
        (container,) = spec["template"]["spec"]["containers"]
        assert container["args"][container["args"].index("--app-version") + 1] == f"{project}-1"
        assert container["envFrom"] == [{"secretRef": {"name": project}}]


def test_the_settings_are_a_configuration() -> None:
    read = read_configuration(find("ConfigMap")["data"]["forge.yaml"], "forge.yaml")
    assert read.durable is not None
    assert read.durable.retention == {"runs": 90, "events": 14, "files": 30}


def test_the_scaling_follows_the_age_of_the_queue() -> None:
    scaled = find("ScaledObject")
    assert scaled["apiVersion"] == "keda.sh/v1alpha1"
    spec = scaled["spec"]
    assert spec["scaleTargetRef"]["name"] == find("Deployment", "shop-worker")["metadata"]["name"]
    assert 1 <= spec["minReplicaCount"] < spec["maxReplicaCount"]
    (trigger,) = spec["triggers"]
    assert trigger["type"] == "prometheus"
    assert "forge_queue_age_seconds" in trigger["metadata"]["query"]
    assert float(trigger["metadata"]["threshold"]) > 0
    budget = find("PodDisruptionBudget")["spec"]["selector"]["matchLabels"]
    assert budget == find("Deployment", "shop-worker")["spec"]["selector"]["matchLabels"]


@pytest.mark.slow
def test_the_manifests_fit_the_schemas_of_kubernetes() -> None:
    pytest.importorskip("kubernetes_validate")
    from scripts.check_manifests import main

    assert main() == 0


def engine() -> str:
    """A container engine that works here; empty if there is none."""
    for name in ("docker", "podman"):
        if shutil.which(name) and not subprocess.run([name, "info"], capture_output=True, timeout=150).returncode:
            return name
    return ""


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_image_is_built_and_its_worker_drains() -> None:
    program = engine()
    if not program:
        pytest.skip("no container engine runs here: the steps are tested below")
    tag = "forge:test"
    build = [program, "build", "--file", str(FILE), "--tag", tag, str(ROOT)]
    subprocess.run(build, check=True, timeout=1000)
    run = [program, "run", "--detach", "--read-only", "--tmpfs", "/tmp", "--publish", "127.0.0.1::9464", tag]
    worker = subprocess.run(run, check=True, capture_output=True, text=True).stdout.strip()
    try:
        shown = subprocess.run([program, "port", worker, "9464"], check=True, capture_output=True, text=True).stdout
        wait_until_ready(f"http://{shown.splitlines()[0].strip()}")
        subprocess.run([program, "stop", "--time", "60", worker], check=True, timeout=100)
        words = subprocess.run([program, "logs", worker], check=True, capture_output=True, text=True)
        assert "takes no new runs" in words.stdout + words.stderr
    finally:
        subprocess.run([program, "rm", "--force", worker], check=False)


@pytest.mark.slow
def test_the_command_works_with_read_only_files_and_drains_on_a_signal(tmp_path: Path) -> None:
    """What `docker run --read-only --tmpfs /tmp` would do, in bubblewrap where it works; else only as a program."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    settings = dict(part.split("=", 1) for part in " ".join(rest_of("ENV")).split())
    environment = {
        **settings,
        "FORGE_HEALTH": "127.0.0.1:0",
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT / "src"),
    }
    environment |= {"FORGE_MODEL": f"scripted:{tmp_path / 'model.json'}"}
    (tmp_path / "model.json").write_text('["hi"]')
    command = [sys.executable, "-m", "forge", *json.loads(rest_of("CMD")[0])]
    if is_confined := can_confine():
        confined = f"bwrap --ro-bind / / --dev /dev --proc /proc --tmpfs /tmp --bind {shlex.quote(str(workspace))}"
        confined += f" /mnt --ro-bind {shlex.quote(str(tmp_path / 'model.json'))} /tmp/model.json --chdir /mnt"
        confined += " --unshare-user --uid 10001 --gid 10001 --die-with-parent --"
        environment["FORGE_MODEL"] = "scripted:/tmp/model.json"
        command = [*shlex.split(confined), *command]
    else:
        environment["HOME"] = str(tmp_path)
    start: Any = subprocess.Popen if is_confined else programs.Popen
    process = start(command, cwd=workspace, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    try:
        said = process.stderr.readline().decode()
        assert "metrics at " in said, said + process.stderr.read().decode()
        wait_until_ready(said.rpartition("metrics at ")[2].strip().removesuffix("/metrics"))
        child = child_of(process.pid) if is_confined else process.pid  # as tini passes it on
        os.kill(child, signal.SIGTERM)
        rest = process.stderr.read().decode()
        assert process.wait(60) == 0, rest
        assert "takes no new runs" in rest
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def can_confine() -> bool:
    if shutil.which("bwrap") is None:
        return False
    tried = ["bwrap", "--ro-bind", "/", "/", "--proc", "/proc", "--unshare-user", "--uid", "10001", "--tmpfs", "/tmp"]
    probe = [*tried, "--", sys.executable, "-c", "import sys; sys.path.insert(0, sys.argv[1]); import forge"]
    return not subprocess.run([*probe, str(ROOT / "src")], capture_output=True, timeout=150).returncode


def child_of(pid: int) -> int:
    """The program that bubblewrap started."""
    last = pid
    while children := Path(f"/proc/{last}/task/{last}/children").read_text().split():
        name = Path(f"/proc/{children[0]}/comm").read_text().strip()
        last = int(children[0])
        if name != "bwrap":
            break
    return last


def wait_until_ready(address: str) -> None:
    until = time.monotonic() + 60
    while True:
        try:
            with urlopen(f"{address}/readyz", timeout=10) as answer:
                assert answer.status == 200
                return
        except (URLError, OSError):
            assert time.monotonic() < until, "it did not become ready"
            time.sleep(0.1)


@pytest.mark.slow
def test_the_wheel_of_the_image_is_built_from_what_is_copied(tmp_path: Path) -> None:
    """The steps of the first stage, without the network: the packages that it requires are here already."""
    source = tmp_path / "source"
    for copied in rest_of("COPY"):
        *names, target = copied.split()
        for name in names:
            into = tmp_path / target.strip("/") / ("" if target.endswith("/") else ".")
            into.mkdir(parents=True, exist_ok=True)
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, into, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / name, into)
    (build,) = [rest for rest in rest_of("RUN") if rest.startswith("pip wheel")]
    assert "/source[" in build
    offline = ["--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path / "wheels"), str(source)]
    path = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}  # where uv-build is
    subprocess.run([sys.executable, "-m", "pip", "wheel", *offline], check=True, timeout=200, env=path)
    (wheel,) = (tmp_path / "wheels").glob("*.whl")
    install = ["install", "--no-index", "--no-deps", "--target", str(tmp_path / "site"), str(wheel)]
    subprocess.run([sys.executable, "-m", "pip", *install], check=True, timeout=200)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    shown = subprocess.run(
        [sys.executable, "-m", "forge", "worker", "--help"], env=environment, capture_output=True, text=True, check=True
    )
    assert "--health" in shown.stdout
