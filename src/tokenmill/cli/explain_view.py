"""Shows an explanation to a person."""

from __future__ import annotations

from collections import defaultdict

from rich.console import Console
from rich.table import Table

from tokenmill.cli.explain import MachineExplanation, ModelExplanation, TensorFacts
from tokenmill.cli.output import facts_table, human_bytes, number_ranges
from tokenmill.vocabulary.host_facts import HostFacts


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
    for node in host.numa:
        cpus = f"CPUs {number_ranges(node.cpus)}" if node.cpus else "no CPU"
        table.add_row(f"NUMA node {node.node_id}", f"{cpus}, {human_bytes(node.memory_bytes)}")
    limit = host.quota.memory_bytes
    memory = f"{human_bytes(host.memory.available_bytes)} available of {human_bytes(host.memory.total_bytes)}"
    table.add_row("memory", memory)
    table.add_row("memory limit", f"{human_bytes(limit)} ({host.quota.memory_source})" if limit is not None else "none")
    table.add_row("page size", human_bytes(host.memory.page_bytes))
    table.add_row("huge pages", _huge_pages(host.memory.transparent_huge_pages))
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
    memory.add_row("KV cache", f"{human_bytes(model.kv_bytes_per_token)} per token (fp16)")
    context = f"{human_bytes(model.kv_bytes_of_context)} for {model.context_length} tokens"
    memory.add_row("one full context", context + ("" if model.fits else ": more than is available; use --context"))
    console.print(memory)


def _huge_pages(mode: str) -> str:
    grants = {
        "always": "granted to weights and KV cache (mode always)",
        "madvise": "granted to weights and KV cache, which ask for them (mode madvise)",
        "never": "not granted: /sys/kernel/mm/transparent_hugepage/enabled says never; madvise would do",
    }
    return grants.get(mode, "cannot tell: /sys/kernel/mm/transparent_hugepage/enabled is not readable")


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
