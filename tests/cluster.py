"""A Kubernetes of one node, by its own programs, for as long as somebody needs it: `scripts/cluster` builds them.

python -m tests.cluster COMMAND…    run a command beside one
"""

import hashlib
import io
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

PROGRAMS: Final = Path(__file__).parent.parent / "build" / "cluster" / "bin"
IMAGE: Final = "localhost/tiny:1"
"""Of busybox."""

_PAUSE: Final = "localhost/pause:1"
_APPLETS: Final = ("cat", "echo", "env", "false", "ls", "pwd", "seq", "sh", "sleep", "true")
_NODE_ADDRESS: Final = "198.18.0.1"  # for measurements on one machine (RFC 2544): a kubelet takes no 127.0.0.1
_TOKEN: Final = "the-token-of-a-test"
_START_SECONDS: Final = 60


def free_port(address: str = "127.0.0.1") -> int:
    with socket.socket() as found:
        found.bind((address, 0))
        return int(found.getsockname()[1])


class Cluster:
    """The folder of a cluster, and its programs. kubeconfig: of somebody who may do everything."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kubeconfig = folder / "kubeconfig"
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._arguments: dict[str, list[str]] = {}
        self._port = free_port()
        self._networks = _networks()

    def start(self, program: str, *arguments: str) -> None:
        """Start it, with the arguments of before where none are given."""
        if arguments:
            self._arguments[program] = list(arguments)
        with (self.folder / f"{program}.log").open("ab") as log:
            self._running[program] = subprocess.Popen(
                [str(PROGRAMS / program), *self._arguments[program]],
                cwd=self.folder,
                env={**os.environ, "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def stop(self, program: str) -> None:
        one = self._running.pop(program, None)
        if one is None:
            return
        one.terminate()
        try:
            one.wait(30)
        except subprocess.TimeoutExpired:
            one.kill()
            one.wait()

    def ask(self, path: str) -> Any:
        request = urllib.request.Request(
            f"https://127.0.0.1:{self._port}{path}", headers={"Authorization": f"Bearer {_TOKEN}"}
        )
        context = ssl.create_default_context(cafile=str(self.folder / "certs" / "apiserver.crt"))
        try:
            with urllib.request.urlopen(request, context=context, timeout=10) as answer:  # noqa: S310 - of this machine
                text = answer.read().decode()
        except urllib.error.HTTPError as error:
            error.close()
            raise
        return json.loads(text) if text.startswith("{") else text

    def until(self, look: Callable[[], bool], what: str) -> None:
        """Raises TimeoutError, and RuntimeError where a program has ended."""
        last: object = None
        until = time.monotonic() + _START_SECONDS
        while time.monotonic() < until:
            try:
                if look():
                    return
            except (OSError, ValueError) as error:
                last = error
            for program, one in self._running.items():
                if one.poll() is not None:
                    raise RuntimeError(f"{program} has ended: {self.folder / program}.log says why")
            time.sleep(0.2)
        raise TimeoutError(f"of the cluster in {self.folder}, {what} in vain: {last}")

    def until_it_answers(self) -> None:
        self.until(lambda: self.ask("/readyz") == "ok", "its server was waited for")

    def _is_ready(self) -> bool:
        nodes = self.ask("/api/v1/nodes")["items"]
        said = [each["status"] for node in nodes for each in node["status"]["conditions"] if each["type"] == "Ready"]
        return said == ["True"] and bool(self.ask("/api/v1/namespaces/default/serviceaccounts")["items"])

    def start_all(self) -> None:
        folder, etcd = self.folder, f"http://127.0.0.1:{free_port()}"
        peers = f"http://127.0.0.1:{free_port()}"
        subprocess.run(["openssl", "genrsa", "-out", "sa.key", "2048"], cwd=folder, check=True, capture_output=True)
        (folder / "tokens.csv").write_text(f"{_TOKEN},admin,admin,system:masters\n")
        self._configure()
        listening = ["--listen-client-urls", etcd, "--advertise-client-urls", etcd, "--listen-peer-urls", peers]
        self.start(
            "etcd",
            *("--data-dir", "etcd", "--unsafe-no-fsync", *listening),
            *("--initial-advertise-peer-urls", peers, "--initial-cluster", f"default={peers}"),
        )
        self.start("containerd", "--config", "containerd.toml")
        keys = ("--service-account-signing-key-file", "sa.key", "--service-account-key-file", "sa.key")
        self.start(
            "kube-apiserver",
            *("--etcd-servers", etcd, "--bind-address", "127.0.0.1", "--secure-port", str(self._port)),
            *("--insecure-port", "0", "--cert-dir", "certs", "--token-auth-file", "tokens.csv"),
            *("--authorization-mode", "RBAC", "--service-cluster-ip-range", "198.19.0.0/24"),
            *("--service-account-issuer", "https://kubernetes.default", *keys),
            *("--feature-gates", "TTLAfterFinished=true", "--kubelet-preferred-address-types", "InternalIP"),
        )
        self.until_it_answers()
        own = ("--kubeconfig", "kubeconfig", "--leader-elect=false", "--port", "0", "--bind-address", "127.0.0.1")
        self.start(
            "kube-controller-manager",
            *(*own, "--secure-port", str(free_port()), "--cert-dir", "controllers"),
            *("--service-account-private-key-file", "sa.key", "--feature-gates", "TTLAfterFinished=true"),
        )
        self.start("kube-scheduler", *own, "--secure-port", str(free_port()), "--cert-dir", "scheduler")
        self._bring_images()
        self.start(
            "kubelet",
            *("--config", "kubelet.yaml", "--kubeconfig", "kubeconfig", "--root-dir", str(folder / "kubelet")),
            *("--container-runtime", "remote", "--hostname-override", "node", "--node-ip", _NODE_ADDRESS),
            *("--container-runtime-endpoint", f"unix://{folder}/containerd.sock", "--cert-dir", str(folder / "node")),
        )
        self.until(self._is_ready, "its node was waited for")

    def _configure(self) -> None:
        folder = self.folder
        server = {"server": f"https://127.0.0.1:{self._port}", "certificate-authority": f"{folder}/certs/apiserver.crt"}
        config: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": server}],
            "users": [{"name": "u", "user": {"token": _TOKEN}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        self.kubeconfig.write_text(json.dumps(config))
        kubelet = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},  # its address is of this machine alone
            "address": _NODE_ADDRESS,
            "port": free_port(_NODE_ADDRESS),
            "healthzPort": 0,
            "cgroupDriver": "cgroupfs",
            "enforceNodeAllocatable": [],
            "failSwapOn": False,
            "evictionHard": {"memory.available": "1Mi"},
        }
        (folder / "kubelet.yaml").write_text(json.dumps(kubelet))
        (folder / "cni").mkdir()
        ipam = {"type": "host-local", "subnet": "198.18.1.0/24", "dataDir": str(folder / "ipam")}
        network = {"cniVersion": "0.4.0", "name": "pods", "type": "ptp", "ipam": ipam}
        (folder / "cni" / "10-pods.conf").write_text(json.dumps(network))
        (folder / "containerd.toml").write_text(
            f"""\
