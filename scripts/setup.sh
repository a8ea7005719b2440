#!/usr/bin/env bash
# Makes .venv with everything in requirements.lock (hashes checked) and the command `autotuner` in it.
# A second call finds nothing changed and returns at once. Two calls at the same time take turns.
#   PYTHON=/path/to/python3.12   picks the interpreter (Python >= 3.11); otherwise one is found
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

venv=.venv
stamp=$venv/.setup-done

# A virtual environment does not survive being moved, nor another interpreter.
place() { printf '%s %s' "$(printf '%s' "$PWD" | cksum)" "${PYTHON:-found}"; }

# What is installed into it: the lock, and the project's own metadata (the tools' part of pyproject.toml is not).
contents() { { cat requirements.lock; sed '/^# ---- tools/,$d' pyproject.toml; } | cksum; }

stamped() { [ "$(sed -n "$1p" "$stamp" 2>/dev/null)" = "$2" ]; }
reusable() { stamped 1 "$(place)" && "$venv/bin/python" -c '' 2>/dev/null; }
up_to_date() { [ -x "$venv/bin/autotuner" ] && stamped 2 "$(contents)" && reusable; }

# Good enough: starts, is new enough, and can make a virtual environment with pip in it.
usable() { "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
    local candidate
    if [ -n "${PYTHON:-}" ]; then
        usable "$PYTHON" && { printf '%s\n' "$PYTHON"; return; }
        echo "setup: PYTHON=$PYTHON is not a Python >= 3.11 with the modules venv and ensurepip." >&2
        return 1
    fi
    for candidate in python3.13 python3.12 python3.11 python3; do
        usable "$candidate" && { printf '%s\n' "$candidate"; return; }
    done
    cat >&2 <<'MESSAGE'
setup: no Python >= 3.11 with the modules venv and ensurepip was found
       (tried python3.13, python3.12, python3.11, python3).
       Debian, Ubuntu:  sudo apt-get install python3 python3-venv
       Elsewhere:       PYTHON=/path/to/python3.12 make setup
MESSAGE
    return 1
}

pip_install() { "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input --no-deps "$@"; }

# The lock is complete, so nothing is resolved (--no-deps). uv takes seconds where pip takes minutes; it comes
# out of the lock itself, so its hash is checked too. It trusts the machine's own certificates, as pip does. Where uv cannot reach an index that pip is configured for,
# pip does the work.
install_locked() {
    local only_uv
    only_uv=$(mktemp)
    sed -n '/^uv==/,/[^\\]$/p' requirements.lock >"$only_uv"
    if [ -s "$only_uv" ] && pip_install --require-hashes -r "$only_uv" \
        && UV_SYSTEM_CERTS=true "$venv/bin/uv" pip install --quiet --compile-bytecode --python "$venv/bin/python" --require-hashes --no-deps -r requirements.lock
    then
        rm -f "$only_uv"
        return
    fi
    rm -f "$only_uv"
    echo "setup: installing with pip instead of uv, which takes longer"
    pip_install --require-hashes -r requirements.lock
}

up_to_date && exit 0

if command -v flock >/dev/null 2>&1; then
    exec 9>.setup.lock
    flock 9
    up_to_date && exit 0
fi

started=$SECONDS
if reusable; then
    echo "setup: bringing $venv up to date"
else
    python=$(find_python)
    echo "setup: making $venv with $("$python" --version 2>&1)"
    "$python" -m venv --clear "$venv"
fi
rm -f "$stamp"
install_locked
pip_install --no-build-isolation --editable .
printf '%s\n%s\n' "$(place)" "$(contents)" >"$stamp"
echo "setup: done in $((SECONDS - started)) s"
