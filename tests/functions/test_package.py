"""The package that Azure takes: built from a clone of what is committed, unpacked elsewhere, and indexed there by
Microsoft's worker with nothing else on the path.
"""

import fcntl
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from taskgraph import __version__
from taskgraph.model.messages import EVENT_TYPES
from taskgraph.storage.azure.account import _EMULATOR_KEY

ROOT: Final = Path(__file__).resolve().parents[2]
PINS: Final = ROOT / "deploy" / "requirements.txt"
RUNNING: Final = f"{sys.version_info.major}.{sys.version_info.minor}"  # what is packaged is imported by it


def load_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("package_functions", ROOT / "deploy" / "package.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


script: Final[Any] = load_script()


@dataclass(frozen=True, slots=True)
class Package:
    told: Mapping[str, Any]
    zip: Path
    folder: Path

    @property
    def site(self) -> Path:
        return self.folder / str(script.SITE_PACKAGES)

    @property
    def clone(self) -> Path:
        """What it was made from: others may have committed since."""
        return self.zip.parents[1]

    def source(self, path: str) -> bytes:
        return (self.clone / path).read_bytes()

    @property
    def names(self) -> list[str]:
        with zipfile.ZipFile(self.zip) as archive:
            return archive.namelist()


def plain_environment(**more: str) -> dict[str, str]:
    """This process's, without what leads back to this checkout or this virtual environment."""
    mine = {"PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME", "TASKGRAPH_STORE"}
    kept = {key: value for key, value in os.environ.items() if key not in mine}
    kept["PATH"] = os.pathsep.join(part for part in kept["PATH"].split(os.pathsep) if not part.startswith(str(ROOT)))
    return {**kept, **more}


def cloned(source: Path, folder: Path) -> Path:
    """What is committed, elsewhere."""
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(source), str(folder)], check=True)
    return folder


@pytest.fixture
def clone(package: Package, tmp_path: Path) -> Path:
    return cloned(package.clone, tmp_path / "taskgraph")


