"""The examples of deployment, the image and the workflows are accepted by the programs that will read them."""

import asyncio
import os
import re
import shutil
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from fastapi import FastAPI, Request

from transduce.cli.app import app
from transduce.errors import UserError
from transduce.serving.middleware import LIVENESS_PROBES, READINESS_PROBES
from transduce.serving.scheduling import Limits
from transduce.serving.server import listen, make_server

PROJECT = Path(__file__).parents[1]
EXAMPLES = PROJECT / "examples" / "deployment"
WORKFLOWS = sorted((PROJECT / ".github" / "workflows").glob("*.yml"))
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run() -> Run:
    """Run a program that is there: on the path, or beside this Python; without it, the test is skipped."""

    def call(program: str, *arguments: object) -> "subprocess.CompletedProcess[str]":
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"], "/usr/sbin"])
        found = shutil.which(program, path=path)
        if found is None:
            pytest.skip(f"there is no {program} here")
        command = [found, *map(str, arguments)]
        return subprocess.run(command, capture_output=True, check=False, encoding="utf-8", timeout=120)

    return call


def read(name: str) -> str:
    return (EXAMPLES / name).read_text(encoding="utf-8")


def test_systemd_understands_the_unit(run: Run, tmp_path: Path) -> None:
    unit = tmp_path / "transduce.service"
    unit.write_text(read(unit.name).replace("/opt/transduce/bin/transduce", sys.executable), encoding="utf-8")
    done = run("systemd-analyze", "verify", "--man=no", unit)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    judged = run("systemd-analyze", "security", "--offline=true", unit)
    (exposure,) = re.findall(r"exposure level for transduce\.service: ([\d.]+)", judged.stdout)
    assert float(exposure) < 2  # of 10; a unit without any protection has 9.6


def test_the_unit_waits_for_accepted_requests() -> None:
    (seconds,) = re.findall(r"^TimeoutStopSec=(\d+)$", read("transduce.service"), flags=re.MULTILINE)
    assert int(seconds) > Limits().drain_seconds


def test_the_unit_is_not_restarted_after_a_mistake_of_its_user() -> None:
    assert f"\nRestartPreventExitStatus={UserError.exit_code}\n" in read("transduce.service")


@pytest.fixture
def nginx(run: Run, tmp_path: Path) -> Path:
    """A configuration with the example's servers, and a certificate; nothing listens yet."""
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    request = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1"]
    made = run("openssl", *request, "-subj", "/CN=translate.example.org", "-keyout", key, "-out", certificate)
    assert made.returncode == 0, made.stderr
    text = re.sub(r"(?<=ssl_certificate )[^;]+", str(certificate), read("nginx.conf"))
    (tmp_path / "server.conf").write_text(re.sub(r"(?<=ssl_certificate_key )[^;]+", str(key), text), encoding="utf-8")
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    folders = " ".join(f"{kind}_temp_path {tmp_path}/{kind};" for kind in kinds)
    main = (
        f"pid {tmp_path}/pid; error_log {tmp_path}/errors; events {{}}\n"
        f"http {{ access_log off; {folders} include {tmp_path}/server.conf; }}\n"
    )
    (tmp_path / "nginx.conf").write_text(main, encoding="utf-8")
    return tmp_path / "nginx.conf"


def test_nginx_understands_its_configuration(run: Run, nginx: Path) -> None:
    done = run("nginx", "-t", "-q", "-c", nginx, "-p", nginx.parent)
    assert (done.returncode, done.stderr) == (0, "")


def test_behind_nginx_addresses_are_those_of_clients(run: Run, nginx: Path) -> None:
    """Of documents, which LibreTranslate's clients download by the address that the service makes of a request."""
    app = FastAPI()

    @app.get("/file", name="file")
    def find_address(request: Request) -> str:
        return str(request.url_for("file"))

    listening, public, plain = (listen("127.0.0.1", 0) for _ in range(3))
    ports = [one.getsockname()[1] for one in (listening, public, plain)]
    servers = nginx.parent / "server.conf"
    text = servers.read_text(encoding="utf-8").replace("127.0.0.1:5000", f"127.0.0.1:{ports[0]}")
    for port, ours in ((443, ports[1]), (80, ports[2])):
        text = text.replace(f"listen {port}", f"listen 127.0.0.1:{ours}")
    servers.write_text(text, encoding="utf-8")
    public.close()
    plain.close()
    server = make_server(app)
    serving = threading.Thread(target=asyncio.run, args=(server.serve([listening]),))
    serving.start()
    assert run("nginx", "-c", nginx, "-p", nginx.parent).returncode == 0  # it listens, and goes on by itself
    try:
        url = f"https://127.0.0.1:{ports[1]}/file"
        trusted = ssl.create_default_context(cafile=nginx.parent / "certificate.pem")
        trusted.check_hostname = False
        answer = httpx.get(url, verify=trusted)
        assert (answer.status_code, answer.json()) == (200, url)
    finally:
        run("nginx", "-s", "stop", "-c", nginx, "-p", nginx.parent)
        server.should_exit = True
        serving.join()


def test_caddy_understands_its_configuration(run: Run) -> None:
    done = run("caddy", "adapt", "--config", EXAMPLES / "Caddyfile", "--adapter", "caddyfile", "--validate")
    assert done.returncode == 0, done.stderr
    assert "127.0.0.1:5000" in done.stdout


