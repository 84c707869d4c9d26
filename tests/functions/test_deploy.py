"""The deployment, as far as it can be checked without Azure: Bicep that parses and hangs together, properties that
Microsoft's own models know, names that the code reads, and an azure.yaml that azd would take.

What no test here can say: whether the Bicep compiler accepts the files, and whether Azure does.
"""

import importlib
import json
import os
import re
import typing
import uuid
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any, Final

import pytest
import typer.main
import yaml
from tree_sitter import Node

from taskgraph.interfaces import functions, settings
from taskgraph.interfaces.cli import app
from taskgraph.interfaces.http import entra
from taskgraph.model import limits, messages
from taskgraph.model.names import QueueNames
from taskgraph.model.priorities import LEVELS
from taskgraph.storage.azure import logs
from tests.functions import bicep

ROOT: Final = Path(__file__).resolve().parents[2]
DEPLOY: Final = ROOT / "deploy"
FILES: Final = {path.name: bicep.read(path) for path in sorted((DEPLOY / "infra").glob("*.bicep"))}
MAIN: Final = FILES["main.bicep"]
MODULES: Final = [(file, name, each) for file in FILES.values() for name, each in file.of("module").items()]
RESOURCES: Final = [
    pytest.param(each, id=f"{file.path.stem}-{name}")
    for file in FILES.values()
    for name, each in file.of("resource").items()
]

# What the host itself reads, and nothing of taskgraph has to.
HOST_SETTINGS: Final = frozenset({"APPLICATIONINSIGHTS_CONNECTION_STRING", "APPLICATIONINSIGHTS_AUTHENTICATION_STRING"})

# Ids of Azure's built-in roles, as its documentation lists them.
ROLES: Final = {
    "Monitoring Metrics Publisher": "3913510d-42f4-4e42-8a64-420c390055eb",
    "Storage Blob Data Contributor": "ba92f5b4-2d11-453d-a403-e96b0029c9fe",
    "Storage Blob Data Owner": "b7e6dc6d-f1e8-4753-8033-0f276bb0955b",
    "Storage Queue Data Contributor": "974c5e8b-45b9-4653-ba55-5f855dd0fb88",
    "Storage Queue Data Message Sender": "c6a89b2d-59bc-44d0-9896-0f6e12d7b80a",
    "Storage Table Data Contributor": "0a9a7e1f-b9d0-4cc4-a60d-0319b160aaa3",
}

# Microsoft's typed model of each resource: module, class, and the version of the service's interface that it is of.
MODELS: Final = {
    "Microsoft.App/jobs": ("azure.mgmt.appcontainers.models", "Job", ""),
    "Microsoft.App/managedEnvironments": ("azure.mgmt.appcontainers.models", "ManagedEnvironment", ""),
    "Microsoft.Authorization/roleAssignments": (
        "azure.mgmt.authorization.v2022_04_01.models",
        "RoleAssignmentCreateParameters",
        "2022-04-01",
    ),
    "Microsoft.Insights/components": (
        "azure.mgmt.applicationinsights.v2020_02_02.models",
        "ApplicationInsightsComponent",
        "2020-02-02",
    ),
    "Microsoft.ManagedIdentity/userAssignedIdentities": ("azure.mgmt.msi.v2024_11_30.models", "Identity", "2024-11-30"),
    "Microsoft.OperationalInsights/workspaces": ("azure.mgmt.loganalytics.models", "Workspace", ""),
    "Microsoft.Resources/resourceGroups": ("azure.mgmt.resource.resources.models", "ResourceGroup", ""),
    "Microsoft.Storage/storageAccounts": ("azure.mgmt.storage.models", "StorageAccountCreateParameters", ""),
    "Microsoft.Storage/storageAccounts/blobServices": ("azure.mgmt.storage.models", "BlobServiceProperties", ""),
    "Microsoft.Storage/storageAccounts/blobServices/containers": ("azure.mgmt.storage.models", "BlobContainer", ""),
    "Microsoft.Storage/storageAccounts/queueServices": ("azure.mgmt.storage.models", "QueueServiceProperties", ""),
    "Microsoft.Storage/storageAccounts/queueServices/queues": ("azure.mgmt.storage.models", "StorageQueue", ""),
    "Microsoft.Storage/storageAccounts/tableServices": ("azure.mgmt.storage.models", "TableServiceProperties", ""),
    "Microsoft.Storage/storageAccounts/tableServices/tables": ("azure.mgmt.storage.models", "Table", ""),
    "Microsoft.Web/serverfarms": ("azure.mgmt.web.models", "AppServicePlan", ""),
    "Microsoft.Web/sites": ("azure.mgmt.web.models", "Site", ""),
}
# What Bicep adds to a resource's own properties.
OF_BICEP: Final = frozenset({"name", "parent", "scope", "dependsOn"})


