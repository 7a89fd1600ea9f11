"""The compose files and Dockerfiles agree with the code: settings, ports, paths, probes, commands, rights."""

import re
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from glow import __version__
from glow.cli import app
from glow_service.api.routes import ROUTES
from glow_service.commands.serve import KEEP_ALIVE_S
from glow_service.live.workers import LONGEST_S
from glow_service.settings import Settings, settings_table
from scripts.lock_images import LOCKS

ROOT = Path(__file__).parent.parent.parent
DOCKER = ROOT / "docker"
PROXY = (DOCKER / "haproxy.cfg").read_text(encoding="utf-8")
DOCKERFILES = sorted(DOCKER.glob("*.Dockerfile"))
OUR_IMAGES = ("service", "builder", "train")
COMPOSE_FILES = ("docker-compose.yml", "docker-compose.gpu.yml", "docker-compose.milvus.yml")
OTHER_VARIABLES = {"FORWARDED_ALLOW_IPS", "INDEX_ROOT", "KEEP_VERSIONS", "BUILD_THREADS"}
"""uvicorn's (docs/security.md), and those of docker/sample.sh and docker/rebuild.sh."""
VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")


def compose(name: str = COMPOSE_FILES[0]) -> dict[str, Any]:
    text = (ROOT / name).read_text(encoding="utf-8").replace("!reset null", "null")  # compose's own tag
    found: dict[str, Any] = yaml.safe_load(text)
    return found


SERVICES: dict[str, dict[str, Any]] = compose()["services"]
REPLICAS = sorted(name for name in SERVICES if name.startswith("service-"))


def by_default(value: Any) -> str:
    """A value as compose makes it where no variable is set."""
    return VARIABLE.sub(lambda found: found[2] or "", str(value))


def instructions(path: Path) -> list[tuple[str, str]]:
    """A Dockerfile's instructions, continued lines joined."""
    text = re.sub(r"(?m)^\s*#.*\n", "", path.read_text(encoding="utf-8")).replace("\\\n", " ")
    lines = [line.split(None, 1) for line in text.splitlines() if line.strip()]
    return [(name, value.strip()) for name, value in lines]


def image_variables(path: Path) -> dict[str, str]:
    words = [word for name, value in instructions(path) if name == "ENV" for word in value.split()]
    return dict(word.split("=", 1) for word in words)


def test_every_variable_is_a_setting_and_its_value_is_valid() -> None:
    known = {row.env for row in settings_table()}
    assert len(REPLICAS) == 2
    for name in REPLICAS:
        overrides = compose(COMPOSE_FILES[1])["services"][name]["environment"]
        given = SERVICES[name]["environment"] | overrides | image_variables(DOCKER / "service.Dockerfile")
        values = {key: by_default(value) for key, value in given.items() if key.startswith("GLOW_")}
        assert set(values) <= known
        settings = Settings.from_environment(values)
        assert (str(settings.index_root), settings.host, settings.device) == ("/index", "0.0.0.0", "cuda")  # noqa: S104
    for name, service in SERVICES.items():
        own = {key for key in service.get("environment", {}) if not key.startswith(("GF_", "GLOW_"))}
        assert own <= OTHER_VARIABLES, name


def test_every_setting_can_be_given_in_one_file() -> None:
    for name in REPLICAS:
        assert SERVICES[name]["env_file"] == [{"path": ".env", "required": False}]
        for key, value in SERVICES[name]["environment"].items():
            for variable in re.findall(r"\$\{(\w+)", value):
                assert variable == key, f"{value} in {name}: .env has this setting under another name"


def in_proxy(pattern: str) -> int:
    """A number of the proxy's configuration."""
    found = re.search(pattern, PROXY)
    assert found is not None, pattern
    return int(found[1])


def test_replicas_drain_longer_than_the_proxy_takes_to_see_it() -> None:
    inter_s, fast_ms, fall = map(in_proxy, (r"check inter (\d+)s", r"fastinter (\d+)ms", r"fall (\d+)"))
    for name in REPLICAS:
        drain_s = float(SERVICES[name]["environment"]["GLOW_DRAIN_S"])
        assert drain_s >= 2 * (inter_s + fast_ms / 1000 * (fall - 1))
        settings = Settings.model_validate({"index_root": "/index", "drain_s": drain_s})
        grace_s = float(SERVICES[name]["stop_grace_period"].removesuffix("s"))
        assert grace_s > drain_s + settings.shutdown_timeout_s


