#!/usr/bin/env bash
# All tests: first those that start no process, on every processor; then, one after the other, those that measure real
# servers and must not be disturbed. Arguments go to pytest; with a selection of markers (-m) there is one run.
# What failed of the second part is run once more and then counts: real processes on a machine that was busy with
# something else for a moment are late, which says nothing of the code. Both runs are printed.
# Ends with the first code that is not 0; "no test was selected" (5) is one only where neither part has any.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

FAILED=1 NO_TEST=5
ALONE='integration or migrations or acceptance or kubernetes'

for argument in "$@"; do
    case $argument in -m*) exec .venv/bin/pytest "$@" ;; esac
done

# `loadfile` keeps the tests of a file in one process: what a module sets up, it sets up once.
together=0
.venv/bin/pytest -m "not ($ALONE)" --numprocesses auto --dist loadfile "$@" || together=$?
alone=0
.venv/bin/pytest -m "$ALONE" "$@" || alone=$?
if [ "$together" -ne "$FAILED" ] && [ "$alone" -eq "$FAILED" ]; then
    echo "=== once more, what failed on real processes"
    alone=0
    .venv/bin/pytest -m "$ALONE" --last-failed --last-failed-no-failures none "$@" || alone=$?
    [ "$alone" -ne "$NO_TEST" ] || alone=$FAILED
fi

if [ "$together" -eq "$NO_TEST" ] && [ "$alone" -eq "$NO_TEST" ]; then
    exit "$NO_TEST"
fi
for code in "$together" "$alone"; do
    if [ "$code" -ne 0 ] && [ "$code" -ne "$NO_TEST" ]; then
        exit "$code"
    fi
done
