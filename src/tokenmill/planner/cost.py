"""Cost per million output tokens from a rate and a list price."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

_PRICE_FILE = "aws-ec2-us-east-1.csv"
# Families that sell CPU alone. One vCPU is a whole core on c7a and on Graviton, an SMT thread on c7i and m7i.
_FAMILIES = {"amd64": ("c7a", "c7i", "m7i"), "arm64": ("c8g", "c7g", "m8g")}
_ARCHITECTURES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}


@dataclass(frozen=True, slots=True)
class InstancePrice:
    """One line of a price list. `usd_per_hour` is on demand, Linux."""

    instance_type: str
    arch: str
    vcpus: int
    memory_gib: float
    usd_per_hour: float


@dataclass(frozen=True, slots=True)
class PriceList:
    """Prices with where they come from and when they were valid (ISO 8601)."""

    source: str
    as_of: str
    instances: tuple[InstancePrice, ...]


@dataclass(frozen=True, slots=True)
class DerivedCost:
    """What a rate would cost at an instance's price. Nothing is scaled: the rate stays that of the measured host."""

    instance: InstancePrice
    usd_per_million_output_tokens: float
    provenance: str = "derived"
    formula: str = "usd_per_hour / 3600 / output_tokens_per_s * 1e6"
    note: str = "this host's rate at that instance's price"


def load_prices() -> PriceList:
    """The price list that ships with the package; instances without a price are left out."""
    text = (files("tokenmill.planner") / "prices" / _PRICE_FILE).read_text(encoding="utf-8")
    comments = [line.lstrip("# ") for line in text.splitlines() if line.startswith("#")]
    rows = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    instances = tuple(
        InstancePrice(
            instance_type=row["instance_type"],
            arch=row["arch"],
            vcpus=int(row["vcpus"]),
            memory_gib=float(row["memory_gib"]),
            usd_per_hour=float(row["usd_per_hour"]),
        )
        for row in rows
        if row["usd_per_hour"] and not row["gpu_count"]
    )
    as_of = re.search(r"as of (\S+?);", comments[0])
    return PriceList(source=" ".join(comments), as_of=as_of.group(1) if as_of else "", instances=instances)


def comparable_instances(prices: PriceList, architecture: str, cpus: int, count: int = 3) -> tuple[InstancePrice, ...]:
    """One instance of each of `count` families for this architecture, with the nearest number of vCPUs.

    Args:
        prices: the list to choose from.
        architecture: of the measured host, as `uname -m` prints it.
        cpus: CPUs that the measured run could use.
        count: how many instances at most.

    Returns:
        Instances in the families' order; of two equally near sizes the larger one, so that a cost is not flattered.
    """
    arch = _ARCHITECTURES.get(architecture, "")
    chosen: list[InstancePrice] = []
    for family in _FAMILIES.get(arch, ())[:count]:
        members = [item for item in prices.instances if item.instance_type.startswith(f"{family}.")]
        members = [item for item in members if "metal" not in item.instance_type]
        if members:
            chosen.append(min(members, key=lambda item: (abs(item.vcpus - cpus), -item.vcpus)))
    return tuple(chosen)


def usd_per_million_tokens(usd_per_hour: float, tokens_per_s: float) -> float:
    """usd_per_hour / 3600 / tokens_per_s * 1e6.

    Raises:
        ValueError: the rate is not positive.
    """
    if tokens_per_s <= 0:
        raise ValueError(f"a rate of {tokens_per_s} tokens/s has no cost per token")
    return usd_per_hour / 3600 / tokens_per_s * 1e6


def derive_costs(instances: Sequence[InstancePrice], output_tokens_per_s: float) -> tuple[DerivedCost, ...]:
    """The cost of the measured rate at each instance's price."""
    return tuple(
        DerivedCost(item, usd_per_million_tokens(item.usd_per_hour, output_tokens_per_s)) for item in instances
    )
