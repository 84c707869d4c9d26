# What the other scripts share: finding Python, and setting up .venv and node_modules once. To be sourced.
# The caller has set `root`, the folder of the repository. Words go to stderr: stdout is the caller's.

venv="$root/.venv"
# What an installation is made of beside the modules, which it has from the checkout itself.
installed_from=("$root/pyproject.toml" "$root/functions_host/pyproject.toml" "$root/hatch_build.py"
    "$root/taskgraph/worker/executors/starter.c")

say() {
    printf 'taskgraph: %s\n' "$*" >&2
}

die() {
    say "$*"
    exit 69 # the machine lacks something; none of taskgraph's own exit codes
}

# A stamp NAME-CHECKSUM says: all that the FILEs ask for is installed. Any change of them asks again.
checksum() {
    local sum
    sum=$(cat "$@" | cksum) || die "cannot read $*"
    printf '%s' "${sum%% *}"
}

recent_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

find_python() {
    local candidate
    for candidate in ${PYTHON:+"$PYTHON"} python3 python3.14 python3.13 python3.12 python3.11 python; do
        if command -v "$candidate" >/dev/null && recent_enough "$candidate"; then
            printf '%s' "$candidate"
            return
        fi
    done
    candidate=$(python3 --version 2>/dev/null || echo 'no python3')
    die "needs Python 3.11 or later, and found $candidate. Install one, or name it: PYTHON=/path/to/python $0"
}

# lock PYTHON [FILE]: hold the lock of a file until `unlock`, so that two scripts that start at once do not install into
# each other. By Python, as not every system has flock(1); the lock belongs to descriptor 9, which outlives the process
# that takes it.
lock() {
    local file=${2:-$root/pyproject.toml}
    exec 9<"$file"
    "$1" -c 'import fcntl; fcntl.flock(9, fcntl.LOCK_EX)' || die "cannot lock $file"
}

unlock() {
    exec 9<&-
}

# progress: of what pip says, on a terminal one line that counts packages; and all that is wrong.
progress() {
    local line found=0
    show() {
        [[ ! -t 2 ]] || printf '\r\033[K%s' "$1" >&2
    }
    while IFS= read -r line; do
        case $line in
        Collecting\ *)
            found=$((found + 1))
            line=${line#Collecting }
            show "taskgraph: $found packages found, ${line%%[ (<>=!~;]*}"
            ;;
        Installing\ collected*) show "taskgraph: installing $found packages" ;;
        *rror* | *ERROR*)
            show ''
            printf '%s\n' "$line" >&2
            ;;
        esac
    done
    show ''
}

# install WHAT STAMP ARGUMENT…: bring .venv about, and pip's ARGUMENTs into it, unless the stamp says that it is so.
install() {
    local what=$1 done_stamp=$2 python
    shift 2
    [[ -e $done_stamp && -x $venv/bin/python ]] && return
    python=$(find_python)
    lock "$python"
    if [[ ! -e $done_stamp || ! -x $venv/bin/python ]]; then # no other run has done it meanwhile
        say "installing $what into $venv (once; a minute or two; interrupted, it goes on the next time)"
        # Interrupted while it was made, an environment has an interpreter, and no pip that starts.
        if ! recent_enough "$venv/bin/python" || ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
            rm -rf "$venv"
            "$python" -m venv "$venv" >&2 || {
                rm -rf "$venv"
                die "cannot make $venv with $python. On Debian and Ubuntu: apt-get install python3-venv"
            }
        fi
        "$venv/bin/python" -m pip install --disable-pip-version-check --progress-bar off "$@" 2>&1 9<&- | progress ||
            die "pip could not install $what, for the reason above. Running this again goes on from here"
        rm -f "${done_stamp%-*}"-[0-9]*
        : >"$done_stamp"
    fi
    unlock
}

