"""Tensor storage formats of GGUF files: those that have kernels, and the names of those that have not.

The supported table mirrors native/contract/weight_formats.h. Numbers and block sizes are those of the GGUF
specification (ggml's `enum ggml_type`).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FileFormat:
    """How a tensor is stored: every `block_elements` consecutive elements of a row take `block_bytes` bytes."""

    name: str
    ggml_type: int
    block_elements: int
    block_bytes: int


FILE_FORMATS: tuple[FileFormat, ...] = (
    FileFormat("F32", 0, 1, 4),
    FileFormat("F16", 1, 1, 2),
    FileFormat("BF16", 30, 1, 2),
    FileFormat("Q4_0", 2, 32, 18),
    FileFormat("Q4_1", 3, 32, 20),
    FileFormat("Q5_0", 6, 32, 22),
    FileFormat("Q5_1", 7, 32, 24),
    FileFormat("Q8_0", 8, 32, 34),
    FileFormat("Q4_K", 12, 256, 144),
    FileFormat("Q5_K", 13, 256, 176),
    FileFormat("Q6_K", 14, 256, 210),
    FileFormat("IQ4_NL", 20, 32, 18),
)

FORMAT_BY_TYPE: dict[int, FileFormat] = {entry.ggml_type: entry for entry in FILE_FORMATS}
FORMAT_BY_NAME: dict[str, FileFormat] = {entry.name: entry for entry in FILE_FORMATS}

# Types that exist and have no kernels here: a message names them rather than giving a number.
UNSUPPORTED_TYPES: dict[int, str] = {
    4: "Q4_2 (removed from GGUF)",
    5: "Q4_3 (removed from GGUF)",
    9: "Q8_1",
    10: "Q2_K",
    11: "Q3_K",
    15: "Q8_K",
    16: "IQ2_XXS",
    17: "IQ2_XS",
    18: "IQ3_XXS",
    19: "IQ1_S",
    21: "IQ3_S",
    22: "IQ2_S",
    23: "IQ4_XS",
    24: "I8",
    25: "I16",
    26: "I32",
    27: "I64",
    28: "F64",
    29: "IQ1_M",
    31: "Q4_0_4_4 (removed from GGUF)",
    32: "Q4_0_4_8 (removed from GGUF)",
    33: "Q4_0_8_8 (removed from GGUF)",
    34: "TQ1_0",
    35: "TQ2_0",
    36: "IQ4_NL_4_4 (removed from GGUF)",
    37: "IQ4_NL_4_8 (removed from GGUF)",
    38: "IQ4_NL_8_8 (removed from GGUF)",
    39: "MXFP4",
    40: "NVFP4",
    41: "Q1_0",
}


def supported_names() -> str:
    """The supported formats, for an error message."""
    return ", ".join(entry.name for entry in FILE_FORMATS)