def test_the_proxy_waits_longer_and_holds_more_than_a_request_may_take() -> None:
    settings = Settings.model_validate({"index_root": "/index"})
    assert in_proxy(r"timeout check (\d+)s") > LONGEST_S, "a slow /readyz is not an unready one"
    idle_s = in_proxy(r"timeout http-keep-alive (\d+)s")
    assert idle_s < KEEP_ALIVE_S, "a request that meets the service's end of a connection is lost"
    assert in_proxy(r"tune.bufsize (\d+)") >= settings.max_body_bytes + (16 << 10)
    assert in_proxy(r"timeout server (\d+)s") * 1000 > settings.max_timeout_ms


def test_the_proxy_asks_no_second_replica_to_write() -> None:
    once = re.search(r"disable-l7-retry if !METH_GET \{ path_reg (\S+) \}", PROXY)
    assert once is not None
    posted = {path for route in ROUTES if route.method != "GET" for path in route.paths}
    posted |= {path.replace("/v1/", "/v1/books/") for path in posted if path.startswith("/v1/")}
    again = {path for path in posted if not re.match(once[1], path)}
    assert {path.removeprefix("/v1").removeprefix("/books") for path in again} == {
        *("/search", "/search/batch", "/explain", "/embeddings")
    }


def test_ports_agree() -> None:
    port = image_variables(DOCKER / "service.Dockerfile")["GLOW_PORT"]
    assert ("EXPOSE", port) in instructions(DOCKER / "service.Dockerfile")
    assert all(SERVICES[name]["environment"]["GLOW_PORT"] == port for name in REPLICAS)
    targets = [f"{name}:{port}" for name in REPLICAS]
    assert re.findall(r"(?m)^ +server \S+ (\S+)", PROXY) == targets
    scraped = yaml.safe_load((DOCKER / "prometheus.yml").read_text(encoding="utf-8"))["scrape_configs"]
    assert scraped[0]["static_configs"] == [{"targets": targets}]
    bound = in_proxy(r"bind :(\d+)")
    assert f"127.0.0.1:${{PORT:-8080}}:{bound}" in SERVICES["proxy"]["ports"]
    assert SERVICES["proxy"]["healthcheck"]["test"] == ["CMD", "bash", "/ready.sh", "/proxyz", str(bound)]
    for service in SERVICES.values():
        assert all(str(entry).startswith("127.0.0.1:") for entry in service.get("ports", []))
        assert service.get("network_mode") == "none" or set(service["networks"]) <= set(compose()["networks"])


def test_probes_ask_routes_that_are_there() -> None:
    paths = {path for route in ROUTES for path in route.paths}
    asked = re.findall(r"path=\$\{1:-(/\w+)\}", (DOCKER / "ready.sh").read_text(encoding="utf-8"))
    asked += re.findall(r"http-check send meth GET uri (\S+)", PROXY)
    assert asked == ["/readyz", "/readyz"]
    assert set(asked) <= paths
    assert "monitor-uri /proxyz" in PROXY
    for name in REPLICAS:
        assert SERVICES[name]["healthcheck"]["test"] == ["CMD", "bash", "/app/ready.sh"]


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_what_a_dockerfile_copies_and_runs_is_there(path: Path) -> None:
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied: dict[str, Path] = {}
    for name, value in instructions(path):
        if name == "COPY" and not value.startswith("--from"):
            *sources, target = value.split()
            for source in sources:
                place = ROOT / source.replace("${LOCK}", path.name.partition(".")[0])
                assert place.exists(), source
                assert Path(source).parts[0] in sent, f".dockerignore holds back {source}"
                copied[f"{target}{place.name}" if target.endswith("/") else target] = place
    commands = [yaml.safe_load([value for name, value in instructions(path) if name == "ENTRYPOINT"][-1])]
    for service in SERVICES.values():
        if "entrypoint" in service and service["build"]["dockerfile"] == f"docker/{path.name}":
            commands.append(service["entrypoint"])
    for command in commands:
        if "-m" in command:
            assert command[command.index("-m") + 1] == "glow"
            assert "/app/glow" in copied
        for script in (word for word in command if word.startswith("/app/")):
            assert copied[script].stat().st_mode & 0o111, f"{script} is not executable"


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_a_dockerfile_builds_with_any_builder_and_runs_as_nobody_special(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"(?m)^# *syntax|<<|--link|--mount|:latest", text)
    arguments = dict(value.split("=", 1) for name, value in instructions(path) if name == "ARG")
    for name, value in instructions(path):
        if name == "FROM":
            image = value.split()[0]
            assert re.fullmatch(r"\$\{\w+_IMAGE\}", image)
            assert ":" in arguments[image[2:-1]]
    assert [value for name, value in instructions(path) if name == "USER"] == ["10001:10001"]
    labels = " ".join(value for name, value in instructions(path) if name == "LABEL")
    assert "org.opencontainers.image.title" in labels
    assert "org.opencontainers.image.licenses" in labels
    if path.name.partition(".")[0] in OUR_IMAGES:
        assert "--require-hashes" in text
        wanted = {"HOME": "/tmp", "PYTHONDONTWRITEBYTECODE": "1", "ORT_DISABLE_TELEMETRY": "1"}  # noqa: S108
        assert image_variables(path).items() >= wanted.items()
        assert '"/usr/bin/tini", "--", "python"' in text