install_package() {
    local sum
    sum=$(checksum "${installed_from[@]}")
    [[ -e $venv/.taskgraph-dev-$sum && -x $venv/bin/python ]] && return # the tools come with it
    install taskgraph "$venv/.taskgraph-$sum" --editable "$root" --editable "$root/functions_host"
}

install_tools() {
    local sum
    sum=$(checksum "${installed_from[@]}")
    # Two steps: an older pip cannot read dependency groups.
    install 'a recent pip' "$venv/.taskgraph-pip-1" 'pip>=25.1'
    install 'taskgraph and its development tools' "$venv/.taskgraph-dev-$sum" \
        --editable "$root" --editable "$root/functions_host" --group "$root/pyproject.toml:dev"
}

# The storage emulator, at exactly the locked versions.
install_emulator() {
    local done_stamp
    [[ -e $root/package-lock.json ]] || die "package-lock.json is missing: the emulator's version is locked there"
    done_stamp=$root/node_modules/.taskgraph-$(checksum "$root/package-lock.json")
    [[ -e $done_stamp ]] && return
    command -v npm >/dev/null || die "needs Node.js with npm, for the storage emulator that the tests run against"
    lock "$venv/bin/python"
    if [[ ! -e $done_stamp ]]; then
        say "installing the storage emulator into $root/node_modules (once; a minute)"
        (cd "$root" && npm ci --no-audit --no-fund --loglevel=error >&2 9<&-) ||
            die "npm could not install the storage emulator, for the reason above"
        : >"$done_stamp"
    fi
    unlock
}

# What the page is made with and of, at exactly the locked versions. Its lock is its own: it is installed beside the rest.
install_page_tools() {
    local web=$root/web done_stamp python
    done_stamp=$web/node_modules/.taskgraph-$(checksum "$web/package-lock.json")
    [[ -e $done_stamp ]] && return
    command -v npm >/dev/null || die "needs Node.js with npm, to build the page. On Debian and Ubuntu: apt-get install npm"
    python=$(find_python)
    lock "$python" "$web/package.json"
    if [[ ! -e $done_stamp ]]; then
        say "installing the tools of the page into $web/node_modules (once; some seconds)"
        (cd "$web" && npm ci --no-audit --no-fund --loglevel=error >&2 9<&-) ||
            die "npm could not install the tools of the page, for the reason above"
        : >"$done_stamp"
    fi
    unlock
}

apt_install() {
    DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes --no-install-recommends "$@" >&2
}

# A browser for the tests of the page. Where there is none, and it cannot be installed here, they say so.
install_chromium() {
    local name
    for name in "${TASKGRAPH_TEST_CHROMIUM:-chromium}" chromium-browser google-chrome-stable google-chrome; do
        command -v "$name" >/dev/null && return
    done
    if ((EUID == 0)) && command -v apt-get >/dev/null; then
        say "installing chromium by apt-get (once; a minute, 400 MB)"
        # Where lists of packages are there already they will do, and are not always allowed to be fetched again.
        apt_install chromium fonts-dejavu-core || { apt-get -qq update && apt_install chromium fonts-dejavu-core; } >&2 ||
            die "apt-get could not install chromium, for the reason above"
    else
        die "needs Chromium, for the tests of the page: install it, or name one by TASKGRAPH_TEST_CHROMIUM"
    fi
}

# Containers for the tests of the executor `docker`: podman, which needs no daemon, and a shell to make an image of. And
# the checker of systemd's units.
install_containers() {
    command -v podman >/dev/null && command -v runc >/dev/null && [[ -x /bin/busybox ]] &&
        command -v systemd-analyze >/dev/null && return
    if ((EUID == 0)) && command -v apt-get >/dev/null; then
        say "installing podman by apt-get (once; 100 MB)"
        apt_install podman runc busybox-static systemd || die "apt-get could not install podman, for the reason above"
    else
        die "needs podman, runc, busybox-static and systemd, for the tests of containers and units: install them"
    fi
}

