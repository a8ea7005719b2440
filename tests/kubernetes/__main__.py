"""`python -m tests.kubernetes`: build and download what these tests need, so that no test has to wait for it."""

from __future__ import annotations

from tests.kubernetes.chart import helm
from tests.kubernetes.plane import program
from tests.kubernetes.schemas import schemas

if __name__ == "__main__":
    print(f"control plane: {program()}")
    print(f"helm: {helm()}")
    print(f"schemas of routes: {len(schemas())}")