def test_there_is_something_to_look_at() -> None:
    names = ("access", "app", "identities", "main", "monitoring", "storage", "workers")
    assert set(FILES) == {f"{name}.bicep" for name in names}
    assert len(RESOURCES) > 20
    assert len(MODULES) == 6


@pytest.mark.parametrize("file", FILES.values(), ids=list(FILES))
def test_a_file_parses(file: bicep.File) -> None:
    assert bicep.errors(file.path.read_bytes()) == []


@pytest.mark.parametrize(
    "source",
    [
        "param a strin g = 'x'\n",
        "var a = {\n  b: 1\n",
        "resource a 'X/y@2020-01-01' = {\n  name 'a'\n}\n",
        "output a string = [for x in: x]\n",
        "var a = 'x${b'\n",
    ],
)
def test_what_is_no_bicep_is_seen(source: str) -> None:
    assert bicep.errors(source.encode()) != []


@pytest.mark.parametrize("file", FILES.values(), ids=list(FILES))
def test_every_name_is_declared_and_every_declaration_used(file: bicep.File) -> None:
    names = [each.name for each in file.declarations if each.kind != "output"]
    assert len(names) == len(set(names)), "declared twice"
    used = {name for each in file.declarations for child in each.node.named_children[1:] for name in refer(child)}
    assert used - set(names) - bicep.BUILT_IN == set()
    # A resource or a module is of use by being there.
    assert {name for name in names if name in {**file.of("parameter"), **file.of("variable")}} - used == set()


def refer(node: Node) -> Iterator[str]:
    return (name for name, _ in bicep.references(node))


def test_references_are_found() -> None:
    root = bicep.read(DEPLOY / "infra" / "access.bicep")
    (found,) = [each for each in root.declarations if each.name == "workerOnWork"]
    used = set(refer(found.node.named_children[2]))
    assert used == {"workQueueNames", "workQueue", "workerPrincipalId", "roles", "guid", "subscriptionResourceId"}


@pytest.mark.parametrize("file", FILES.values(), ids=list(FILES))
def test_every_parameter_and_output_says_what_it_is(file: bicep.File) -> None:
    silent = [
        name
        for kind in ("parameter", "output")
        for name, each in file.of(kind).items()
        if not re.fullmatch(r"[A-Zo].*[^.]\.", each.described)
    ]
    assert silent == []


@pytest.mark.parametrize(("file", "name", "module"), MODULES, ids=[name for _, name, _ in MODULES])
def test_a_module_gets_what_it_asks_for(file: bicep.File, name: str, module: bicep.Declaration) -> None:
    target = FILES[module.literal]
    given = set(bicep.items(bicep.items(module.body)["params"]))
    asked = target.of("parameter")
    assert given - set(asked) == set()
    assert {key for key, each in asked.items() if each.default is None} - given == set()
    wanted = {output for used, output in bicep.outputs_used(file) if used == name}
    assert wanted - set(target.of("output")) == set()
    assert set(target.of("output")) - wanted == set(), "nobody uses it"


def test_a_parameter_has_the_same_type_on_its_way_down() -> None:
    for file, _, module in MODULES:
        asked = FILES[module.literal].of("parameter")
        for name, value in bicep.items(bicep.items(module.body)["params"]).items():
            own = file.of("parameter").get(bicep.text(value))
            if own is not None:
                assert own.type_name == asked[name].type_name, name


@pytest.mark.parametrize("resource", RESOURCES)
def test_the_properties_of_a_resource_are_known_to_microsofts_models(resource: bicep.Declaration) -> None:
    kind, _, version = resource.literal.partition("@")
    module, name, of = MODELS[kind]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", version), "no preview"
    assert date.fromisoformat(version) <= date.fromisoformat(of or version_of(module)), "not known to the model yet"
    body = bicep.items(resource.body)
    own = {key: node for key, node in body.items() if key not in OF_BICEP}
    assert not (resource.existing and own), "what is there already is only named"
    assert unknown(own, getattr(importlib.import_module(module), name), module, kind) == []


