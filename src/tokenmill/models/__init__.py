"""From a model file to a ModelPlan: one file per model type, found by its name (`general.architecture`)."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable

from tokenmill.models.shared.metadata import Metadata
from tokenmill.vocabulary.errors import ModelFileError, UnsupportedModelError
from tokenmill.vocabulary.layer_plan import ModelPlan
from tokenmill.vocabulary.model_file import ModelFile


def supported_architectures() -> tuple[str, ...]:
    """The values of `general.architecture` that can be planned: the modules beside this file, sorted."""
    return tuple(sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.ispkg))


def plan_model(model_file: ModelFile) -> ModelPlan:
    """Checks a model file's metadata and tensors and returns what the decoder has to do.

    Every number that reaches the plan has been checked: positive, bounded, and consistent with the tensors' shapes.

    Raises:
        ModelFileError: a key or tensor is missing, has the wrong type, or contradicts another.
        UnsupportedModelError: the model is well formed but needs something that is not built; the message names it.
    """
    architecture = model_file.metadata.get("general.architecture")
    if not isinstance(architecture, str) or not architecture:
        raise ModelFileError(
            "the metadata key general.architecture is missing or not a string",
            where=str(model_file.path),
            hint="A GGUF model names its type there; adapters, projectors and vocabulary files cannot be run.",
        )
    supported = supported_architectures()
    if architecture not in supported:
        raise UnsupportedModelError(
            f"the model type {architecture[:64]!r} is not supported",
            where=str(model_file.path),
            hint=f"Supported model types: {', '.join(supported)}.",
        )
    module = importlib.import_module(f"{__name__}.{architecture}")
    plan: Callable[[ModelFile, Metadata], ModelPlan] = module.plan
    return plan(model_file, Metadata(model_file, architecture))