version = 2
root = "{folder}/containerd"
state = "{folder}/state"
[grpc]
  address = "{folder}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{_PAUSE}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{folder}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
"""
        )

    def _bring_images(self) -> None:
        for name, command in ((_PAUSE, ["sleep", "1000000000"]), (IMAGE, ["sh"])):
            (self.folder / "image.tar").write_bytes(_image(name, command))
            self.ctr("images", "import", "image.tar")

    def ctr(self, *words: str, check: bool = True) -> str:
        address = str(self.folder / "containerd.sock")
        until = time.monotonic() + _START_SECONDS
        while not os.path.exists(address) and time.monotonic() < until:
            time.sleep(0.1)
        command = [str(PROGRAMS / "ctr"), "--address", address, "--namespace", "k8s.io", *words]
        return subprocess.run(command, cwd=self.folder, check=check, capture_output=True, text=True).stdout

    def stop_all(self) -> None:
        """Ends what runs in containers too, and takes the mounts of pods away; each of it, whatever of it fails."""
        with ExitStack() as stack:  # from the last line up
            stack.callback(self._unmount)
            stack.callback(self.stop, "containerd")
            stack.callback(self._remove_containers)
            for program in ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet"):
                stack.callback(self.stop, program)

    def _remove_containers(self) -> None:
        for task in self.ctr("tasks", "list", "--quiet").split():
            self.ctr("tasks", "delete", "--force", task, check=False)  # it ends as the task did
        for container in self.ctr("containers", "list", "--quiet").split():
            self.ctr("containers", "delete", container)
        for network in _networks() - self._networks:  # the pairs of interfaces go with them
            subprocess.run(["ip", "netns", "delete", network], check=True)

    def _unmount(self) -> None:
        mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        for mount in sorted((each for each in mounts if each.startswith(f"{self.folder}/")), reverse=True):
            subprocess.run(["umount", "--lazy", mount], check=True)


def _networks() -> set[str]:
    """Networks of pods, of whatever cluster of this machine."""
    return {each.name for each in Path("/run/netns").glob("cni-*")}


def _image(name: str, command: list[str]) -> bytes:
    """An image of busybox, as `docker save` would write it."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for folder, mode in (("bin", 0o755), ("tmp", 0o1777), ("dev", 0o755), ("proc", 0o755), ("sys", 0o755)):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, mode
            tar.addfile(entry)
        tar.add("/bin/busybox", "bin/busybox")
        for applet in _APPLETS:
            entry = tarfile.TarInfo(f"bin/{applet}")
            entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(entry)
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Env": ["PATH=/bin"], "Cmd": command},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer.getvalue()).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    files = {
        "config.json": json.dumps(config).encode(),
        "layer.tar": layer.getvalue(),
        "manifest.json": json.dumps(manifest).encode(),
    }
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as tar:
        for path, data in files.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return whole.getvalue()


@contextmanager
def _node_address() -> Iterator[None]:
    """An address of this machine alone, as long as it is needed."""
    change = ["ip", "address", "add", f"{_NODE_ADDRESS}/32", "dev", "lo"]
    subprocess.run(change, check=True, capture_output=True)
    try:
        yield
    finally:
        subprocess.run([word if word != "add" else "delete" for word in change], check=True, capture_output=True)


@contextmanager
def cluster() -> Iterator[Cluster]:
    """A cluster that is ready. Its folder stays where it could not be started, for its logs."""
    if not PROGRAMS.is_dir():
        raise RuntimeError("there is no Kubernetes here: scripts/cluster --install builds it")
    with ExitStack() as stack:
        stack.enter_context(_node_address())
        made = Cluster(Path(tempfile.mkdtemp(prefix="taskgraph-cluster-")))
        stack.callback(made.stop_all)
        made.start_all()
        yield made
        stack.close()
        shutil.rmtree(made.folder)


def main() -> int:
    with cluster() as made:
        return subprocess.run(
            sys.argv[1:], env={**os.environ, "KUBECONFIG": str(made.kubeconfig)}, check=False
        ).returncode


if __name__ == "__main__":
    sys.exit(main())
