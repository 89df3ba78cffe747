"""Type hints: to JSON Schemas, and between JSON and Python values.

The same hint produces the schema that the venue checks and the value that the handler gets, so the two cannot disagree.
Supported are `None`, `bool`, `int`, `float`, `str`, `list`, `tuple[T, ...]`, `dict[str, T]`, `Any`, `Literal`, enumerations,
unions, dataclasses, `TypedDict`, and `Annotated` with `Secret`, a description (a string) or further members of the schema (a dict).
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import math
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from .errors import CatenaError

Schema = dict[str, Any]
"""A JSON Schema."""


class _Secret:
    def __repr__(self) -> str:
        return "Secret"


Secret = _Secret()
"""`Annotated[str, Secret]`: the venue seals the value and no record contains it."""


class Mismatch(CatenaError):
    """A value does not have the type that was declared for it."""

    def __init__(self, path: str, expected: str, value: object) -> None:
        self.path = path
        """Where in the document, such as `items[2].name`. Empty for the document itself."""
        super().__init__(f"{path or 'the value'} must be {expected}, not {_kind(value)}")


def _kind(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, (int, float)):
        return f"the number {value}"
    if isinstance(value, str):
        return "a string" if len(value) > 40 else f'"{value}"'
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, (list, tuple)):
        return "an array"
    return f"a {type(value).__name__}"


# ------------------------------------------------------------------------------------------------------------ schemas


def schema_of(hint: Any) -> Schema:
    """The JSON Schema of a type hint. Raises `TypeError` for a type that has no JSON form."""
    return _Builder().document(hint)


class _Builder:
    def __init__(self) -> None:
        self.open: list[type] = []
        self.recursive: dict[type, str] = {}
        self.definitions: dict[str, Schema] = {}

    def document(self, hint: Any) -> Schema:
        return self.with_definitions(self.schema(hint))

    def with_definitions(self, schema: Schema) -> Schema:
        return {**schema, "$defs": self.definitions} if self.definitions else schema

    def schema(self, hint: Any) -> Schema:
        origin = get_origin(hint)
        if hint is Any or hint is object or hint is inspect.Parameter.empty:
            return {}
        if origin is Annotated:
            return self.annotated(hint)
        if origin in _WRAPPERS:
            return self.schema(get_args(hint)[0])
        if hint in _SCALARS:
            return {"type": _SCALARS[hint]}
        if origin is Literal:
            return {"enum": [option.value if isinstance(option, enum.Enum) else option for option in get_args(hint)]}
        if origin in (Union, types.UnionType):
            return {"anyOf": [self.schema(member) for member in get_args(hint)]}
        if hint in (list, tuple) or origin in (list, tuple, Sequence):
            return self.array(hint)
        if hint is dict or origin in (dict, Mapping):
            return self.mapping(hint)
        if isinstance(hint, type):
            return self.named(hint)
        raise TypeError(f"{hint!r} has no JSON form")

    def annotated(self, hint: Any) -> Schema:
        base, *extras = get_args(hint)
        schema = self.schema(base)
        for extra in extras:
            if extra is Secret:
                schema = {**schema, "writeOnly": True}
            elif isinstance(extra, str):
                schema = {**schema, "description": extra}
            elif isinstance(extra, dict):
                schema = {**schema, **extra}
        return schema

    def array(self, hint: Any) -> Schema:
        item = _item_hint(hint)
        return {"type": "array", "items": self.schema(item)} if item is not Any else {"type": "array"}

    def mapping(self, hint: Any) -> Schema:
        key, member = get_args(hint) or (str, Any)
        if key is not str:
            raise TypeError(f"{hint!r} has no JSON form: the keys of an object are strings")
        return {"type": "object"} if member is Any else {"type": "object", "additionalProperties": self.schema(member)}

    def named(self, hint: type) -> Schema:
        if issubclass(hint, enum.Enum):
            return {"enum": [option.value for option in hint]}
        members = _members(hint)
        if members is None:
            raise TypeError(f"{hint.__name__} has no JSON form: use a dataclass or a TypedDict")
        if hint in self.open:
            name = self.recursive.setdefault(hint, f"{hint.__name__}{len(self.recursive) or ''}")
            return {"$ref": f"#/$defs/{name}"}
        self.open.append(hint)
        schema = self.object(members)
        self.open.pop()
        if hint in self.recursive:
            self.definitions[self.recursive[hint]] = schema
            return {"$ref": f"#/$defs/{self.recursive[hint]}"}
        return schema

    def object(self, members: Sequence[Member], is_open: bool = False) -> Schema:
        properties = {member.name: self.property(member) for member in members}
        schema: Schema = {"type": "object", "properties": properties}
        required = [member.name for member in members if member.is_required]
        if required:
            schema["required"] = required
        return schema if is_open else {**schema, "additionalProperties": False}

    def property(self, member: Member) -> Schema:
        schema = self.schema(member.hint)
        if member.default is MISSING or member.default is None:
            return schema
        try:
            return {**schema, "default": encode(member.default)}
        except CatenaError:
            return schema


_SCALARS: dict[Any, str] = {
    None: "null",
    type(None): "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
}

# `Required` and `NotRequired` exist since Python 3.11.
_WRAPPERS = tuple(
    wrapper for name in ("Required", "NotRequired") if (wrapper := getattr(typing, name, None)) is not None
)

MISSING = dataclasses.MISSING


class Member(typing.NamedTuple):
    """A member of an object."""

    name: str
    hint: Any
    is_required: bool
    default: Any = MISSING


def _item_hint(hint: Any) -> Any:
    arguments = get_args(hint)
    if not arguments:
        return Any
    if get_origin(hint) is tuple and (len(arguments) != 2 or arguments[1] is not Ellipsis):
        raise TypeError(f"{hint!r} has no JSON form: use tuple[T, ...] or a dataclass")
    return arguments[0]


def _hints_of(item: Any) -> dict[str, Any]:
    try:
        return get_type_hints(item, include_extras=True)
    except NameError as error:
        name = getattr(item, "__qualname__", repr(item))
        raise TypeError(f"a type hint of {name} cannot be resolved: {error}. Define the type at module level.") from error


def _members(hint: type) -> list[Member] | None:
    """The members of a dataclass or TypedDict. `None` for any other type."""
    if dataclasses.is_dataclass(hint):
        hints = _hints_of(hint)
        return [_dataclass_member(field, hints[field.name]) for field in dataclasses.fields(hint) if field.init]
    required = getattr(hint, "__required_keys__", None)
    if required is not None:
        return [Member(name, member, name in required) for name, member in _hints_of(hint).items()]
    return None


def _dataclass_member(field: dataclasses.Field[Any], hint: Any) -> Member:
    is_required = field.default is MISSING and field.default_factory is MISSING
    return Member(field.name, hint, is_required, field.default)


# --------------------------------------------------------------------------------------------------- JSON to Python


def decode(value: Any, hint: Any, path: str = "") -> Any:
    """The JSON value as the type that the hint names. Raises `Mismatch`."""
    origin = get_origin(hint)
    if hint is Any or hint is object or hint is inspect.Parameter.empty:
        return value
    if origin is Annotated or origin in _WRAPPERS:
        return decode(value, get_args(hint)[0], path)
    if hint in _SCALARS:
        return _decode_scalar(value, hint, path)
    if origin is Literal:
        return _decode_option(value, get_args(hint), path)
    if origin in (Union, types.UnionType):
        return _decode_union(value, get_args(hint), path)
    if hint in (list, tuple) or origin in (list, tuple, Sequence):
        return _decode_array(value, hint, path)
    if hint is dict or origin in (dict, Mapping):
        return _decode_mapping(value, hint, path)
    return _decode_named(value, hint, path)


def _decode_scalar(value: Any, hint: Any, path: str) -> Any:
    name = _SCALARS[hint]
    if name == "null" and value is None:
        return None
    if name == "boolean" and isinstance(value, bool):
        return value
    if name == "string" and isinstance(value, str):
        return value
    if name in ("integer", "number") and isinstance(value, (int, float)) and not isinstance(value, bool):
        if name == "number":
            return float(value)
        # JSON Schema counts 1.0 among the integers.
        if isinstance(value, int) or value.is_integer():
            return int(value)
    raise Mismatch(path, "null" if name == "null" else f"of type {name}", value)


def _decode_option(value: Any, options: Sequence[Any], path: str) -> Any:
    for option in options:
        known = option.value if isinstance(option, enum.Enum) else option
        if type(known) is type(value) and known == value:
            return option
    raise Mismatch(path, "one of the listed values", value)


def _decode_union(value: Any, members: Sequence[Any], path: str) -> Any:
    faults = []
    for member in members:
        try:
            return decode(value, member, path)
        except Mismatch as fault:
            faults.append(fault)
    # A fault further inside says more than that no alternative fits.
    raise max(faults, key=lambda fault: len(fault.path))


def _decode_array(value: Any, hint: Any, path: str) -> Any:
    if not isinstance(value, list):
        raise Mismatch(path, "an array", value)
    item = _item_hint(hint)
    items = [decode(entry, item, f"{path}[{at}]") for at, entry in enumerate(value)]
    return tuple(items) if tuple in (hint, get_origin(hint)) else items


def _decode_mapping(value: Any, hint: Any, path: str) -> Any:
    if not isinstance(value, dict):
        raise Mismatch(path, "an object", value)
    _, member = get_args(hint) or (str, Any)
    return {name: decode(entry, member, _inside(path, name)) for name, entry in value.items()}


def _decode_named(value: Any, hint: Any, path: str) -> Any:
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return _decode_option(value, list(hint), path)
    members = _members(hint)
    if members is None:
        raise TypeError(f"{hint!r} has no JSON form")
    found = decode_members(value, members, path)
    return hint(**found)


def decode_members(value: Any, members: Sequence[Member], path: str = "", is_open: bool = False) -> dict[str, Any]:
    """The members of an object by name; those that are absent and not required are left out."""
    if not isinstance(value, dict):
        raise Mismatch(path, "an object", value)
    hints = {member.name: member.hint for member in members}
    unknown = [name for name in value if name not in hints]
    if unknown and not is_open:
        raise Mismatch(_inside(path, unknown[0]), "left out, because nothing has this name", value[unknown[0]])
    missing = [member.name for member in members if member.is_required and member.name not in value]
    if missing:
        raise Mismatch(_inside(path, missing[0]), "present", None)
    return {name: decode(entry, hints.get(name, Any), _inside(path, name)) for name, entry in value.items()}


def _inside(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


# --------------------------------------------------------------------------------------------------- Python to JSON


def encode(value: Any, path: str = "") -> Any:
    """The JSON form of a Python value. Raises `Mismatch` for a value that has none."""
    if value is None or isinstance(value, (bool, str)) and not isinstance(value, enum.Enum):
        return value
    if isinstance(value, enum.Enum):
        return encode(value.value, path)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise Mismatch(path, "a finite number", value)
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {field.name: encode(getattr(value, field.name), _inside(path, field.name)) for field in fields}
    if isinstance(value, Mapping):
        return {_encode_name(name, path): encode(entry, _inside(path, str(name))) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [encode(entry, f"{path}[{at}]") for at, entry in enumerate(value)]
    raise Mismatch(path, "a value that JSON can express", value)


def _encode_name(name: Any, path: str) -> str:
    if not isinstance(name, str):
        raise Mismatch(path, "an object whose member names are strings", name)
    return name


# ------------------------------------------------------------------------------------------------------- functions


@dataclasses.dataclass(frozen=True)
class Signature:
    """What a handler takes and returns, read from its parameters and type hints."""

    input_schema: Schema
    output_schema: Schema
    context: str | None
    """Name of the parameter that gets the context."""
    whole: Member | None
    """The parameter that gets the entire input, if the handler has one (`def f(order: Order, /)`)."""
    members: tuple[Member, ...]
    is_open: bool
    """Whether `**members` takes whatever else the input contains."""
    positional: tuple[str, ...]
    """Names of the parameters that can be given by position only."""

    def arguments(self, value: Any, context: object) -> tuple[list[Any], dict[str, Any]]:
        """The positional and named arguments for an input. Raises `Mismatch`."""
        named: dict[str, Any]
        if self.whole is not None:
            named = {self.whole.name: decode(value, self.whole.hint)}
        else:
            is_empty = value is None and not any(member.is_required for member in self.members)
            named = decode_members({} if is_empty else value, self.members, is_open=self.is_open)
        if self.context is not None:
            named[self.context] = context
        return [named.pop(name) for name in self.positional], named


def signature_of(function: Any, is_context: Callable[[Any], bool]) -> Signature:
    """Reads a handler. `is_context` decides by its type hint which parameter gets the context."""
    hints = _hints_of(function)
    context: str | None = None
    whole: Member | None = None
    members: list[Member] = []
    is_open = False
    positional: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        hint = hints.get(parameter.name, Any)
        if parameter.kind is parameter.POSITIONAL_ONLY:
            positional.append(parameter.name)
        if is_context(hint):
            context = parameter.name
        elif parameter.kind is parameter.POSITIONAL_ONLY:
            if whole is not None:
                raise TypeError("only one parameter can get the entire input")
            whole = Member(parameter.name, hint, True)
        elif parameter.kind is parameter.VAR_KEYWORD:
            is_open = True
        elif parameter.kind is parameter.VAR_POSITIONAL:
            raise TypeError(f"*{parameter.name} cannot be filled from an object: name each parameter")
        else:
            default = MISSING if parameter.default is parameter.empty else parameter.default
            members.append(Member(parameter.name, hint, default is MISSING, default))
    if whole is not None and (members or is_open):
        raise TypeError(f"{whole.name} gets the entire input, so there can be no further parameters")
    builder = _Builder()
    schema = builder.schema(whole.hint) if whole is not None else builder.object(members, is_open)
    if whole is None and not members:
        # A caller who has nothing to say may say nothing.
        schema = {**schema, "type": ["object", "null"]}
    return Signature(
        input_schema=builder.with_definitions(schema),
        output_schema=schema_of(hints.get("return", Any)),
        context=context,
        whole=whole,
        members=tuple(members),
        is_open=is_open,
        positional=tuple(positional),
    )
