"""Llama 2 and 3, Mistral, SmolLM2 and what else converters file under "llama".

Converters permute the rows of Q and K so that RoPE rotates neighbouring elements (style "interleaved"). Llama 3's
context extension arrives as the tensor rope_freqs.weight; Mistral's window as attention.sliding_window.
"""

from __future__ import annotations

from tokenmill.models.shared.dense_decoder import DenseTraits, plan_dense
from tokenmill.models.shared.metadata import Metadata
from tokenmill.vocabulary.layer_plan import ModelPlan
from tokenmill.vocabulary.model_file import ModelFile


def plan(model_file: ModelFile, metadata: Metadata) -> ModelPlan:
    """The plan of a llama model. Errors are those of `plan_model`."""
    return plan_dense(model_file, metadata, DenseTraits(rope_style="interleaved", sliding_window=True))
