"""Helm, as the library in an environment of its own that `scripts/lib.sh` brings: one call in a process of its own."""

import json
import subprocess
from pathlib import Path
from typing import Any, Final

from tests.e2e.processes import ROOT

CHART: Final = ROOT / "deploy" / "helm" / "taskgraph"
_PYTHON: Final = ROOT / ".venv-helm" / "bin" / "python"

_LINT: Final = "said = helm.lint(chart, values, strict=True)['messages']"
_RENDER: Final = "said = helm.Chart.load(chart).render(values, name='demo', namespace='batch')"
_INSTALL: Final = "said = helm.Config(kubeconfig_path=kubeconfig).install(chart, 'demo', values, namespace='default')"


def _ask(what: str, values: dict[str, Any], kubeconfig: str = "") -> Any:
    """Raises RuntimeError with what Helm says."""
    program = f"""\
import helm_python as helm, json, sys
chart, values, kubeconfig = json.load(sys.stdin)
try:
    {what}
except helm.HelmError as error:
    sys.exit(str(error))
json.dump(said, sys.stdout)
"""
    given = json.dumps([str(CHART), values, kubeconfig])
    done = subprocess.run([str(_PYTHON), "-c", program], input=given, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout)


def lint(values: dict[str, Any]) -> list[str]:
    """What is wrong with the chart, and these values."""
    return [each["error"] for each in _ask(_LINT, values) if each["severity"] > 1]


def render(values: dict[str, Any]) -> dict[str, str]:
    """Manifests by the name of their template."""
    texts: dict[str, str] = _ask(_RENDER, values)
    return {Path(name).name: text for name, text in texts.items()}


def install(values: dict[str, Any], kubeconfig: Path) -> None:
    """Into a cluster, as the release `demo`."""
    _ask(_INSTALL, values, str(kubeconfig))
