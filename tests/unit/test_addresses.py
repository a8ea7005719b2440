"""Which addresses a target may name."""

from __future__ import annotations

import pytest

from autotuner.addresses import AllowList, check_addresses
from autotuner.domain.target import Gateway
from autotuner.errors import InvalidInput
from autotuner.settings import Settings
from tests.builders import a_target

ALLOWED = AllowList.read("10.0.0.0/8, fd00::/8, triton.example, *.svc.cluster.local")


@pytest.mark.parametrize(
    "host",
    [
        "10.1.2.3",
        "[fd00::1]",
        "[::ffff:10.1.2.3]",
        "triton.example",
        "TRITON.example.",
        "a.b.svc.cluster.local",
    ],
)
def test_what_is_listed_is_allowed(host: str) -> None:
    assert ALLOWED.allows(f"http://{host}:8000/x")


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "169.254.169.254",
        "[::ffff:169.254.169.254]",
        "[::1]",
        "11.0.0.1",
        "example",
        "evil.triton.example",
        "triton.example.evil.net",
        "svc.cluster.local",
        "eviltriton.example",
        "127.1",
        "0x0a000001",
        "167772161",
        "10.0.0.1.evil.net",
        "[fe80::1%25eth0]",
    ],
)
def test_what_is_not_listed_is_refused_however_it_is_spelt(host: str) -> None:
    assert not ALLOWED.allows(f"http://{host}:8000/x")


def test_an_empty_list_allows_nothing() -> None:
    nothing = AllowList.read(" , ")

    assert not nothing.allows("http://10.0.0.1")
    assert str(nothing) == "none"


@pytest.mark.parametrize("text", ["10.0.0.1/8", "http://host", "*", "a b", "10.0.0.0/33", "-x", "1.2.3"])
def test_a_list_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="target_addresses"):
        AllowList.read(text)


def test_the_default_leaves_out_this_machine_and_its_clouds_secrets() -> None:
    allowed = AllowList.read(Settings().target_addresses)

    assert allowed.allows("http://192.168.1.1")
    assert not allowed.allows("http://127.0.0.1")
    assert not allowed.allows("http://169.254.169.254")


def test_the_field_at_fault_is_named() -> None:
    check_addresses(a_target(), AllowList.read("127.0.0.1"))

    with pytest.raises(InvalidInput) as refused:
        check_addresses(a_target(gateway=Gateway("http://10.0.0.1", "x")), AllowList.read("127.0.0.1"))

    assert (refused.value.field, refused.value.value) == ("gateway.admin", "http://10.0.0.1")
    assert "127.0.0.1/32" in refused.value.allowed
