"""Checked access to a model's tensors: each is asked for with its shape, and none may be left over."""

from __future__ import annotations

from tokenmill.models.shared.metadata import Metadata
from tokenmill.vocabulary.layer_plan import LinearPlan
from tokenmill.vocabulary.model_file import ModelFile, TensorInfo

# One-dimensional tensors are kept as binary32, so only formats without blocks make sense for them.
_VECTOR_FORMATS = frozenset({"F32", "F16", "BF16"})


class Tensors:
    """The tensors of one file, with a record of which of them a plan uses."""

    def __init__(self, model_file: ModelFile, metadata: Metadata) -> None:
        self._tensors = model_file.tensors
        self._metadata = metadata
        self._used: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def rows(self, name: str) -> int:
        """Rows of a matrix, for sizes that only the tensor knows.

        Raises:
            ModelFileError: there is no such tensor, or it is not a matrix.
        """
        info = self._require(name)
        if len(info.shape) != 2:
            raise self._metadata.damaged(f"the tensor {name} has shape {list(info.shape)}, not that of a matrix")
        return info.shape[0]

    def matrix(self, name: str, rows: int, columns: int) -> str:
        """The name of a required matrix of exactly this shape."""
        self._check_shape(self._require(name), (rows, columns))
        self._used.add(name)
        return name

    def vector(self, name: str, length: int) -> str:
        """The name of a required vector of exactly this length, in a float format."""
        info = self._require(name)
        self._check_shape(info, (length,))
        if info.format not in _VECTOR_FORMATS:
            raise self._metadata.unsupported(
                f"the one-dimensional tensor {name} has the format {info.format}",
                hint=f"Supported for such tensors: {', '.join(sorted(_VECTOR_FORMATS))}.",
            )
        self._used.add(name)
        return name

    def optional_vector(self, name: str, length: int) -> str | None:
        """As `vector`; None when the file has no such tensor."""
        return self.vector(name, length) if name in self else None

    def linear(self, stem: str, rows: int, columns: int) -> LinearPlan:
        """`<stem>.weight` of shape [rows, columns], and `<stem>.bias` [rows] when the file has one."""
        return LinearPlan(
            weight=self.matrix(f"{stem}.weight", rows, columns), bias=self.optional_vector(f"{stem}.bias", rows)
        )

    def refuse_leftovers(self) -> None:
        """Refuses a file with tensors that no part of the plan reads: running without them would be a guess.

        Raises:
            UnsupportedModelError: names the first few.
        """
        leftovers = sorted(set(self._tensors) - self._used)
        if leftovers:
            more = f" and {len(leftovers) - 3} more" if len(leftovers) > 3 else ""
            raise self._metadata.unsupported(
                f"a {self._metadata.architecture} model with the tensors "
                f"{', '.join(name[:64] for name in leftovers[:3])}{more} is not supported",
                hint="Supported: separate attn_q, attn_k and attn_v, and one dense feed-forward network per layer.",
            )

    def _require(self, name: str) -> TensorInfo:
        info = self._tensors.get(name)
        if info is None:
            raise self._metadata.damaged(f"the tensor {name} is missing")
        return info

    def _check_shape(self, info: TensorInfo, shape: tuple[int, ...]) -> None:
        if info.shape != shape:
            raise self._metadata.damaged(
                f"the tensor {info.name} has shape {list(info.shape)}, but the metadata says {list(shape)}"
            )
