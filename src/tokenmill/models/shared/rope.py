"""Rotary position embedding: what the metadata says about it, and what of that can be run."""

from __future__ import annotations

from tokenmill.models.shared.metadata import Metadata
from tokenmill.models.shared.tensors import Tensors
from tokenmill.vocabulary.layer_plan import RopePlan, RopeStyle

FREQ_FACTORS = "rope_freqs.weight"


def plan_rope(metadata: Metadata, tensors: Tensors, *, style: RopeStyle, head_dim: int) -> RopePlan:
    """Reads the `rope.*` keys and the tensor of frequency factors.

    Scaling types: "none"; "linear" divides the position by `rope.scaling.factor`; "llama3" is carried by the tensor
    rope_freqs.weight, which converters of Llama 3.1 and later write with no scaling key at all.

    Raises:
        ModelFileError: a value out of range.
        UnsupportedModelError: another scaling type (YaRN, LongRoPE, dynamic NTK, multi-section).
    """
    rotary_dim = metadata.integer("rope.dimension_count", minimum=2, maximum=head_dim, default=head_dim)
    if rotary_dim % 2:
        raise metadata.damaged(f"the metadata key {metadata.key('rope.dimension_count')} is {rotary_dim}, not even")
    metadata.require_neutral("rope.scaling.attn_factor", 1.0, 0.0)
    metadata.require_neutral("rope.scaling.alpha", 0.0)
    metadata.require_neutral("rope.dimension_sections")
    return RopePlan(
        style=style,
        rotary_dim=rotary_dim,
        base=metadata.real("rope.freq_base", minimum=1e-3, maximum=1e15, default=10000.0),
        position_scale=_position_scale(metadata, tensors),
        freq_factors=tensors.optional_vector(FREQ_FACTORS, rotary_dim // 2),
    )


def _position_scale(metadata: Metadata, tensors: Tensors) -> float:
    # A factor without a type means linear, and older files have the factor under another key.
    kind = metadata.text("rope.scaling.type", default="linear")
    if kind == "linear":
        old = metadata.real("rope.scale_linear", minimum=0.0, maximum=1e6, default=0.0)
        factor = metadata.real("rope.scaling.factor", minimum=0.0, maximum=1e6, default=old)
        if 0.0 < factor < 1e-3:
            raise metadata.damaged(
                f"the metadata key {metadata.key('rope.scaling.factor')} (or its older name rope.scale_linear) is "
                f"{factor:g}; it must be at least 0.001, or 0 for none"
            )
        return 1.0 if factor == 0.0 else 1.0 / factor
    if kind == "none" or (kind == "llama3" and FREQ_FACTORS in tensors):
        return 1.0
    raise metadata.unsupported(
        f"{metadata.key('rope.scaling.type')} = {kind[:32]!r} is not supported",
        hint=f"Supported: 'none', 'linear', and Llama 3's factors in the tensor {FREQ_FACTORS}.",
    )
