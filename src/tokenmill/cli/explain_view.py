"""Shows an explanation to a person."""

from __future__ import annotations

from collections import defaultdict

from rich.console import Console
from rich.table import Table

from tokenmill.cli.explain import MachineExplanation, ModelExplanation, TensorFacts
from tokenmill.cli.output import facts_table, human_bytes, number_ranges
from tokenmill.engine.placement import Pinning, Placement
from tokenmill.vocabulary.host_facts import HostFacts, MemoryFacts

_GRANTS = {
    "always": "granted to weights and KV cache (mode always)",
    "madvise": "granted to weights and KV cache, which ask for them (mode madvise)",
    "never": "not granted: /sys/kernel/mm/transparent_hugepage/enabled says never; madvise would do",
}


def show_machine(console: Console, machine: MachineExplanation) -> None:
    """CPU, memory, kernel sets and threads."""
    host = machine.host
    table = facts_table("This machine")
    table.add_row("CPU", f"{host.cpu.model_name} ({host.cpu.architecture})")
    table.add_row("caches", _caches(host))
    table.add_row("CPUs", f"{number_ranges(host.cpu.affinity)} in the affinity mask")
    table.add_row("physical cores", f"{len(host.cpu.physical_cores)} (CPUs {number_ranges(host.cpu.physical_cores)})")
    quota = "none" if host.quota.cpus is None else f"{host.quota.cpus:g} CPUs ({host.quota.cpu_source})"
    table.add_row("CPU quota", quota)
    table.add_row("threads", f"{machine.threads}: {machine.threads_why}")
    table.add_row("pinning", _pinning(machine.placement))
    for node in host.numa:
        cpus = f"CPUs {number_ranges(node.cpus)}" if node.cpus else "no CPU"
        memory = f"{human_bytes(node.available_bytes)} available of {human_bytes(node.memory_bytes)}"
        memory += "" if node.memory_allowed else ", not for this process (cpuset)"
        table.add_row(f"NUMA node {node.node_id}", f"{cpus}, {memory if node.memory_bytes else 'no memory'}")
    limit = host.quota.memory_bytes
    memory = f"{human_bytes(host.memory.available_bytes)} available of {human_bytes(host.memory.total_bytes)}"
    table.add_row("memory", memory)
    table.add_row("memory limit", f"{human_bytes(limit)} ({host.quota.memory_source})" if limit is not None else "none")
    table.add_row("page size", human_bytes(host.memory.page_bytes))
    table.add_row("huge pages", _huge_pages(host.memory))
    table.add_row("reserved huge pages", _reserved_pages(host.memory))
    lock = host.memory.lock_limit_bytes
    table.add_row("memory lock", "no limit" if lock is None else f"at most {human_bytes(lock)} (RLIMIT_MEMLOCK)")
    console.print(table)
    console.print(_feature_table(machine))
    console.print(_kernel_table(machine))
    count = len(machine.self_test_failures)
    if count:
        console.print(f"[bold red]Self-test of {machine.kernel_set}: {count} failures[/]")
        for failure in machine.self_test_failures:
            console.print(f"  {failure}", markup=False)
    else:
        equal = "bit-equal to the reference on every function and format"
        console.print(f"  Self-test of {machine.kernel_set}: {equal} ({machine.self_test_s:.2f} s)\n")