@pytest.mark.parametrize("name", SERVICES)
def test_a_container_has_few_rights_and_limits(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert all(service[limit] for limit in ("mem_limit", "cpus", "pids_limit"))
    assert not {"privileged", "cap_add", "devices"} & set(service)
    image, _, tag = by_default(service["image"]).partition(":")
    assert re.match(r"\d+", tag), f"{image} has no version"
    assert tag == __version__ or "build" not in service


def test_the_index_is_written_by_builders_alone() -> None:
    for name, service in SERVICES.items():
        mounted = [by_default(volume) for volume in service.get("volumes", []) if "index" in str(volume)]
        if name in REPLICAS:
            assert mounted == ["index:/index:ro"]
        elif name in ("index", "rebuild", "ingest"):
            assert mounted == ["index:/index"]
            assert service["network_mode"] == "none"


def test_replicas_and_ingest_share_the_log_of_writes() -> None:
    for name in (*REPLICAS, "ingest"):
        assert "ingest:/ingest" in SERVICES[name]["volumes"]
    for name in REPLICAS:
        assert SERVICES[name]["environment"]["GLOW_INGEST_FOLDER"] == "/ingest"
    for command in (
        SERVICES["ingest"]["command"],
        SERVICES["ingest"]["healthcheck"]["test"][4:],
        compose(COMPOSE_FILES[1])["services"]["ingest"]["command"],
    ):
        name, *given = [by_default(word) for word in command]
        found: Any = typer.main.get_command(app)
        options = found.get_command(None, name).make_context(name, given).params
        assert (str(options["index_root"]), str(options["ingest_folder"])) == ("/index", "/ingest")


def test_starts_are_ordered_by_health() -> None:
    """A one-shot container fails `up --wait` unless a running service depends on its end."""
    for name in REPLICAS:
        conditions = {key: value["condition"] for key, value in SERVICES[name]["depends_on"].items()}
        assert conditions == {"index": "service_completed_successfully", "redis": "service_healthy"}
    assert sorted(SERVICES["proxy"]["depends_on"]) == REPLICAS
    for name, service in SERVICES.items():
        assert "healthcheck" in service or service["restart"] == "no", name


def test_the_gpu_override_changes_services_that_are_there() -> None:
    for name, service in compose(COMPOSE_FILES[1])["services"].items():
        assert name in SERVICES
        assert _locks(COMPOSE_FILES[1], service["image"]) <= set(LOCKS)
        assert service["deploy"]["resources"]["reservations"]["devices"][0]["capabilities"] == ["gpu"]


def test_with_milvus_every_container_of_ours_reaches_it_and_has_its_client() -> None:
    given = compose(COMPOSE_FILES[2])["services"]
    milvus = given.pop("milvus")
    assert milvus["networks"] == ["back"] and "ports" not in milvus
    assert milvus["volumes"] == ["milvus:/var/lib/milvus"]
    assert set(given) == {"index", "rebuild", "ingest", *REPLICAS}
    for name, service in given.items():
        for lock in _locks(COMPOSE_FILES[2], service["image"]):
            assert "pymilvus==" in (DOCKER / "requirements" / f"{lock}.txt").read_text(encoding="utf-8")
        assert service.get("networks", SERVICES[name].get("networks")) == ["back"]
        assert name in REPLICAS or service["network_mode"] is None
    # Compose does not see a reset behind `<<`.
    assert "network_mode" not in compose(COMPOSE_FILES[2])["x-builder"]
    for name in ("index", "rebuild"):
        *_, option, address = given[name]["entrypoint"]
        assert (option, by_default(address)) == ("--store", "milvus://milvus:19530")


def _locks(file: str, image: str) -> set[str]:
    """Lock files of an image, which a service of the file builds."""
    sharing = [service for service in compose(file)["services"].values() if service["image"] == image]
    locks = {service["build"]["args"]["LOCK"] for service in sharing if "build" in service}
    assert locks, image
    return locks


def test_an_image_is_built_by_one_service_of_those_that_start() -> None:
    """Engines that keep images in containerd fail where one build writes a tag twice."""
    started = [service for service in SERVICES.values() if "profiles" not in service]
    built = [service["image"] for service in started if "build" in service]
    assert len(built) == len(set(built))
    ours = {service["image"] for service in SERVICES.values() if "glow-" in service["image"]}
    assert set(built) | {SERVICES["prometheus"]["image"]} == ours