def version_of(module: str) -> str:
    """The newest version of the interface that a package of Microsoft's knows."""
    package = importlib.import_module(module.removesuffix(".models"))
    configuration = importlib.import_module(f"{package.__name__}._configuration")
    source = Path(str(configuration.__file__)).read_text("utf-8")
    found = re.search(r'kwargs\.pop\("api_version", "([\d-]+)"\)', source)
    assert found, module
    return found[1]


def unknown(own: dict[str, Node], model: Any, module: str, where: str) -> list[str]:
    """Keys that the model has no field for, and words that are none of a field's; all the way down."""
    fields = fields_of(model, module)
    wrong = []
    for key, node in own.items():
        if key not in fields:
            wrong.append(f"{where}.{key}: no such property of {getattr(model, '__name__', where)}")
            continue
        inner = fields[key]
        if node.type == "object" and (deeper := model_in(inner)) is not None:
            wrong += unknown(bicep.items(node), deeper, module, f"{where}.{key}")
        elif node.type == "array" and (deeper := model_in(inner)) is not None:
            for each in bicep.elements(node):
                if each.type == "object":
                    wrong += unknown(bicep.items(each), deeper, module, f"{where}.{key}")
        elif (word := bicep.literal(node)) is not None:
            words = words_of(inner)
            if words and word not in words:
                wrong.append(f"{where}.{key}: {word!r} is none of {sorted(words)}")
    return wrong


def fields_of(model: Any, module: str) -> dict[str, Any]:
    """Types of a model's fields by their name on the wire. Two generations of Microsoft's generator made them."""
    models = importlib.import_module(module)
    if hasattr(model, "_attribute_map"):
        found: dict[str, Any] = {}
        for each in model._attribute_map.values():
            # A key with dots stands for objects within each other that have no model of their own.
            path = re.split(r"(?<!\\)\.", each["key"])
            inner = found
            for step in path[:-1]:
                inner = inner.setdefault(step, {})
            inner[path[-1]] = named_in(each["type"], models)
        return found
    if isinstance(model, dict):
        return model
    model()  # fields are made known by the first instance
    inside = vars(importlib.import_module(model.__module__))
    hints = typing.get_type_hints(model, {**inside, "_models": models})
    return {each._rest_name: hints[attribute] for attribute, each in model._attr_to_rest_field.items()}


def named_in(written: str, models: Any) -> Any:
    return getattr(models, written.strip("[]{}"), None)


def model_in(hint: Any) -> Any:
    """The model inside Optional[…], list[…] or Union[…]; None if there is none."""
    if isinstance(hint, dict) or hasattr(hint, "_attribute_map") or hasattr(hint, "_deserialize"):
        return hint
    if typing.get_origin(hint) is dict:
        return None
    return next((found for each in typing.get_args(hint) if (found := model_in(each)) is not None), None)


def words_of(hint: Any) -> set[str]:
    if isinstance(hint, type) and hasattr(hint, "__members__"):
        return {str(each.value) for each in hint.__members__.values()}
    return {word for each in typing.get_args(hint) for word in words_of(each)}


def test_a_property_that_no_model_knows_is_seen(tmp_path: Path) -> None:
    source = (DEPLOY / "infra" / "app.bicep").read_text("utf-8")
    for old, new, expected in (
        ("instanceMemoryMB: instanceMemoryMB", "instanceMemory: instanceMemoryMB", "instanceMemory: no such property"),
        ("type: 'UserAssignedIdentity'", "type: 'UserIdentity'", "'UserIdentity' is none of"),
        ("httpsOnly", "onlyHttps", "onlyHttps: no such property"),
        ("name: 'TASKGRAPH_PREFIX'", "key: 'TASKGRAPH_PREFIX'", "key: no such property"),
    ):
        path = tmp_path / "app.bicep"
        path.write_text(source.replace(old, new), "utf-8")
        body = bicep.items(bicep.read(path).of("resource")["site"].body)
        del body["name"]
        models = importlib.import_module("azure.mgmt.web.models")
        (wrong,) = unknown(body, models.Site, "azure.mgmt.web.models", "site")
        assert expected in wrong


