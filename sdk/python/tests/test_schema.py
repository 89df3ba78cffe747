"""Type hints to schemas and back."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypedDict

import pytest

from catena_worker import Context, Mismatch, Secret, SyncContext, define, schema_of
from catena_worker.schema import decode, encode


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Size:
    width: int
    height: int = 10


@dataclass
class Tree:
    name: str
    children: list[Tree] = field(default_factory=list)


class Options(TypedDict, total=False):
    quality: float


CLOSED = {"additionalProperties": False}
SIZE = {
    "type": "object",
    "properties": {"width": {"type": "integer"}, "height": {"type": "integer", "default": 10}},
    "required": ["width"],
    **CLOSED,
}


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (None, {"type": "null"}),
        (bool, {"type": "boolean"}),
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (str, {"type": "string"}),
        (Any, {}),
        (list, {"type": "array"}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (tuple[str, ...], {"type": "array", "items": {"type": "string"}}),
        (dict[str, float], {"type": "object", "additionalProperties": {"type": "number"}}),
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (Literal["a", 1], {"enum": ["a", 1]}),
        (Colour, {"enum": ["red", "blue"]}),
        (Size, SIZE),
        (Options, {"type": "object", "properties": {"quality": {"type": "number"}}, **CLOSED}),
        (Annotated[str, Secret, "the key"], {"type": "string", "writeOnly": True, "description": "the key"}),
        (Annotated[int, {"minimum": 1}], {"type": "integer", "minimum": 1}),
    ],
)
def test_a_hint_has_this_schema(hint: Any, schema: dict[str, Any]) -> None:
    assert schema_of(hint) == schema


def test_a_recursive_type_refers_to_itself() -> None:
    schema = schema_of(Tree)
    assert schema["$ref"] == "#/$defs/Tree"
    assert schema["$defs"]["Tree"]["properties"]["children"]["items"] == {"$ref": "#/$defs/Tree"}


def test_a_type_without_a_json_form_is_refused_when_the_operation_is_defined() -> None:
    def handler(data: bytes) -> None: ...

    with pytest.raises(TypeError, match="bytes has no JSON form"):
        define(handler)


def test_parameters_become_members_of_the_input() -> None:
    async def handler(ctx: Context, url: str, size: Size, quality: int = 80) -> list[str]:
        """Makes a picture smaller.

        Not part of the description.
        """
        return []

    operation = define(handler, name="resize", queue="images")
    assert operation.input_schema == {
        "type": "object",
        "properties": {"url": {"type": "string"}, "size": SIZE, "quality": {"type": "integer", "default": 80}},
        "required": ["url", "size"],
        **CLOSED,
    }
    assert operation.metadata["name"] == "resize"
    assert operation.metadata["description"] == "Makes a picture smaller."
    assert operation.metadata["operation"]["output"] == {"type": "array", "items": {"type": "string"}}
    assert operation.metadata["operation"]["queue"] == "images"
    assert operation.metadata["operation"]["adapter"] == "worker"


def test_a_handler_without_parameters_needs_no_input() -> None:
    def handler() -> None: ...

    signature = define(handler).signature
    assert signature.input_schema == {"type": ["object", "null"], "properties": {}, **CLOSED}
    assert signature.arguments(None, None) == signature.arguments({}, None) == ([], {})


def test_a_positional_only_parameter_gets_the_entire_input() -> None:
    def handler(context: SyncContext, size: Size, /) -> int:
        return size.width

    operation = define(handler)
    assert operation.input_schema == SIZE
    marker = object()
    assert operation.signature.arguments({"width": 3}, marker) == ([marker, Size(3)], {})


def test_the_wrong_context_is_refused() -> None:
    async def handler(ctx: SyncContext) -> None: ...

    with pytest.raises(TypeError, match="async function: its context is a Context"):
        define(handler)


@pytest.mark.parametrize(
    ("value", "hint", "decoded"),
    [
        ({"width": 1}, Size, Size(1, 10)),
        ({"name": "a", "children": [{"name": "b"}]}, Tree, Tree("a", [Tree("b")])),
        ("blue", Colour, Colour.BLUE),
        (1, float, 1.0),
        (2.0, int, 2),
        (None, int | None, None),
        ([1, 2], tuple[int, ...], (1, 2)),
        ({"quality": 1}, Options, {"quality": 1.0}),
    ],
)
def test_json_becomes_the_declared_type(value: Any, hint: Any, decoded: Any) -> None:
    found = decode(value, hint)
    assert found == decoded and type(found) is type(decoded)


@pytest.mark.parametrize(
    ("value", "hint", "reason"),
    [
        ({"width": "1"}, Size, 'width must be of type integer, not "1"'),
        ({"width": 1, "depth": 2}, Size, "depth must be left out"),
        ({}, Size, "width must be present"),
        ([1, True], list[int], r"\[1\] must be of type integer, not a boolean"),
        ("green", Colour, "must be one of the listed values"),
        (1.5, int, "must be of type integer"),
        ([{"width": None}], list[Size] | None, r"\[0\]\.width must be of type integer"),
    ],
)
def test_a_mismatch_names_the_place(value: Any, hint: Any, reason: str) -> None:
    with pytest.raises(Mismatch, match=reason):
        decode(value, hint)


def test_python_values_have_a_json_form_or_are_refused() -> None:
    assert encode({"size": Size(1), "colours": (Colour.RED,)}) == {
        "size": {"width": 1, "height": 10},
        "colours": ["red"],
    }
    for value, reason in [(float("nan"), "finite"), ({1: 2}, "strings"), ({"a": {"b": b""}}, r"a\.b")]:
        with pytest.raises(Mismatch, match=reason):
            encode(value)
