"""What `explain` says of CPUs that this machine is not: each feature, each set, and why not a better one."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from tokenmill import _native
from tokenmill.cli.explain import explain_machine, feature_facts, kernel_set_facts
from tokenmill.cli.explain_view import show_machine

AVX2 = ["avx", "avx2", "fma", "f16c"]
AVX512 = ["avx512f", "avx512_vnni"]


def cpu(reported: list[str], usable: list[str], xcr0: int = 0xE7) -> dict[str, Any]:
    return {"known": [*AVX2, *AVX512, "amx_tile"], "reported": reported, "usable": usable, "xcr0": xcr0}


def compiled(usable: list[str]) -> list[dict[str, Any]]:
    needs = {"best": [*AVX2, *AVX512], "good": AVX2, "reference": []}
    sets = []
    for rank, (name, required) in zip((200, 100, 0), needs.items(), strict=True):
        missing = [feature for feature in required if feature not in usable]
        entry = {"name": name, "rank": rank, "required": required, "missing": missing, "usable": not missing}
        sets.append({**entry, "panel_rows": 16, "borrowed": []})
    return sets


def test_a_feature_is_detected_usable_compiled_and_chosen() -> None:
    facts = {fact.name: fact for fact in feature_facts(cpu([*AVX2, "amx_tile"], AVX2, 0x7), compiled(AVX2), "good")}
    assert list(facts) == [*AVX2, *AVX512, "amx_tile"]
    fma = facts["fma"]
    assert (fma.detected, fma.usable, fma.compiled, fma.chosen, fma.why) == (True, True, ("best", "good"), True, "")
    vnni = facts["avx512_vnni"]
    assert (vnni.detected, vnni.usable, vnni.compiled, vnni.chosen) == (False, False, ("best",), False)
    assert vnni.why == "this CPU does not have it"
    amx = facts["amx_tile"]
    assert (amx.detected, amx.usable, amx.compiled, amx.chosen) == (True, False, (), False)
    assert "XCR0 is 0x7" in amx.why


def test_a_usable_feature_that_nothing_needs_or_the_forced_set_leaves() -> None:
    everything = [*AVX2, *AVX512, "amx_tile"]
    facts = {fact.name: fact for fact in feature_facts(cpu(everything, everything), compiled(everything), "good")}
    assert facts["amx_tile"].why == "no set of this build is compiled for it"
    assert facts["avx512f"].why == "good does without it"


def whys(of: dict[str, Any], chosen: str, forced: str | None = None) -> dict[str, str]:
    return {fact.name: fact.why for fact in kernel_set_facts(of, compiled(of["usable"]), chosen, forced)}


def test_why_not_a_better_set() -> None:
    absent = whys(cpu(AVX2, AVX2), "good")
    assert absent["best"] == "this CPU lacks avx512f and avx512_vnni"
    assert absent["good"] == "the highest rank that this CPU can run"
    assert absent["reference"] == "usable; good ranks higher"

    hidden = whys(cpu([*AVX2, *AVX512], AVX2, 0x7), "good")["best"]
    assert hidden.startswith("this CPU has avx512f and avx512_vnni, but the operating system or hypervisor")
    assert "XCR0 is 0x7" in hidden

    both = whys(cpu([*AVX2, "avx512f"], AVX2, 0x7), "good")["best"]
    assert both.startswith("this CPU lacks avx512_vnni; this CPU has avx512f, but")

    everything = [*AVX2, *AVX512]
    forced = whys(cpu(everything, everything), "good", "good")
    assert forced["best"] == "usable, but TOKENMILL_KERNELS forces good"
    assert forced["good"] == "forced by TOKENMILL_KERNELS"


def test_the_table_of_this_machine_has_every_feature_and_set() -> None:
    machine = explain_machine(None)
    console = Console(width=160, record=True, file=None, quiet=False)
    with console.capture() as captured:
        show_machine(console, machine)
    shown = captured.get()
    for fact in (*machine.features, *machine.kernel_sets):
        assert fact.name in shown
    assert machine.host.cpu.features == tuple(_native.cpu_features())
    assert {fact.name for fact in machine.features if fact.usable} == set(_native.cpu_features())