# Helm, as the library that its command line is made of, by which the tests look at the chart. It is 250 MB, of which they
# need one file, and needs no other package: it has an environment of its own.
install_helm() {
    local place=$root/.venv-helm version=0.2.2 done_stamp python
    done_stamp=$place/.taskgraph-$version
    [[ -e $done_stamp && -x $place/bin/python ]] && return
    python=$(find_python)
    lock "$python" "$root/deploy/helm/taskgraph/Chart.yaml"
    if [[ ! -e $done_stamp || ! -x $place/bin/python ]]; then
        say "installing Helm into $place (once; some seconds, 250 MB)"
        rm -rf "$place"
        "$python" -m venv "$place" >&2 || die "cannot make $place with $python"
        "$place/bin/python" -m pip install --quiet --quiet --disable-pip-version-check --only-binary :all: \
            "helm-python-sdk==$version" >&2 9<&- || die "pip could not install Helm, for the reason above"
        : >"$done_stamp"
    fi
    unlock
}

# Azure's own command line, by which the tests look at rows as people do. It pins what taskgraph does not, so it has an
# environment of its own, and a lock of its own: it is installed beside the emulator. Of its many modules only those
# that are used are compiled, when they are: half of the time and of the space.
install_azure_cli() {
    local place=$root/.venv-az version=2.91 done_stamp python
    done_stamp=$place/.taskgraph-$version
    [[ -e $done_stamp && -x $place/bin/az ]] && return
    python=$(find_python)
    lock "$python" "$root/scripts/lib.sh"
    if [[ ! -e $done_stamp || ! -x $place/bin/az ]]; then
        say "installing azure-cli $version into $place (once; a minute, 400 MB)"
        rm -rf "$place"
        "$python" -m venv "$place" >&2 || die "cannot make $place with $python"
        "$place/bin/python" -m pip install --quiet --quiet --disable-pip-version-check --no-compile \
            "azure-cli>=$version,<3" >&2 9<&- || die "pip could not install azure-cli, for the reason above"
        : >"$done_stamp"
    fi
    unlock
}

# Microsoft's library of the Functions worker, under which the tests run the function app. What is in it, and when it is
# as it should be, is known to the package itself: a user of `taskgraph functions start` has no scripts.
install_functions_worker() {
    "$venv/bin/python" -m taskgraph_functions_host.environment "$root/.venv-functions" 9<&- ||
        die "the function app cannot be run here, for the reason above"
}

# The clients of the old TaskCluster scheduler, as they were published, by which the tests speak to ours: that of 2017 for
# Python, and for Node that of 2017 and the first one, of 2014. What the one for Python pins for its asynchronous half,
# which is not used, does not build any more: it gets later versions of the rest.
install_old_client() {
    local place=$root/.venv-taskcluster version=1.3.5 done_stamp python each
    done_stamp=$place/.taskgraph-$version-node
    [[ -e $done_stamp && -x $place/bin/python ]] && return
    python=$(find_python)
    lock "$python" "$root/scripts/test"
    if [[ ! -e $done_stamp || ! -x $place/bin/python ]]; then
        say "installing clients of the old TaskCluster into $place (once; some seconds)"
        rm -rf "$place"
        "$python" -m venv "$place" >&2 || die "cannot make $place with $python"
        local pip=("$place/bin/python" -m pip install --quiet --quiet --disable-pip-version-check)
        "${pip[@]}" 'requests>=2.31,<3' 'mohawk>=1.1,<2' 'slugid>=2,<3' 'six>=1.16,<2' >&2 9<&- &&
            "${pip[@]}" --no-deps "taskcluster==$version" >&2 9<&- ||
            die "pip could not install taskcluster, for the reason above"
        for each in 2.5.4 0.4.3; do
            npm install --prefix "$place/node/$each" --no-audit --no-fund --no-package-lock --ignore-scripts \
                --loglevel=error "taskcluster-client@$each" >&2 9<&- ||
                die "npm could not install taskcluster-client $each, for the reason above"
        done
        : >"$done_stamp"
    fi
    unlock
}