def show_model(console: Console, model: ModelExplanation, *, every_tensor: bool) -> None:
    """What the model's tensors become, and the memory it takes."""
    title = f"{model.path.name}: {model.architecture}, {model.parameters / 1e6:.1f} M parameters, {model.layers} layers"
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column("tensor" if every_tensor else "tensors")
    for name in ("format", "kernel"):
        table.add_column(name)
    for name in ("in the file", "in memory"):
        table.add_column(name, justify="right")
    for name, tensors in _grouped(model, every_tensor=every_tensor):
        sizes = sum(t.file_bytes for t in tensors), sum(t.packed_bytes for t in tensors)
        table.add_row(name, tensors[0].format, tensors[0].kernel, *(human_bytes(size) for size in sizes))
    console.print(table)

    memory = facts_table("Memory plan")
    memory.add_row("weights", f"{human_bytes(model.weight_bytes)}, packed in memory")
    memory.add_row("NUMA", f"weights {model.placement.weights.value}: {model.placement.weights_why}")
    memory.add_row("KV cache", f"{human_bytes(model.kv_bytes_per_token)} per token (fp16)")
    context = f"{human_bytes(model.kv_bytes_of_context)} for {model.context_length} tokens"
    memory.add_row("one full context", context + ("" if model.fits else ": more than is available; use --context"))
    console.print(memory)


def _pinning(placement: Placement) -> str:
    if placement.pinning is Pinning.CORE:
        where = f"one thread each to CPUs {number_ranges(tuple(sorted(own[0] for own in placement.thread_cpus)))}"
    elif placement.pinning is Pinning.CORES:
        where = f"to the cores {number_ranges(tuple(sorted({cpu for own in placement.thread_cpus for cpu in own})))}"
    else:
        where = "none"
    return f"{where}: {placement.pinning_why}"


def _reserved_pages(memory: MemoryFacts) -> str:
    if not memory.reserved_page_bytes:
        return "this kernel has none"
    return f"{human_bytes(memory.reserved_free_bytes)} free, in pages of {human_bytes(memory.reserved_page_bytes)}"


def _huge_pages(memory: MemoryFacts) -> str:
    mode = memory.transparent_huge_pages
    if mode in ("always", "madvise") and memory.transparent_page_bytes:
        return f"{_GRANTS[mode]}, {human_bytes(memory.transparent_page_bytes)} each"
    return _GRANTS.get(mode, "cannot tell: /sys/kernel/mm/transparent_hugepage/enabled is not readable")


def _grouped(model: ModelExplanation, *, every_tensor: bool) -> list[tuple[str, list[TensorFacts]]]:
    if every_tensor:
        return [(tensor.name, [tensor]) for tensor in model.tensors]
    groups: dict[tuple[str, str], list[TensorFacts]] = defaultdict(list)
    for tensor in model.tensors:
        groups[tensor.format, tensor.kernel].append(tensor)
    largest_first = sorted(groups.values(), key=lambda group: -sum(tensor.packed_bytes for tensor in group))
    return [(group[0].name if len(group) == 1 else str(len(group)), group) for group in largest_first]


def _feature_table(machine: MachineExplanation) -> Table:
    table = Table(title="CPU features that a kernel set may need", title_justify="left", title_style="bold")
    for name in ("feature", "detected", "usable", "compiled", "chosen", "why not"):
        table.add_column(name)
    for feature in machine.features:
        table.add_row(
            feature.name,
            "yes" if feature.detected else "no",
            "yes" if feature.usable else "no",
            "yes" if feature.compiled else "no",
            "yes" if feature.chosen else "",
            feature.why,
            style="green" if feature.chosen else None,
        )
    return table


def _kernel_table(machine: MachineExplanation) -> Table:
    table = Table(title="Kernel sets in this build", title_justify="left", title_style="bold")
    for name in ("set", "usable", "chosen", "why"):
        table.add_column(name)
    for entry in machine.kernel_sets:
        style = "bold green" if entry.chosen else None
        table.add_row(
            entry.name, "yes" if entry.usable else "no", "yes" if entry.chosen else "", entry.why, style=style
        )
    return table


def _caches(host: HostFacts) -> str:
    sizes = (("L1d", host.cpu.l1d_bytes), ("L2", host.cpu.l2_bytes), ("L3", host.cpu.l3_bytes))
    return ", ".join(f"{name} {human_bytes(size)}" for name, size in sizes if size is not None) or "unknown"
