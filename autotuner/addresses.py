"""Which addresses a target may name, so that nobody can make the service reach what it should not.

A host written as an IP address must lie in an allowed network; a host written as a name must be an allowed name, or
end in an allowed domain. Names are not resolved: who allows a domain vouches for what it resolves to. Anything that is
neither a plain IP address nor a plain name (`127.1`, `0x7f000001`) is compared as a name, and so refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import urlsplit

from autotuner.domain.target import Target
from autotuner.errors import InvalidInput

NAME = re.compile(r"(\*\.)?(?!-)[a-z0-9-]{1,63}(\.(?!-)[a-z0-9-]{1,63})*")
ALLOWED = (
    "networks (10.0.0.0/8), addresses, names (triton.example) or domains (*.example), separated by commas"
)


@dataclass(frozen=True)
class AllowList:
    """Networks and names; a name that begins with `*.` stands for every name below the domain."""

    networks: tuple[IPv4Network | IPv6Network, ...]
    names: tuple[str, ...]

    @classmethod
    def read(cls, text: str) -> AllowList:
        """Return what a list separated by commas allows. Raises InvalidInput."""
        networks: list[IPv4Network | IPv6Network] = []
        names: list[str] = []
        for part in filter(None, (each.strip().lower() for each in text.split(","))):
            network = _network(part)
            if network is not None:
                networks.append(network)
            elif NAME.fullmatch(part) and not re.fullmatch(r"[\d.]+", part):
                names.append(part)
            else:
                raise InvalidInput("target_addresses", part, ALLOWED)
        return cls(tuple(networks), tuple(names))

    def allows(self, url: str) -> bool:
        """Say whether the host of a URL may be reached."""
        host = (urlsplit(url).hostname or "").rstrip(".").lower()
        address = _address(host)
        if address is not None:
            return any(address in network for network in self.networks)
        return any(_fits(host, name) for name in self.names)

    def __str__(self) -> str:
        return ", ".join([*map(str, self.networks), *self.names]) or "none"


def check_addresses(target: Target, allowed: AllowList) -> None:
    """Raise InvalidInput naming the first address of a target that may not be reached."""
    for field, url in _urls(target):
        if not allowed.allows(url):
            raise InvalidInput(field, url, f"an address within: {allowed}")


def _urls(target: Target) -> Iterator[tuple[str, str]]:
    """Every address of a target, with the field it is written in; pods have none until they are found."""
    if target.workload is None:
        for number, replica in enumerate(target.stable):
            yield f"stable.{number}.url", replica.http_url
            yield f"stable.{number}.metrics", replica.metrics_url
        yield "canary.url", target.canary.http_url
        yield "canary.metrics", target.canary.metrics_url
    yield "gateway.admin", target.gateway.admin_url
    if target.metrics is not None:
        yield "metrics.prometheus.url", target.metrics.prometheus.url
    if target.traces is not None and target.traces.url:
        yield "traces.url", target.traces.url


def _network(text: str) -> IPv4Network | IPv6Network | None:
    try:
        return ip_network(text)
    except ValueError:
        return None


def _address(host: str) -> IPv4Address | IPv6Address | None:
    """The address a host is written as; an IPv4 address inside an IPv6 one counts as what it is."""
    try:
        found = ip_address(host)
    except ValueError:
        return None
    return found.ipv4_mapped or found if isinstance(found, IPv6Address) else found


def _fits(host: str, name: str) -> bool:
    return host.endswith(name[1:]) if name.startswith("*.") else host == name