def test_proxies_allow_what_the_service_allows() -> None:
    limits = Limits()
    assert re.findall(r"client_max_body_size (\d+)m;", read("nginx.conf")) == [str(limits.max_body_bytes // 10**6)]
    assert re.findall(r"max_size (\d+)MB", read("Caddyfile")) == [str(limits.max_body_bytes // 10**6)]
    waits = re.findall(r"(?:proxy_read_timeout|response_header_timeout) (\d+)s", read("nginx.conf") + read("Caddyfile"))
    assert len(waits) == 2
    assert all(int(seconds) > limits.deadline_seconds for seconds in waits)


def test_kubernetes_understands_its_objects(run: Run) -> None:
    done = run("kubernetes-validate", "--strict", EXAMPLES / "kubernetes.yaml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_kubernetes_asks_what_the_server_answers() -> None:
    deployment, service = yaml.safe_load_all(read("kubernetes.yaml"))
    pod = deployment["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    assert container["livenessProbe"]["httpGet"]["path"] in LIVENESS_PROBES
    assert container["startupProbe"]["httpGet"]["path"] in LIVENESS_PROBES
    assert container["readinessProbe"]["httpGet"]["path"] in READINESS_PROBES
    (port,) = container["ports"]
    assert port["containerPort"] == 5000
    assert {probe["httpGet"]["port"] for name, probe in container.items() if name.endswith("Probe")} == {port["name"]}
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    assert deployment["spec"]["replicas"] == 1 or service["spec"]["sessionAffinity"] == "ClientIP"  # for documents
    assert service["spec"]["ports"][0]["targetPort"] == port["name"]
    before = container["lifecycle"]["preStop"]["sleep"]["seconds"]  # while it is taken out of the endpoints
    assert before > 0
    assert pod["spec"]["terminationGracePeriodSeconds"] > before + Limits().drain_seconds
    assert {one["name"] for one in container["volumeMounts"]} == {one["name"] for one in pod["spec"]["volumes"]}


def find_commands() -> Iterator[list[str]]:
    """The arguments of `transduce` in every example, and in the image."""
    yield re.findall(r"^ExecStart=\S+ (.*)$", read("transduce.service"), flags=re.MULTILINE)[0].split()
    yield list(
        yaml.safe_load(read("kubernetes.yaml").split("---")[0])["spec"]["template"]["spec"]["containers"][0]["args"]
    )
    image = (PROJECT / "Containerfile").read_text(encoding="utf-8")
    yield re.findall(r'"([^"]*)"', re.findall(r"^CMD (\[.*\])$", image, flags=re.MULTILINE)[0])


@pytest.mark.parametrize("words", list(find_commands()), ids=["unit", "cluster", "image"])
def test_a_command_can_be_given(words: list[str]) -> None:
    _, bound, _ = app.parse_args(words, exit_on_error=False, print_error=False)
    assert words[0] == "serve"
    assert "access" in bound.arguments


def test_a_model_that_is_replaced_is_seen() -> None:
    """A new folder is renamed into the place of the old one, which a mount of that folder itself would keep."""
    _, cluster, image = (Path(words[1]) for words in find_commands())
    (container,) = yaml.safe_load(read("kubernetes.yaml").split("---")[0])["spec"]["template"]["spec"]["containers"]
    assert str(cluster.parent) in [one["mountPath"] for one in container["volumeMounts"]]
    text = (PROJECT / "Containerfile").read_text(encoding="utf-8")
    assert re.findall(r'--volume "[^":]+:([^":]+):ro"', text) == [str(image.parent)]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_may_do_no_more_than_it_must(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    workflow: dict[Any, Any] = yaml.safe_load(text)
    assert workflow["permissions"] in ({}, {"contents": "read"})
    assert "concurrency" in workflow
    used = re.findall(r"uses: (\S+)", text)
    assert [one for one in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}|\./\.github/workflows/\w+\.yml", one)] == []
    assert "secrets." not in text  # trusted publishing needs none
    for job in workflow["jobs"].values():
        granted = job.get("permissions", {})
        assert granted in ({}, {"contents": "read"}) or (
            job["environment"] == "pypi" and granted == {"id-token": "write"}
        )
    for line in re.findall(r"run: (.*pip install.*)", text):
        assert "-c constraints.txt" in line


def test_workflows_are_understood(run: Run) -> None:
    done = run("actionlint", *WORKFLOWS)
    assert done.returncode == 0, done.stdout


def test_workflows_fit_their_schema(run: Run) -> None:
    done = run("check-jsonschema", "--builtin-schema", "vendor.github-workflows", *WORKFLOWS)
    assert done.returncode == 0, done.stdout


def test_workflows_are_safe(run: Run) -> None:
    done = run("zizmor", "--offline", "--quiet", *WORKFLOWS)
    assert done.returncode == 0, done.stdout


def test_scripts_that_workflows_run_are_there() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in WORKFLOWS)
    named = set(re.findall(r"scripts/[\w-]+", text))
    assert {"scripts/smoke-test", "scripts/build-wheels", "scripts/write-sbom"} <= named
    assert all(os.access(PROJECT / name, os.X_OK) for name in named)
    targets = re.findall(r"^([a-z-]+):", (PROJECT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    for words in re.findall(r"run: make (.*)", text):
        assert {word for word in words.split() if "=" not in word} <= set(targets)


def test_the_checks_of_this_page_are_an_extra() -> None:
    """CI installs them all; elsewhere, their absence skips a test."""
    text = (PROJECT / "pyproject.toml").read_text(encoding="utf-8")
    extra = text.split("\nrelease = [")[1].split("]\n")[0]
    for package in ("check-jsonschema", "cyclonedx-bom", "kubernetes-validate", "zizmor"):
        assert f'"{package}' in extra
    assert find_spec("yaml") is not None
