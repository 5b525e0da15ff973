# Shared by the scripts: finding Python and making environments. Sourced, never run.
# shellcheck shell=bash

say() { printf '== %s\n' "$*"; }

die() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

# Print a command as one could type it, then run it.
show() {
    local word line=+
    for word in "$@"; do
        [[ $word =~ ^[A-Za-z0-9_./=:,@%+-]+$ ]] || word=$(printf %q "$word")
        line+=" $word"
    done
    echo "$line"
    "$@"
}

# Print the path of Python "$1" if it is >= 3.10 and can make environments; otherwise
# fail and print why not.
suits() {
    "$1" - 2>&1 <<'PYTHON'
import sys
from importlib.util import find_spec

if sys.version_info < (3, 10):
    sys.exit("is older than 3.10")
if not find_spec("ensurepip") and not find_spec("virtualenv"):
    sys.exit("has neither ensurepip (apt install python3-venv) nor virtualenv")
# Inside an environment: the Python that it came from, for it may be about to be cleared.
print(sys._base_executable if find_spec("ensurepip") else sys.executable)
PYTHON
}

# Print the Python to make environments with: $PYTHON, or the first that suits.
find_python() {
    local candidate answer tried=""
    local -a candidates=(python3.13 python3.12 python3.11 python3.10 python3)
    if [ -n "${PYTHON:-}" ]; then candidates=("$PYTHON"); fi
    for candidate in "${candidates[@]}"; do
        command -v "$candidate" >/dev/null || continue
        if answer=$(suits "$candidate"); then
            echo "$answer"
            return
        fi
        tried+="; $candidate ${answer%%$'\n'*}"
    done
    die "found no Python >= 3.10${PYTHON:+ (PYTHON=$PYTHON)}${tried:-; looked for ${candidates[*]}}"
}

# Print what an environment depends on: it is made anew when this changes.
fingerprint() {
    { "$1" -VV; pwd; cat setup.py pyproject.toml collectives/_version.py; } | cksum
}

# folder_of MPI: print where its environment is.
folder_of() {
    if [ "$1" = mpich ]; then echo .venv; else echo ".venv-$1"; fi
}

# environment FOLDER EXTRA...: make the environment, or add what it lacks; without any
# use of the network when it is up to date.
environment() {
    local folder=$1 python stamp have="" want extra lacking=""
    shift
    python=$(find_python)
    want=$(fingerprint "$python")
    stamp=$folder/ringfold-stamp # line 1: fingerprint; line 2: installed extras
    mkdir -p "$folder"
    # Two scripts at once must not make the same environment.
    exec {lock}>"$folder.lock"
    if command -v flock >/dev/null; then flock "$lock"; fi
    if [ -f "$stamp" ] && [ "$(head -n 1 "$stamp")" = "$want" ]; then
        have=$(tail -n 1 "$stamp")
    else
        say "making $folder with $python"
        make_venv "$python" "$folder"
    fi
    for extra in "$@"; do
        case " $have " in *" $extra "*) ;; *) lacking+=" $extra" ;; esac
    done
    if [ -n "$lacking" ]; then
        have="${have:+$have }${lacking# }"
        say "installing ringfold[${have// /,}] into $folder (needs the network, once)"
        "$folder/bin/python" -m pip install --quiet --disable-pip-version-check \
            -e ".[${have// /,}]" || die "pip could not install ringfold[${have// /,}]"
        printf '%s\n' "$want" "$have" >"$stamp"
    fi
    exec {lock}>&-
}

# make_venv PYTHON FOLDER: an empty environment with pip in it.
make_venv() {
    if "$1" -c 'import ensurepip' 2>/dev/null; then
        "$1" -m venv --clear "$2"
    else
        "$1" -m virtualenv --quiet --clear "$2"
    fi || die "could not make an environment in $2"
}