def run(clone: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """The script, from a folder that is none of the clone's."""
    return subprocess.run(
        [str(clone / "scripts" / "package-functions"), "--python", RUNNING, *arguments],
        cwd=clone.parent,
        env=plain_environment(PYTHON=sys.executable),
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Package:
    """Made once, half a minute of pip, for all tests of this module, in however many processes they run."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    home, done = shared / "package-of-functions", shared / "package-of-functions.json"
    with (shared / "package-of-functions.lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            shutil.rmtree(home, ignore_errors=True)  # of a process that failed to make it
            home.mkdir()
            made = run(cloned(ROOT, home / "taskgraph"), "--json")
            assert made.returncode == 0, made.stderr
            with zipfile.ZipFile(json.loads(made.stdout)["zip"]) as archive:
                archive.extractall(home / "unpacked")
            done.write_text(made.stdout, "utf-8")
    told = json.loads(done.read_text("utf-8"))
    return Package(told, Path(told["zip"]), home / "unpacked")


@pytest.mark.campaign
def test_it_is_what_was_told(package: Package) -> None:
    assert package.zip.stat().st_size == package.told["bytes"]
    assert hashlib.sha256(package.zip.read_bytes()).hexdigest() == package.told["sha256"]
    assert package.told["bytes"] < 40 << 20, "larger than it ever was: what has come in?"
    assert {part["name"].split()[0] for part in package.told["parts"]} >= {
        "taskgraph-scheduler",
        "aiohttp",
        "azure-functions",
    }


@pytest.mark.campaign
def test_its_entries(package: Package) -> None:
    names = package.names
    wheel = f"taskgraph_scheduler-{__version__}-py3-none-any.whl"
    assert names == sorted(set(names))
    assert {name for name in names if "/" not in name} == {"function_app.py", "host.json", "requirements.txt", wheel}
    assert {name.partition("/")[0] for name in names if "/" in name} == {".python_packages"}
    assert all(name.startswith(f"{script.SITE_PACKAGES}/") for name in names if "/" in name)
    for name in ("function_app.py", "host.json"):
        assert (package.folder / name).read_bytes() == package.source(f"deploy/{name}")
    with zipfile.ZipFile(package.zip) as archive:
        assert {(entry.date_time, entry.external_attr) for entry in archive.infolist()} == {
            (script.ZIP_TIME, script.ZIP_MODE)
        }
    for kind in ("task-graph", "extension"):
        assert (package.site / "taskgraph" / "schemas" / f"{kind}.json").is_file()
    templates = package.site / "taskgraph" / "interfaces" / "cli" / "templates"
    assert {each.name for each in templates.glob("*.*")} == {"build.yaml", "data.yaml", "python.yaml", "steps.py"}


@pytest.mark.campaign
def test_nothing_is_in_it_that_should_not_be(package: Package) -> None:
    unwanted = re.compile(
        r"(^|/)(__pycache__|bin|tests?|\.git|\.venv|local\.settings[^/]*|\.env)(/|$)|\.py[co]$|\.dist-info/(direct_url\.json|INSTALLER)$"
    )
    # Of the dependencies some have a module of that name, which is no folder of tests.
    assert [name for name in package.names if unwanted.search(name)] == []
    ours = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
    assert [name for name in package.names if name.rpartition("/")[2] in ours] == []


@pytest.mark.campaign
def test_no_key_and_no_path_of_this_machine_is_in_it(package: Package) -> None:
    """The emulator's key is in taskgraph itself, and no secret; nothing else may look like a key of an account."""
    key = re.compile(rb"AccountKey=([A-Za-z0-9+/]{86}==)|\bsig=[A-Za-z0-9%]{43,}")
    machine = re.compile(rb"(?<![\w./])/(?:ro" + rb"ot|home/\w+|wo" + rb"rk)/[\w.]+")
    found = []
    for path in sorted(package.folder.rglob("*")):
        if not path.is_file() or path.suffix in {".so", ".whl"}:
            continue
        content = path.read_bytes()
        keys = [match for match in key.finditer(content) if match[1] != _EMULATOR_KEY.encode()]
        if keys or (machine.search(content) and str(path.relative_to(package.site)).startswith(("taskgraph", "bin"))):
            found.append(str(path.relative_to(package.folder)))
    assert found == []


@pytest.mark.campaign
def test_what_is_installed_is_what_is_pinned(package: Package) -> None:
    pins = script.read_pins(package.source("deploy/requirements.txt").decode())
    installed: dict[str, str] = {}
    for folder in package.site.glob("*.dist-info"):
        name, _, version = folder.name.removesuffix(".dist-info").rpartition("-")
        installed[canonicalize_name(name)] = version
        record = (folder / "RECORD").read_text("utf-8").splitlines()
        missing = [line for line in record if not (package.site / line.split(",")[0].strip('"')).exists()]
        assert missing == [], "the list of what is installed names what is not there"
    assert installed.pop("taskgraph-scheduler") == __version__
    assert installed == pins


@pytest.mark.campaign
def test_a_build_in_azure_would_find_the_same(package: Package) -> None:
    """Its requirements.txt names every pin, and the wheel that lies beside it."""
    *pins, wheel = (package.folder / "requirements.txt").read_text("utf-8").splitlines()
    assert "\n".join(pins) + "\n" == package.source("deploy/requirements.txt").decode()
    assert wheel == f"./{package.told['wheel']}"
    with zipfile.ZipFile(package.folder / wheel) as archive:
        inside = {name: archive.read(name) for name in archive.namelist() if ".dist-info/" not in name}
    assert "taskgraph/interfaces/functions.py" in inside
    assert not any("functions_host" in path.as_posix() for path in package.site.rglob("*")), "Azure has its own host"
    for name, content in inside.items():
        assert (package.site / name).read_bytes() == content, name


@pytest.mark.campaign
def test_taskgraph_runs_from_the_folder_alone(package: Package) -> None:
    """Neither this checkout nor any other library may help."""
    program = (
        "import json, sys\n"
        f"sys.path.append({str(package.site)!r})\n"
        "import taskgraph.functions, taskgraph.interfaces.app\n"
        "import azure.functions, azure.identity.aio, azure.storage.blob.aio\n"
        "from taskgraph.model import schemas\n"
        "assert schemas.names()\n"
        "outside = [m.__file__ for m in sys.modules.values() if getattr(m, '__file__', None)]\n"
        "print(json.dumps([f for f in outside if 'site-packages' in f]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program],
        cwd=package.folder,
        env=plain_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    loaded = json.loads(done.stdout)
    assert len(loaded) > 100
    assert [path for path in loaded if not path.startswith(str(package.site))] == []


def listed(package: Package, library: Path, **app_settings: str) -> dict[str, Any]:
    """The functions as Microsoft's worker reports them."""
    environ = plain_environment(AzureWebJobsStorage="UseDevelopmentStorage=true", **app_settings)
    command = [sys.executable, "-m", "taskgraph", "functions", "list", "--json", "--app", str(package.folder)]
    done = subprocess.run(
        [*command, "--environment", str(library)],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


@pytest.mark.campaign
@pytest.mark.parametrize("queues", ["one", "per-operation"])
def test_microsofts_worker_indexes_it(package: Package, worker_library: Path, queues: str) -> None:
    told = listed(
        package, worker_library, TASKGRAPH_QUEUES=queues, TASKGRAPH_PREFIX="abc", TASKGRAPH_SWEEP_SECONDS="30"
    )
    kinds = ["events", *(EVENT_TYPES if queues == "per-operation" else ())]
    expected: dict[str, Any] = {}
    for kind in kinds:
        expected[kind] = ("queueTrigger", f"abc-{kind}")
        expected[f"{kind}-poison"] = ("queueTrigger", f"abc-{kind}-poison")
    expected["sweep"] = ("timerTrigger", "*/30 * * * * *")
    assert dict(triggers(told)) == expected


def triggers(told: dict[str, Any]) -> Iterator[tuple[str, tuple[str, str]]]:
    for function in told["functions"]:
        yield function["name"], (function["trigger"], function.get("queue") or function.get("schedule"))


@pytest.mark.campaign
def test_the_worker_loads_the_package_and_not_this_checkout(
    package: Package, worker_library: Path, tmp_path: Path
) -> None:
    """A package whose taskgraph is broken must not be indexed, whatever lies elsewhere."""
    broken = tmp_path / "app"
    broken.mkdir()
    for path in package.folder.iterdir():
        (broken / path.name).symlink_to(path)
    (broken / ".python_packages").unlink()
    site = broken / script.SITE_PACKAGES
    site.mkdir(parents=True)
    for path in package.site.iterdir():
        if path.name != "taskgraph":
            (site / path.name).symlink_to(path)
    with pytest.raises(AssertionError, match="taskgraph"):
        listed(Package(package.told, package.zip, broken), worker_library)


@pytest.mark.slow
def test_the_same_commit_gives_the_same_package_and_a_missing_pin_none(clone: Path, package: Package) -> None:
    again = run(clone, "--json", "--output", str(clone.parent / "again.zip"))
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["sha256"] == package.told["sha256"]
    pins = clone / "deploy" / "requirements.txt"
    pins.write_text(re.sub(r"(?m)^idna==.*\n", "", pins.read_text("utf-8")), "utf-8")
    done = run(clone)
    assert done.returncode == 2
    assert "required and not pinned: idna" in done.stderr


@pytest.mark.slow
def test_pins_are_brought_up_to_date(clone: Path) -> None:
    pins = clone / "deploy" / "requirements.txt"
    pins.write_text("", "utf-8")
    done = run(clone, "--pin")
    assert done.returncode == 0, done.stderr
    text = pins.read_text("utf-8")
    assert set(script.read_pins(text)) >= {"aiohttp", "azure-functions", "azure-monitor-opentelemetry", "typer"}
    assert script.pinned_python(text) == RUNNING
    assert "aiohttp: new -> " in done.stderr
    assert not re.search(r"https?:|file:|--hash", text)


# What needs no package.


def test_every_pin_satisfies_the_project_and_every_requirement_has_one() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    text = PINS.read_text("utf-8")
    pins, python = script.read_pins(text), script.pinned_python(text)
    assert python == script.PYTHON_DEFAULT
    environment = {**default_environment(), "python_version": python, "sys_platform": "linux", "extra": ""}
    optional = project["optional-dependencies"]
    assert set(script.EXTRAS) <= set(optional)
    wanted = [Requirement(each) for each in project["dependencies"]]
    wanted += [Requirement(each) for extra in script.EXTRAS for each in optional[extra]]
    wrong = [
        f"{each}: {pins.get(canonicalize_name(each.name), 'not pinned')}; scripts/package-functions --pin"
        for each in wanted
        if each.marker is None or each.marker.evaluate(environment)
        if (version := pins.get(canonicalize_name(each.name))) is None
        or not each.specifier.contains(Version(version), prereleases=True)
    ]
    assert wrong == []


def test_what_is_no_pin_is_refused() -> None:
    assert script.read_pins("# why\na-B_c==1.0  # so\n\nd==2\n") == {"a-b-c": "1.0", "d": "2"}
    for line in ("a>=1", "a", "./a.whl", "a==1 ; python_version < '3'", "--index-url x", "a==1 --hash=sha256:0"):
        with pytest.raises(ValueError, match="line 1"):
            script.read_pins(line)


def test_the_same_files_give_the_same_bytes(tmp_path: Path) -> None:
    """Whatever the order in which they were written, when, and with which permissions."""
    contents = {"b/x.py": b"1", "a.py": b"2" * 5000, "b/é.json": b"{}"}
    for number, order in enumerate((sorted(contents), sorted(contents, reverse=True))):
        folder = tmp_path / f"folder{number}"
        for name in order:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(contents[name])
            path.chmod(0o600 if number else 0o755)
            os.utime(path, (number * 10**8, number * 10**8))
        script.write_zip(folder, tmp_path / f"{number}.zip")
    assert (tmp_path / "0.zip").read_bytes() == (tmp_path / "1.zip").read_bytes()
    with zipfile.ZipFile(tmp_path / "0.zip") as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == contents
        assert archive.namelist() == sorted(contents)


def test_a_folder_of_somebody_else_is_not_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    staged, theirs, ours = tmp_path / "staged", tmp_path / "theirs", tmp_path / "ours"
    for folder, name in ((staged, "host.json"), (theirs, "letter.txt"), (ours, "host.json")):
        folder.mkdir()
        (folder / name).write_text(folder.name, "utf-8")
    (ours / "old.py").touch()
    with pytest.raises(SystemExit) as ended:
        script.replace_folder(staged, theirs)
    assert ended.value.code == 2
    assert "name another folder" in capsys.readouterr().err
    assert (theirs / "letter.txt").read_text("utf-8") == "theirs"
    script.replace_folder(staged, ours)
    assert sorted(path.name for path in ours.iterdir()) == ["host.json"]
    script.replace_folder(staged, tmp_path / "new" / "one")
    assert (tmp_path / "new" / "one" / "host.json").read_text("utf-8") == "staged"


def test_tests_of_dependencies_are_left_out_and_their_modules_are_not(tmp_path: Path) -> None:
    site = tmp_path / "site"
    keep = [
        "a/__init__.py",
        "a/testing.py",
        "a/test.py",
        "tests/__init__.py",
        "a/data/tests/x.json",
        "a-1.dist-info/METADATA",
    ]
    drop = ["a/tests/test_x.py", "a/b/test/x.py", "bin/a", "a/__pycache__/x.pyc", "a-1.dist-info/direct_url.json"]
    for name in [*keep, *drop, "a/b/__init__.py"]:
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text("", "utf-8")
    record = site / "a-1.dist-info" / "RECORD"
    record.write_text("".join(f'"{name}",,\n' for name in [*keep, *drop]), "utf-8")
    script.prune(site)
    there = {path.relative_to(site).as_posix() for path in site.rglob("*") if path.is_file()}
    assert there == {*keep, "a/b/__init__.py", "a-1.dist-info/RECORD"}
    assert [line.split(",")[0] for line in record.read_text("utf-8").splitlines()] == sorted(keep)


@pytest.mark.parametrize("arguments", [["--python", "3.9"], ["--no-such"], ["extra"]])
def test_bad_usage_is_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        script.main(arguments)
    assert ended.value.code == 2
    assert "usage: scripts/package-functions" in capsys.readouterr().err


def test_the_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        script.main(["--help"])
    assert ended.value.code == 0
    told = capsys.readouterr().out
    assert "examples:" in told
    options = set(re.findall(r"scripts/package-functions (--[a-z]+)", told))
    assert {"--output", "--into", "--json", "--pin"} <= options
