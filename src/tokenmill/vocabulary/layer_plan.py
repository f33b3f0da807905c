"""A model as data: models/<type>.py returns a ModelPlan, the native decoder executes it.

Mirrors native/contract/layer_plan.h; tensors are named here and numbered when the model is loaded. An absent tensor
is None. Shapes are given as [rows][columns], rows being output features.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

RopeStyle = Literal["none", "interleaved", "half"]
Activation = Literal["silu", "gelu_tanh"]


@dataclass(frozen=True, slots=True)
class RopePlan:
    """Rotary embedding: frequency i is base^(-2i/rotary_dim) / freq_factors[i], position times position_scale."""

    style: RopeStyle
    rotary_dim: int
    base: float
    position_scale: float = 1.0
    freq_factors: str | None = None


@dataclass(frozen=True, slots=True)
class LinearPlan:
    """y = W x + bias."""

    weight: str
    bias: str | None = None


@dataclass(frozen=True, slots=True)
class AttentionPlan:
    """Grouped-query attention of one layer. window 0 sees all earlier keys."""

    head_count: int
    kv_head_count: int
    head_dim: int
    score_scale: float
    query: LinearPlan
    key: LinearPlan
    value: LinearPlan
    output: LinearPlan
    rope: RopePlan
    window: int = 0
    query_norm: str | None = None
    key_norm: str | None = None


@dataclass(frozen=True, slots=True)
class FeedForwardPlan:
    """down(act(gate x) * up x). expert_count > 0 is reserved for mixture-of-experts models."""

    hidden: int
    activation: Activation
    gate: LinearPlan
    up: LinearPlan
    down: LinearPlan
    expert_count: int = 0
    experts_used: int = 0


@dataclass(frozen=True, slots=True)
class LayerPlan:
    """x += attention(norm(x)); x += ffn(norm(x)); the post norms are applied before the sums when present."""

    attention_norm: str
    attention: AttentionPlan
    ffn_norm: str
    ffn: FeedForwardPlan
    post_attention_norm: str | None = None
    post_ffn_norm: str | None = None


@dataclass(frozen=True, slots=True)
class ModelPlan:
    """A whole decoder. output.weight equals token_embedding when the two are tied."""

    architecture: str
    vocab_size: int
    embedding_dim: int
    context_length: int
    norm_epsilon: float
    token_embedding: str
    output_norm: str
    output: LinearPlan
    layers: tuple[LayerPlan, ...]
    embedding_scale: float = 1.0