def test_a_property_that_no_older_model_knows_is_seen(tmp_path: Path) -> None:
    source = (DEPLOY / "infra" / "access.bicep").read_text("utf-8")
    path = tmp_path / "access.bicep"
    path.write_text(source.replace("    principalType: 'ServicePrincipal'", "    principalKind: 'Robot'"), "utf-8")
    body = bicep.items(bicep.read(path).of("resource")["appOnInsights"].body)
    own = {key: node for key, node in body.items() if key not in OF_BICEP}
    module, name, _ = MODELS["Microsoft.Authorization/roleAssignments"]
    model = getattr(importlib.import_module(module), name)
    assert unknown(own, model, module, "role") == ["role.properties.principalKind: no such property of role.properties"]


def test_roles_are_what_their_names_say() -> None:
    named = {
        key: bicep.literal(node)
        for key, node in bicep.items(FILES["access.bicep"].of("variable")["roles"].node.named_children[-1]).items()
    }
    assert named == {key: ROLES[key] for key in named}
    assert all(str(uuid.UUID(value)) == value for value in ROLES.values())
    source = FILES["access.bicep"].path.read_text("utf-8")
    given = set(re.findall(r"roles\['([^']+)'\]", source)) | set(listed("appRoles")) | set(listed("personRoles"))
    assert given == set(named), "a role that is named and never given, or the other way round"
    assert not [name for file in FILES.values() for name in file.of("resource") if "Owner" in name]


def listed(variable: str) -> list[str]:
    node = FILES["access.bicep"].of("variable")[variable].node.named_children[-1]
    return [bicep.literal(each) or "" for each in bicep.elements(node)]


def test_a_worker_gets_no_more_than_it_needs() -> None:
    """Rows of the one table, messages of its own queues, logs, telemetry: each on the thing itself, not the account."""
    resources = FILES["access.bicep"].of("resource")
    scopes = {
        name: bicep.text(bicep.items(each.body)["scope"])
        for name, each in resources.items()
        if "scope" in bicep.items(each.body)
    }
    assert {name for name, scope in scopes.items() if scope == "account"} == {"appOnAccount", "personOnAccount"}
    assert {scope for name, scope in scopes.items() if name.startswith("worker")} == {
        "table",
        "logContainer",
        "workQueue[index]",
        "workPoisonQueue[index]",
        "eventQueue[index]",
        "insights",
    }


def app_settings() -> dict[str, Node]:
    site = bicep.items(FILES["app.bicep"].of("resource")["site"].body)
    config = bicep.items(bicep.items(site["properties"])["siteConfig"])
    pairs = [bicep.items(each) for each in bicep.elements(config["appSettings"])]
    return {bicep.literal(pair["name"]) or "": pair["value"] for pair in pairs}


def test_the_app_is_set_by_names_that_the_code_reads() -> None:
    """Each setting is read, and those that are read are enough to find the store by."""
    names = set(app_settings())
    own = {settings.PREFIX_VARIABLE, settings.QUEUES_VARIABLE, functions.SWEEP_VARIABLE}
    ends = {f"{settings.HOST_VARIABLE}__{kind}ServiceUri" for kind in ("blob", "queue", "table")}
    identity = {f"{settings.HOST_VARIABLE}__credential", f"{settings.HOST_VARIABLE}__clientId"}
    http = {functions.HTTP_VARIABLE, entra.TENANT_VARIABLE, entra.AUDIENCE_VARIABLE}
    assert names == own | http | ends | identity | HOST_SETTINGS
    environ = {name: bicep.literal(node) or "" for name, node in app_settings().items()}
    environ |= {name: f"https://account.{name.split('__')[1][:5].rstrip('S')}.core.windows.net/" for name in ends}
    environ |= {settings.PREFIX_VARIABLE: "", settings.QUEUES_VARIABLE: "", f"{settings.HOST_VARIABLE}__clientId": "me"}
    found = settings.read_connection(environ, cwd=Path("/nowhere"))
    assert (found.managed_identity, found.client_id, found.table_endpoint) == (
        True,
        "me",
        environ[f"{settings.HOST_VARIABLE}__tableServiceUri"],
    )


