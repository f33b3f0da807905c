"""Qwen2 and Qwen2.5: biases on Q, K and V; RoPE rotates element i with element i + rotary_dim/2 (style "half")."""

from __future__ import annotations

from tokenmill.models.shared.dense_decoder import DenseTraits, plan_dense
from tokenmill.models.shared.metadata import Metadata
from tokenmill.vocabulary.layer_plan import ModelPlan
from tokenmill.vocabulary.model_file import ModelFile


def plan(model_file: ModelFile, metadata: Metadata) -> ModelPlan:
    """The plan of a qwen2 model. Errors are those of `plan_model`."""
    return plan_dense(model_file, metadata, DenseTraits(rope_style="half"))
