"""The gate before any token: the chosen kernel set must compute here what the reference computes here."""

from __future__ import annotations

from tokenmill import _native
from tokenmill.vocabulary.errors import KernelSetError


def tested_kernel_set(forced: str | None) -> str:
    """Chooses the kernel set of this process and tests it.

    Args:
        forced: the name of the set to use, or None for the best that this CPU can run.

    Returns:
        The set's name.

    Raises:
        KernelSetError: no set can run here, the forced one cannot, or the set's results differ from the reference's.
    """
    try:
        name = _native.select_kernel_set(forced)
    except ValueError as error:
        raise KernelSetError(
            str(error), hint="TOKENMILL_KERNELS=reference always runs, but many times slower"
        ) from error
    failures = _native.self_test(name)
    if failures:
        others = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
        raise KernelSetError(
            f"kernel set {name} fails its self-test on this machine: {failures[0]}{others}",
            hint="please report it with the output of `tokenmill explain`; TOKENMILL_KERNELS=<name> forces another set",
        )
    return name