def test_a_worker_of_a_job_is_started_by_words_and_names_that_it_knows() -> None:
    """Its options, its variables, and the queue whose length starts it."""
    job = bicep.items(bicep.items(FILES["workers.bicep"].of("resource")["job"].body)["properties"])
    (container,) = map(bicep.items, bicep.elements(bicep.items(job["template"])["containers"]))
    words = [bicep.literal(each) or "gpu" for each in bicep.elements(container["args"])]
    assert words == ["worker", "--target", "gpu", "--until-idle", "60"]
    command = typer.main.get_command(app).commands[words[0]]  # type: ignore[attr-defined]
    given = command.make_context("worker", list(words[1:]), resilient_parsing=True).params
    assert (given["target"], given["until_idle"]) == (["gpu"], 60)
    names = {bicep.literal(bicep.items(each)["name"]) for each in bicep.elements(container["env"])}
    assert names == {settings.STORE_VARIABLE, settings.PREFIX_VARIABLE, settings.QUEUES_VARIABLE, "AZURE_CLIENT_ID"}
    scale = bicep.items(bicep.items(bicep.items(job["configuration"])["eventTriggerConfig"])["scale"])
    (rule,) = map(bicep.items, bicep.elements(scale["rules"]))
    assert bicep.literal(rule["type"]) == "azure-queue"
    queue = bicep.text(bicep.items(rule["metadata"])["queueName"]).strip("'")
    assert queue.replace("${prefix}", "builds").replace("${target}", "gpu") == QueueNames("builds").work("gpu")


def allowed(file: bicep.File, name: str) -> list[str]:
    return [bicep.literal(each) or bicep.text(each) for each in bicep.elements(param(file, name).decorators["allowed"])]


def param(file: bicep.File, name: str) -> bicep.Declaration:
    return file.of("parameter")[name]


def default(name: str) -> str:
    node = param(MAIN, name).default
    assert node is not None
    return bicep.literal(node) or bicep.text(node)


def test_the_parameters_allow_what_the_code_allows() -> None:
    assert default("prefix") == settings.DEFAULT_PREFIX
    environ = {settings.PREFIX_VARIABLE: "a" * int(bicep.text(param(MAIN, "prefix").decorators["maxLength"]))}
    for queues in allowed(MAIN, "queues"):
        settings.read_settings(None, {**environ, settings.QUEUES_VARIABLE: queues}, cwd=Path("/nowhere"))
    for seconds in allowed(MAIN, "sweepSeconds"):
        functions.read_bindings({functions.SWEEP_VARIABLE: seconds})
    assert int(default("sweepSeconds")) == functions.SWEEP_SECONDS_DEFAULT
    for word in allowed(MAIN, "http"):
        functions.read_bindings({functions.HTTP_VARIABLE: word})
    assert functions.read_bindings({functions.HTTP_VARIABLE: default("http")}).http == ""
    assert (
        functions.read_bindings({}).events
        == functions.read_bindings({settings.QUEUES_VARIABLE: default("queues")}).events
    )
    assert default("allowSharedKeyAccess") == "false"


def names_of(queues: str, prefix: str, targets: list[str]) -> dict[str, list[str]]:
    """What storage.bicep calls its queues, by a reading of its expressions."""
    variables = {
        name: bicep.text(each.node.named_children[-1]) for name, each in FILES["storage.bicep"].of("variable").items()
    }
    kinds = json.loads(variables["kinds"].replace("'", '"'))
    patterns = {
        name: re.fullmatch(r"\[for (\w+) in (\w+): '(.*)'\]", variables[name])
        for name in ("ownQueueNames", "poisonQueues")
    }
    lists: dict[str, list[str]] = {"kinds": kinds, "targets": targets}
    common = re.fullmatch(
        r"concat\(\['(.*)'\], queues == '([\w-]+)' \? ownQueueNames : \[\]\)", variables["eventQueues"]
    )
    assert common is not None

    def fill(name: str) -> list[str]:
        pattern = patterns[name]
        assert pattern is not None, variables[name]
        variable, source, written = pattern.groups()
        return [written.replace("${prefix}", prefix).replace(f"${{{variable}}}", each) for each in lists[source]]

    lists["eventQueues"] = [common[1].replace("${prefix}", prefix)]
    lists["eventQueues"] += fill("ownQueueNames") if queues == common[2] else []
    levels = json.loads(variables["levels"].replace("'", '"'))
    each = "'${prefix}-${levels[n % length(levels)]}-${targets[n / length(levels)]}'"
    assert variables["workQueues"] == f"[for n in range(0, length(levels) * length(targets)): {each}]"
    numbers = range(len(levels) * len(targets))
    lists["workQueues"] = [f"{prefix}-{levels[n % len(levels)]}-{targets[n // len(levels)]}" for n in numbers]
    assert variables["takenQueues"] == "concat(eventQueues, workQueues)"
    lists["takenQueues"] = lists["eventQueues"] + lists["workQueues"]
    lists["poisonQueues"] = fill("poisonQueues")
    return lists


