"""The gate before any token: the chosen kernel set must compute here what the reference computes here."""

from __future__ import annotations

from tokenmill import _native
from tokenmill.vocabulary.errors import ForcedKernelSetError, KernelSetError


def selected_kernel_set(forced: str | None) -> str:
    """Chooses the kernel set of this process, without testing it.

    Args:
        forced: the name of the set to use; None or empty for the best that this CPU can run.

    Raises:
        ForcedKernelSetError: there is no such set, or it cannot run here.
        KernelSetError: no fast set can run here.
    """
    try:
        return _native.select_kernel_set(forced or None)
    except ValueError as error:
        if forced:
            hint = "`tokenmill explain`, with TOKENMILL_KERNELS unset, shows what each set needs and what is missing"
            raise ForcedKernelSetError(str(error), hint=hint) from error
        hint = "TOKENMILL_KERNELS=reference always runs, but many times slower"
        raise KernelSetError(str(error), hint=hint) from error


def tested_kernel_set(forced: str | None) -> str:
    """Chooses the kernel set of this process and tests it.

    Args:
        forced: the name of the set to use, or None for the best that this CPU can run.

    Returns:
        The set's name.

    Raises:
        KernelSetError: no set can run here, the forced one cannot, or the set's results differ from the reference's.
    """
    name = selected_kernel_set(forced)
    failures = _native.self_test(name)
    if failures:
        others = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
        raise KernelSetError(
            f"kernel set {name} fails its self-test on this machine: {failures[0]}{others}",
            hint="please report it with the output of `tokenmill explain`; TOKENMILL_KERNELS=<name> forces another set",
        )
    return name
