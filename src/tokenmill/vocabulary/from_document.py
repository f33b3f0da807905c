"""Dataclasses from JSON values, by their annotations."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")


def from_document(kind: type[T], value: object, where: str = "") -> T:
    """The inverse of dataclasses.asdict for classes whose fields are plain values, tuples, mappings and dataclasses.

    Fields that the class does not have are ignored: a newer writer may add some.

    Args:
        kind: a dataclass.
        value: what json.load gave.
        where: the path to `value`, for messages.

    Raises:
        ValueError: a field is missing or of another type; the message names it.
    """
    return cast("T", _build(kind, value, where))


def _build(kind: Any, value: Any, where: str) -> Any:
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return _one_of(get_args(kind), value, where)
    if origin is tuple:
        return _tuple(get_args(kind), value, where)
    if dataclasses.is_dataclass(kind) or origin is Mapping:
        if not isinstance(value, Mapping):
            raise _wrong("an object", where)
        if origin is None:
            return _dataclass(kind, value, where)
        return {str(key): _build(get_args(kind)[1], item, f"{where}.{key}") for key, item in value.items()}
    if origin is Literal:
        if value not in get_args(kind):
            raise _wrong(f"one of {', '.join(map(str, get_args(kind)))}", where)
        return value
    return _plain(kind, value, where)


def _tuple(kinds: tuple[Any, ...], value: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise _wrong("a list", where)
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        kinds = kinds[:1] * len(value)
    if len(kinds) != len(value):
        raise _wrong(f"{len(kinds)} values", where)
    return tuple(_build(kind, item, f"{where}[{i}]") for i, (kind, item) in enumerate(zip(kinds, value, strict=True)))


def _one_of(kinds: tuple[Any, ...], value: Any, where: str) -> Any:
    if value is None and type(None) in kinds:
        return None
    exact = [kind for kind in kinds if isinstance(kind, type) and type(value) is kind]
    if exact:
        return value
    for kind in kinds:
        if kind is type(None):
            continue
        try:
            return _build(kind, value, where)
        except ValueError:
            if kind is kinds[-1] or len(kinds) == 2:
                raise
    raise _wrong("another type", where)


def _dataclass(kind: Any, value: Mapping[str, Any], where: str) -> Any:
    hints = get_type_hints(kind)
    given = {}
    for field in dataclasses.fields(kind):
        path = f"{where}.{field.name}" if where else field.name
        if field.name in value:
            given[field.name] = _build(hints[field.name], value[field.name], path)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            msg = f"{path} is missing"
            raise ValueError(msg)
    return kind(**given)


def _plain(kind: Any, value: Any, where: str) -> Any:
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if type(value) is not kind:
        raise _wrong({"str": "a string", "int": "a whole number", "float": "a number"}.get(kind.__name__, "set"), where)
    return value


def _wrong(expected: str, where: str) -> ValueError:
    return ValueError(f"{where or 'the document'} must be {expected}")