@pytest.mark.parametrize("queues", ["one", "per-operation"])
def test_queues_table_and_container_are_those_that_the_code_uses(queues: str) -> None:
    found = names_of(queues, "abc", ["default", "gpu-1"])
    names = QueueNames("abc", queues == "per-operation")
    assert tuple(found["eventQueues"]) == names.received
    assert tuple(found["kinds"]) == messages.EVENT_TYPES
    assert found["workQueues"] == [names.work(target, level) for target in ("default", "gpu-1") for level in LEVELS]
    assert found["poisonQueues"] == [names.poison(queue) for queue in found["takenQueues"]]
    assert all(re.fullmatch(limits.TARGET_PATTERN, each) for each in ("default", "gpu-1"))
    resources = FILES["storage.bicep"].of("resource")
    assert bicep.literal(bicep.items(resources["logContainer"].body)["name"]) == logs.CONTAINER
    assert bicep.text(bicep.items(resources["table"].body)["name"]) == "prefix"
    made = resources["queue"].node.named_children[-1]
    assert bicep.text(made.named_children[1]) == "concat(takenQueues, poisonQueues)"


def test_the_parameters_file_fits_the_template() -> None:
    given = json.loads((DEPLOY / "infra" / "main.parameters.json").read_text("utf-8"))["parameters"]
    declared = MAIN.of("parameter")
    assert set(given) <= set(declared)
    assert {name for name, each in declared.items() if each.default is None} <= set(given)
    for name, value in given.items():
        # azd puts text there: what is no text is set in the file.
        assert declared[name].type_name == "string"
        variable = re.fullmatch(r"\$\{([A-Z_]+)(?:=([\w-]*))?\}", value["value"])
        assert variable, value
        if variable[2] is not None:
            assert variable[2] == default(name)


def test_azd_finds_what_it_is_told() -> None:
    told = yaml.safe_load((DEPLOY / "azure.yaml").read_text("utf-8"))
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", told["name"])
    assert (DEPLOY / told["infra"]["path"] / f"{told['infra']['module']}.bicep").is_file()
    ((name, service),) = told["services"].items()
    assert service["host"] == "function"
    assert service["language"] == "python"
    assert service["remoteBuild"] is False
    project = (DEPLOY / service["project"]).resolve()
    assert (project / "function_app.py").is_file()
    tags = bicep.text(bicep.items(FILES["app.bicep"].of("resource")["site"].body)["tags"])
    assert f"'azd-service-name': '{name}'" in tags
    assert set(service) == {"host", "language", "project", "dist", "remoteBuild", "hooks"}
    hook = service["hooks"]["prepackage"]
    assert {name: (set(system), system["shell"]) for name, system in hook.items()} == {
        "posix": ({"shell", "run"}, "sh"),
        "windows": ({"shell", "run"}, "pwsh"),
    }
    for system in hook.values():
        command = system["run"].removeprefix("bash ").split()
        assert os.access(project / command[0], os.X_OK)
        assert command[1:] == ["--into", service["dist"]], "azd takes what the hook lays out"
    ignored = (ROOT / ".gitignore").read_text("utf-8").splitlines()
    assert f"{service['dist'].partition('/')[0]}/" in ignored
    assert ".azure/" in ignored, "azd keeps what it is told there, secrets among it"


def test_azd_says_what_to_export() -> None:
    outputs = MAIN.of("output")
    assert {settings.STORE_VARIABLE, settings.PREFIX_VARIABLE, settings.QUEUES_VARIABLE} <= set(outputs)
    page = (ROOT / "docs" / "how-to" / "deployment.md").read_text("utf-8")
    assert [name for name in outputs if name not in page] == []
    assert [name for name in MAIN.of("parameter") if f"`{name}`" not in page] == []
