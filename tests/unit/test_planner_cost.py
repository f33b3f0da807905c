from __future__ import annotations

import pytest

from tokenmill.planner.cost import comparable_instances, derive_costs, load_prices, usd_per_million_tokens


def test_prices_keep_their_source_and_date() -> None:
    prices = load_prices()
    assert "AWS EC2 on-demand" in prices.source
    assert prices.as_of.startswith("2026-")
    assert len(prices.instances) > 100
    assert all(item.usd_per_hour > 0 and item.vcpus > 0 for item in prices.instances)


def test_cost_by_hand() -> None:
    assert usd_per_million_tokens(0.36, 100.0) == pytest.approx(1.0)


@pytest.mark.parametrize("rate", [0.0, -1.0])
def test_no_rate_no_cost(rate: float) -> None:
    with pytest.raises(ValueError, match="no cost per token"):
        usd_per_million_tokens(1.0, rate)


@pytest.mark.parametrize(
    ("architecture", "cpus", "names"),
    [
        ("x86_64", 2, ["c7a.large", "c7i.large", "m7i.large"]),
        ("x86_64", 7, ["c7a.2xlarge", "c7i.2xlarge", "m7i.2xlarge"]),
        ("aarch64", 4, ["c8g.xlarge", "c7g.xlarge", "m8g.xlarge"]),
        ("riscv64", 4, []),
    ],
)
def test_comparable_instances(architecture: str, cpus: int, names: list[str]) -> None:
    chosen = comparable_instances(load_prices(), architecture, cpus)
    assert [item.instance_type for item in chosen] == names


def test_of_two_equally_near_sizes_the_larger_is_taken() -> None:
    chosen = comparable_instances(load_prices(), "x86_64", 3, count=1)
    assert chosen[0].vcpus == 4


def test_a_derived_cost_says_so() -> None:
    cost = derive_costs(comparable_instances(load_prices(), "x86_64", 2, count=1), 50.0)[0]
    assert cost.provenance == "derived"
    assert cost.usd_per_million_output_tokens == pytest.approx(cost.instance.usd_per_hour / 3600 / 50 * 1e6)
