"""Files of `deploy/`: their command lines, ports, paths, probes and limits fit the server and each other.

There is no container runtime in the tests; what they check is listed in docs/how-to/serve.md.
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from regard.cli import app
from regard.serving.access import resolve_access
from regard.serving.app import build_app
from regard.serving.loaded_models import LoadedModel, check_arguments
from regard.serving.server import EXIT_SECONDS
from regard.serving.service import Service
from regard.serving.workers import KILL_SECONDS
from regard.version import __version__
from servers import RunningServer

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
USER = 10001


def parse_command(arguments: list[str]) -> dict[str, Any]:
    """Parse a command line as `regard` does, without running it."""
    assert arguments[0] == "serve"
    group: Any = get_command(app)
    with group.make_context("regard", list(arguments)) as context:
        command = group.get_command(context, "serve")
        parsed: dict[str, Any] = command.make_context("serve", list(arguments[1:]), parent=context).params
    return parsed


def check_command(arguments: list[str], *, models: str, key: bytes | None) -> dict[str, Any]:
    """Parse a command line and check what `regard serve` checks before it loads models."""
    parsed = parse_command(arguments)
    for model in check_arguments(parsed["models"], parsed["default"] or ()):
        assert model.folder.is_relative_to(models)
    assert (parsed["host"], parsed["port"], parsed["log_format"]) == ("0.0.0.0", 8000, "json")
    resolve_access(parsed["host"], key=key, no_auth=parsed["no_auth"], names=tuple(parsed["allow_host"] or ()))
    return parsed


@pytest.fixture(scope="module")
def dockerfile() -> list[tuple[str, str]]:
    """Instructions of the Dockerfile with their arguments."""
    text = re.sub(r"^#.*\n", "", (DEPLOY / "Dockerfile").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return [(line.split(None, 1)[0], " ".join(line.split()[1:])) for line in lines]


@pytest.fixture(scope="module")
def kubernetes() -> dict[str, Any]:
    """Objects of the Kubernetes manifest by kind."""
    objects = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
    return {content["kind"]: content for content in objects}


class TestDockerfile:
    """Image for CPUs."""

    def test_the_final_stage_has_the_environment_and_no_tools(self, dockerfile: list[tuple[str, str]]) -> None:
        starts = [index for index, (name, _) in enumerate(dockerfile) if name == "FROM"]
        assert [dockerfile[index][1] for index in starts] == ["python:3.11-slim AS build", "python:3.11-slim"]
        final = dockerfile[starts[1] :]
        assert [arguments for name, arguments in final if name == "COPY"] == ["--from=build /opt/regard /opt/regard"]
        assert not any(tool in arguments for _, arguments in final for tool in ("pip", "apt", "gcc"))
        users = [arguments for name, arguments in final if name == "USER"]
        assert users == [str(USER)]
        assert any(f"--uid {USER}" in arguments for name, arguments in final if name == "RUN")

    def test_copied_files_exist_and_are_not_ignored(self, dockerfile: list[tuple[str, str]]) -> None:
        kept = set((DEPLOY / "Dockerfile.dockerignore").read_text().replace("!", "").split())
        copied = [
            source
            for name, arguments in dockerfile
            if name == "COPY" and "--from" not in arguments
            for source in arguments.split()[:-1]
        ]
        assert {"pyproject.toml", "constraints.txt", "src"} <= {*copied}
        for source in copied:
            assert (ROOT / source).exists()
            assert source in kept

    def test_it_installs_the_pinned_versions(self, dockerfile: list[tuple[str, str]]) -> None:
        (install,) = [arguments for name, arguments in dockerfile if name == "RUN" and " install " in arguments]
        assert install.startswith("pip --python /opt/regard/bin/python install ")
        assert install.endswith(' -c constraints.txt ".[$EXTRA]"')
        assert ("ARG", "EXTRA=train") in dockerfile

    def test_the_default_command_is_valid(self, dockerfile: list[tuple[str, str]]) -> None:
        instructions = dict(dockerfile)
        assert json.loads(instructions["ENTRYPOINT"]) == ["regard"]
        check_command(json.loads(instructions["CMD"]), models="/models", key=b"k" * 16)
        assert instructions["EXPOSE"] == "8000"

    def test_the_health_check_runs(self, dockerfile: list[tuple[str, str]], server: RunningServer) -> None:
        command = json.loads(dict(dockerfile)["HEALTHCHECK"].partition("CMD ")[2])
        assert command[0] == "python"
        for url, code in ((server.url, 0), (f"{server.url}/nowhere", 1)):
            script = command[2].replace("http://127.0.0.1:8000", url)
            assert script != command[2]
            done = subprocess.run([sys.executable, "-I", *command[1:2], script], capture_output=True, timeout=60)
            assert done.returncode == code, done.stderr


def test_the_compose_file_fits(dockerfile: list[tuple[str, str]]) -> None:
    content = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    service = content["services"]["regard"]
    build = service["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).samefile(DEPLOY / "Dockerfile")
    parsed = check_command(service["command"], models="/models", key=b"k" * 16)
    (secret,) = service["secrets"]
    assert secret in content["secrets"]
    assert parsed["api_key_file"] == Path("/run/secrets") / secret
    assert service["ports"] == [f"8000:{parsed['port']}"]
    assert service["volumes"] == ["./models:/models:ro"]
    assert (service["read_only"], service["tmpfs"], service["cap_drop"]) == (True, ["/tmp"], ["ALL"])
    grace = int(service["stop_grace_period"].removesuffix("s"))
    assert grace >= parsed["drain_seconds"] + max(EXIT_SECONDS, KILL_SECONDS)


class TestKubernetes:
    """Manifest of a deployment."""

    def test_the_command_fits_the_volumes_and_the_service(self, kubernetes: dict[str, Any]) -> None:
        pod = kubernetes["Deployment"]["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
        assert {*mounts} == {volume["name"] for volume in pod["volumes"]} == {"models", "tmp"}
        assert mounts["tmp"]["mountPath"] == "/tmp"
        parsed = check_command(container["args"], models=mounts["models"]["mountPath"], key=b"k" * 16)
        assert kubernetes["Service"]["metadata"]["name"] in parsed["allow_host"]
        assert container["ports"] == [{"name": "http", "containerPort": parsed["port"]}]
        assert kubernetes["Service"]["spec"]["ports"][0]["targetPort"] == "http"
        assert container["env"][0]["name"] == "REGARD_API_KEY"
        claim = pod["volumes"][0]["persistentVolumeClaim"]["claimName"]
        assert claim == kubernetes["PersistentVolumeClaim"]["metadata"]["name"]
        pause = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
        needed = pause + parsed["drain_seconds"] + EXIT_SECONDS + KILL_SECONDS
        assert pod["terminationGracePeriodSeconds"] >= needed

    def test_the_autoscaler_decides_about_pods_on_different_nodes(self, kubernetes: dict[str, Any]) -> None:
        spec = kubernetes["Deployment"]["spec"]
        assert "replicas" not in spec
        minimum = kubernetes["HorizontalPodAutoscaler"]["spec"]["minReplicas"]
        assert minimum > kubernetes["PodDisruptionBudget"]["spec"]["minAvailable"]  # so that a node can be drained
        pod = spec["template"]["spec"]
        (container,) = pod["containers"]
        workers = parse_command(container["args"])["workers"]
        assert int(container["resources"]["requests"]["cpu"]) == workers  # utilization is measured against the request
        (constraint,) = pod["topologySpreadConstraints"]
        assert constraint["topologyKey"] == "kubernetes.io/hostname"
        assert constraint["labelSelector"] == spec["selector"]
        assert container["image"] == f"regard:{__version__}"

    def test_the_selectors_match(self, kubernetes: dict[str, Any]) -> None:
        labels = kubernetes["Deployment"]["spec"]["template"]["metadata"]["labels"]
        assert kubernetes["Deployment"]["spec"]["selector"]["matchLabels"] == labels
        assert kubernetes["Service"]["spec"]["selector"] == labels
        assert kubernetes["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
        target = kubernetes["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]
        assert (target["kind"], target["name"]) == ("Deployment", kubernetes["Deployment"]["metadata"]["name"])

    def test_probes_need_no_key(self, kubernetes: dict[str, Any], loaded_models: list[LoadedModel]) -> None:
        (container,) = kubernetes["Deployment"]["spec"]["template"]["spec"]["containers"]
        probes = {name: container[f"{name}Probe"]["httpGet"] for name in ("startup", "readiness", "liveness")}
        assert {name: probe["path"] for name, probe in probes.items()} == {
            "startup": "/livez",
            "readiness": "/readyz",
            "liveness": "/livez",
        }
        paths = build_app(Service(loaded_models[:1])).openapi()["paths"]
        for probe in probes.values():
            assert probe["port"] == "http"
            assert "security" not in paths[probe["path"]]["get"]

    def test_it_runs_without_privileges(self, kubernetes: dict[str, Any]) -> None:
        pod = kubernetes["Deployment"]["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["runAsUser"] == USER
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert {*container["resources"]} == {"requests", "limits"}
