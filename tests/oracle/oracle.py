#!/usr/bin/env python3
"""An independent oracle for Catena's CAD003 encoding of JSON documents.

It shares no code with the Rust implementation: it was written from the prose description of the format alone, so that
agreement between the two is evidence and not an echo. Clarity is preferred to speed everywhere. Four parts:

  parse               strict JSON, from the literal text, to plain Python values
  encode, value_id    those values to CAD003 bytes and to the Value ID
  documents, invalid_documents    seeded source texts that must be accepted, or must be refused
  vectors, compare, ids           the command line

    oracle.py vectors FILE                                    check this file against the published vectors
    oracle.py compare --binary PATH [--count N] [--seed N]    check `PATH id` against this file
    oracle.py ids FILE                                        print the Value ID of each line

Exit codes: 0 all agree, 1 something differs, 2 usage or invalid input.
"""
import argparse
import decimal
import hashlib
import json
import math
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from typing import Any, Callable, Iterator, NoReturn, Optional

NESTING_MAX = 128           # containers open at once; a scalar inside the 128th is fine
INTEGER_BYTES_MAX = 4096    # two's complement, so the range is -2^32767 .. 2^32767 - 1
INTEGER_DIGITS_MAX = 9864   # digits of 2^32767: anything longer is out of range, and need not be converted to know it
EMBEDDED_BYTES_MAX = 140    # a child up to this size is written inline, a larger one as a reference
INVALID_COUNT = 200         # refused documents tried by `compare`
RUN_SECONDS_MAX = 600       # for one run of the program under comparison
sys.set_int_max_str_digits(INTEGER_DIGITS_MAX + 1)

# ---------------------------------------------------------------------------------------------------------- parsing


class Invalid(ValueError):
    """The text is not a document we accept."""


NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
PLAIN = re.compile(r'[^"\\\x00-\x1f]*')
HEX4 = re.compile(r"[0-9a-fA-F]{4}")
SPACE = re.compile(r"[ \t\n\r]*")
ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
WORDS = {"true": True, "false": False, "null": None}


def parse(text: bytes) -> Any:
    """The value of one JSON document: None, bool, int, float, str, list or dict. Raises Invalid."""
    try:
        reader = Reader(text.decode("utf-8"))  # refuses overlong forms, surrogates and code points past 10FFFF
    except UnicodeDecodeError as error:
        raise Invalid(f"not UTF-8: {error}") from None
    value = reader.value(0)
    if reader.at < len(reader.text):
        reader.fail("text after the document")
    return value


class Reader:
    """A cursor over the text. Every method leaves it behind what it read and, for values, behind the space after it."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def fail(self, reason: str) -> NoReturn:
        raise Invalid(f"{reason} at character {self.at}")

    def space(self) -> None:
        self.at = SPACE.match(self.text, self.at).end()

    def take(self, word: str) -> bool:
        found = self.text.startswith(word, self.at)
        self.at += len(word) if found else 0
        return found

    def expect(self, word: str, reason: str) -> None:
        self.take(word) or self.fail(reason)

    def value(self, depth: int) -> Any:
        """A value with `depth` containers open around it."""
        self.space()
        result = self.bare_value(depth)
        self.space()
        return result

    def bare_value(self, depth: int) -> Any:
        if self.take('"'):
            return self.string()
        for opening, container in (("[", self.array), ("{", self.object)):
            if self.take(opening):
                return container(depth + 1) if depth < NESTING_MAX else self.fail("nested too deeply")
        for word, meaning in WORDS.items():
            if self.take(word):
                return meaning
        return self.number()

    def array(self, depth: int) -> list:
        items: list = []
        self.space()
        if self.take("]"):
            return items
        while True:
            items.append(self.value(depth))
            if self.take("]"):
                return items
            self.expect(",", "expected , or ]")

    def object(self, depth: int) -> dict:
        members: dict = {}
        self.space()
        if self.take("}"):
            return members
        while True:
            self.space()
            self.expect('"', "expected a member name")
            name = self.string()
            self.space()
            self.expect(":", "expected :")
            members[name] = self.value(depth)  # a repeated name: the last one wins
            if self.take("}"):
                return members
            self.expect(",", "expected , or }")

    def number(self) -> Any:
        """An integer unless the literal has a fraction or an exponent: `1` and `1.0` are different values."""
        match = NUMBER.match(self.text, self.at) or self.fail("expected a value")
        literal, self.at = match[0], match.end()
        if match[1] or match[2]:
            double = float(literal)  # correctly rounded
            return self.fail("number too large for a double") if math.isinf(double) else double
        if len(literal.lstrip("-")) > INTEGER_DIGITS_MAX or integer_bytes(int(literal)) > INTEGER_BYTES_MAX:
            self.fail("integer over 4096 bytes")
        return int(literal)

    def string(self) -> str:
        """The rest of a string whose opening quote has been read."""
        parts = []
        while True:
            plain = PLAIN.match(self.text, self.at)
            parts.append(plain[0])
            self.at = plain.end()
            if self.take('"'):
                return "".join(parts)
            self.expect("\\", "control character in a string, or no closing quote")
            parts.append(self.escape())

    def escape(self) -> str:
        if not self.take("u"):
            letter = self.text[self.at:self.at + 1]
            self.at += 1
            return ESCAPES[letter] if letter in ESCAPES else self.fail("unknown escape")
        unit = self.code_unit()
        if 0xD800 <= unit <= 0xDBFF:
            low = self.code_unit() if self.take("\\u") else 0
            if not 0xDC00 <= low <= 0xDFFF:
                self.fail("unpaired surrogate")
            return chr(0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00))
        if 0xDC00 <= unit <= 0xDFFF:
            self.fail("unpaired surrogate")
        return chr(unit)

    def code_unit(self) -> int:
        match = HEX4.match(self.text, self.at) or self.fail("expected four hex digits")
        self.at = match.end()
        return int(match[0], 16)


# --------------------------------------------------------------------------------------------------------- encoding


def value_id(value: Any) -> str:
    return "0x" + sha3(encode(value)).hex()


def encode(value: Any) -> bytes:
    """The encoding of the root cell; children over 140 bytes appear in it as references."""
    if value is None:
        return b"\x00"
    if isinstance(value, bool):  # before int: Python counts bools among the integers
        return b"\xb1" if value else b"\xb0"
    if isinstance(value, int):
        return encode_integer(value)
    if isinstance(value, float):
        return b"\x1d" + struct.pack(">d", value)
    if isinstance(value, str):
        return encode_bytes(0x30, value.encode("utf-8"))
    if isinstance(value, list):
        return encode_vector([ref(encode(item)) for item in value])
    if isinstance(value, dict):
        members = ((encode(name), encode(member)) for name, member in value.items())
        return encode_map(sorted((sha3(name), ref(name) + ref(member)) for name, member in members))
    raise TypeError(f"not a JSON value: {type(value).__name__}")


def sha3(data: bytes) -> bytes:
    return hashlib.sha3_256(data).digest()


def ref(encoding: bytes) -> bytes:
    """How a cell is written inside another: itself if small, else tag 20 and its Value ID."""
    return encoding if len(encoding) <= EMBEDDED_BYTES_MAX else b"\x20" + sha3(encoding)


def vlq(count: int) -> bytes:
    """Base 128, most significant group first, high bit set on every byte but the last."""
    groups = [count & 0x7F]
    while count := count >> 7:
        groups.insert(0, 0x80 | count & 0x7F)
    return bytes(groups)


def integer_bytes(number: int) -> int:
    """Length of the shortest two's-complement form; zero has none."""
    return 0 if number == 0 else (number if number > 0 else ~number).bit_length() // 8 + 1


def encode_integer(number: int) -> bytes:
    size = integer_bytes(number)
    if size > INTEGER_BYTES_MAX:
        raise Invalid("integer over 4096 bytes")
    head = bytes([0x10 + size]) if size <= 8 else b"\x19" + vlq(size)
    return head + number.to_bytes(size, "big", signed=True)


def child_size(count: int, smallest: int) -> int:
    """Trees have 2 to 16 children: the smallest of smallest * 16^j of which 16 cover the count."""
    size = smallest
    while size * 16 < count:
        size *= 16
    return size


def encode_bytes(tag: int, data: bytes) -> bytes:
    """A string (30) or blob (31). Large ones are trees of blobs, cut by bytes, not by characters."""
    head = bytes([tag]) + vlq(len(data))
    if len(data) <= 4096:
        return head + data
    size = child_size(len(data), 4096)
    return head + b"".join(ref(encode_bytes(0x31, data[i:i + size])) for i in range(0, len(data), size))


def encode_vector(slots: list[bytes]) -> bytes:
    """Up to 16 slots inline; a ragged tail stands before the vector of what precedes it; full sixteens form a tree."""
    count, tail = len(slots), len(slots) % 16
    if count <= 16:
        body = slots
    elif tail:
        body = slots[-tail:] + [ref(encode_vector(slots[:-tail]))]
    else:
        size = child_size(count, 16)
        body = [ref(encode_vector(slots[i:i + size])) for i in range(0, count, size)]
    return b"\x80" + vlq(count) + b"".join(body)


def encode_map(entries: list[tuple[bytes, bytes]]) -> bytes:
    """Entries are (key hash, key slot and value slot), ascending by hash: a leaf up to 15, else split by hex digit."""
    head = b"\x82" + vlq(len(entries))
    if len(entries) <= 15:
        return head + b"".join(slots for _, slots in entries)
    shift = len(os.path.commonprefix([entries[0][0].hex(), entries[-1][0].hex()]))
    groups: dict[int, list] = {}
    for entry in entries:
        groups.setdefault(int(entry[0].hex()[shift], 16), []).append(entry)
    mask = sum(1 << digit for digit in groups)
    children = b"".join(ref(encode_map(groups[digit])) for digit in sorted(groups))
    return head + bytes([shift]) + mask.to_bytes(2, "big") + children


# ------------------------------------------------------------------------------------------------------- generation

ARRAY_LENGTHS = [0, 1, 15, 16, 17, 31, 32, 33, 47, 48, 49, 240, 255, 256, 257, 271, 272, 273, 288, 289, 512, 1000,
                 4080, 4095, 4096, 4097, 4112, 4352, 8192, 65536, 65537, 65552]
STRING_LENGTHS = [0, 1, 127, 128, 135, 136, 137, 138, 139, 140, 141, 4095, 4096, 4097, 4098, 8192, 8193, 9000, 12289,
                  16384, 16385, 65535, 65536, 65537, 69632, 69633]
OBJECT_SIZES = [*range(61), 255, 256, 257, 300, 500, 900]
NESTINGS = [2, 14, 15, 16, 17, 18, 60, 68, 69, 70, 71, 100, 126, 127, 128]
INTEGER_BITS = [63, 64, 127, 1079, 1087, 1088, 1095, 1096, 1103, 1104, 1600, 32751, 32752, 32759, 32760, 32766, 32767]
DOUBLES = """
    0.0 -0.0 0e0 -0e0 0E-5 -0.0e+9 0e999 -0e99999 0.0e-999999 1e5 1E5 1E+5 1e+05 1e-05 1.0 1.00 -1.5e0 100.0 1e2 0.1
    0.30000000000000004 5e-324 4.9e-324 2e-324 -3e-324 2.4703282292062328e-324 2.4703282292062327e-324 1e-400
    -1e-400 2.2250738585072011e-308 2.2250738585072014e-308 1.7976931348623157e308 1.7976931348623158e+308
    -1.7976931348623157E308 9007199254740993.0 9007199254740992.5 9223372036854775808.0 1e22 1e23 8.5e22
    12345678901234567890.5 1e308 123e-7 1.00000000000000011102230246251565404236316680908203125
    1.00000000000000011102230246251565404236316680908203124 1.00000000000000011102230246251565404236316680908203126
    3.141592653589793238462643383279502884197""".split()
# One character of each sort that readers get wrong: quotes, controls, the edges of each UTF-8 width and of the
# surrogate range, line separators that are not LF, a byte-order mark and noncharacters in a string, combining marks.
ODD = "\"\\/\b\f\n\r\t\0\x01\x1f\x7f\x80\x85\xa0\xe9\u0301\u07ff\u0800\u20ac\u2028\u2029\ud7ff\ue000" \
      "\ufeff\ufffd\uffff\U00010000\U0001f600\U0010ffff"
ASCII = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 _-.:,[]{}'?"


def documents(seed: int, count: int) -> Iterator[bytes]:
    """Valid one-line documents. Every third is the next of a shuffled sweep over the sizes where the encoding changes
    shape (all of them are met within about 700 documents); the others are random trees. Number i depends only on the
    seed and on i."""
    sweep = [("array", n) for n in ARRAY_LENGTHS] + [("object", n) for n in OBJECT_SIZES]
    sweep += [("long_string", n) for n in STRING_LENGTHS * 2] + [("nested", n) for n in NESTINGS]
    sweep += [("boxed_string", n) for n in range(125, 142)] + [("edge_integer", n) for n in INTEGER_BITS]
    sweep += [("kindred", n) for n in (1, 1, 2, 2, 3)] + [("long_string", 1048577)]
    random.Random(seed).shuffle(sweep)
    for i in range(count):
        source = Source(random.Random(f"valid {seed} {i}"))
        shape, size = sweep[i // 3 % len(sweep)] if i % 3 == 0 else ("value", source.rng.choice((1, 5, 30, 100)))
        yield (source.space() + getattr(source, shape)(size) + source.space()).encode("utf-8")


class Source:
    """Writes random JSON source text, spelling the same values in as many ways as the grammar allows."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def space(self) -> str:
        return "".join(self.rng.choices(" \t\r", k=self.rng.randrange(4))) if self.rng.random() < 0.1 else ""

    def value(self, room: int) -> str:
        """Any value, with at most `room` levels below it and about as many leaves."""
        if room <= 1 or self.rng.random() < 0.3:
            return self.scalar()
        size = self.rng.choice((0, 1, 2, 3, 5, 15, 16, 17, 33))
        room = (room - 1) // max(size, 1)
        return self.array(size, room) if self.rng.random() < 0.4 else self.object(size, room)

    def array(self, size: int, room: int = 1) -> str:
        item: Callable[[int], str] = lambda _: self.value(room)
        if size > 33:  # long arrays: cheap items, and sometimes alike ones so that whole subtrees are equal
            item = self.rng.choice((str, lambda _: "null", lambda i: f'"item-{i}"', lambda _: self.integer(16)))
        return "[" + (",".join(self.space() + item(i) + self.space() for i in range(size)) or self.space()) + "]"

    def object(self, size: int, room: int = 1) -> str:
        names = list(dict.fromkeys(self.text(self.rng.choice((0, 1, 2, 3, 8, 12))) for _ in range(size)))
        names += [f"k{i}" for i in range(size - len(names))]
        if size and self.rng.random() < 0.1:
            names[0] = self.text_of_bytes(self.rng.choice((136, 137, 138, 139, 4096, 4097)))
        return self.members(names, room)

    def members(self, names: list[str], room: int = 1) -> str:
        """An object; now and then a name is repeated, usually under another spelling."""
        if names and self.rng.random() < 0.3:
            names = names + self.rng.choices(names, k=self.rng.randrange(1, 4))
        pairs = (self.space() + self.quote(name) + self.space() + ":" + self.space() + self.value(room) + self.space()
                 for name in names)
        return "{" + (",".join(pairs) or self.space()) + "}"

    def kindred(self, digits: int) -> str:
        """An object whose names share the first hex digits of their hashes, so that tree nodes skip levels; in half of
        the cases with strangers among them, so that the skip happens below the root."""
        salt, prefix = self.text(3), f"{self.rng.getrandbits(4 * digits):0{digits}x}"
        wanted, names, i = self.rng.randrange(15, 22), [], 0
        while len(names) < wanted:
            name, i = f"{salt}{i}", i + 1
            names += [name] if sha3(encode(name)).hex().startswith(prefix) else []
        names += [f"stranger-{n}" for n in range(self.rng.choice((0, 0, 1, 20)))]
        self.rng.shuffle(names)
        return self.members(names)

    def nested(self, depth: int) -> str:
        pairs = [("[", "]"), ('{"child":', "}"), ("[0,", "]"), ('{"":', ',"b":null}')]
        chosen = [self.rng.choice(pairs)] * depth if self.rng.random() < 0.5 else self.rng.choices(pairs, k=depth)
        leaf = self.rng.choice(("1", "null", '"x"', "-0"))
        return "".join(p[0] for p in chosen) + leaf + "".join(p[1] for p in reversed(chosen))

    def boxed_string(self, size: int) -> str:
        """Containers whose own encodings lie around the embedding limit."""
        inner = self.quote(self.text_of_bytes(size))
        return self.rng.choice(('[[%s]]', '{"a":{"b":%s}}', '[[[[%s]]]]', '{"a":[%s,1]}')) % inner

    def long_string(self, size: int) -> str:
        return self.rng.choice(('%s', '[%s]', '{"text":%s}')) % self.quote(self.text_of_bytes(size))

    def scalar(self) -> str:
        kind = self.rng.randrange(10)
        if kind < 2:
            return self.rng.choice(("null", "true", "false"))
        if kind < 5:
            return self.integer(self.rng.choice((8, 16, 33, 64, 64, 66, 130, 1600)))
        if kind < 8:
            return self.double()
        return self.quote(self.text(self.rng.randrange(12)))

    def integer(self, bits_max: int) -> str:
        """Uniform in width, half of them next to a power of two; `-0` now and then."""
        bits = self.rng.randrange(bits_max + 1)
        number = 2 ** bits + self.rng.choice((-1, 0, 1)) if self.rng.random() < 0.5 else self.rng.getrandbits(bits)
        return self.rng.choice(("", "-")) + str(number)

    def edge_integer(self, bits: int) -> str:
        """The greatest and least integers of a width, alone or in an array (where the embedding limit shows)."""
        number = self.rng.choice((2 ** bits - 1, -2 ** bits, 2 ** bits - 2, 1 - 2 ** bits))
        return self.rng.choice(("%d", "[%d]")) % number

    def double(self) -> str:
        """A double in some spelling: shortest, padded, expanded, scaled, or on (or a hair off) a rounding boundary."""
        sort = self.rng.randrange(6)
        if sort == 0:
            return self.rng.choice(DOUBLES)
        bits = self.rng.getrandbits(self.rng.choice((20, 52, 63)))  # up to 52 bits is subnormal
        number = self.rng.choice((struct.unpack(">d", bits.to_bytes(8, "big"))[0], self.rng.uniform(-1e6, 1e6)))
        if not abs(number) < 1e308:
            number = 0.1
        literal = repr(number)
        if sort == 2:
            literal = f"{number:.{self.rng.randrange(45)}e}"
        elif sort == 3 and abs(number) < 1e25:
            literal = f"{number:.{self.rng.randrange(1, 400)}f}"
        elif sort == 4:
            literal = self.rounding_boundary(number)
        elif sort == 5:
            zeros = self.rng.randrange(1, 350)
            literal = self.rng.choice((f"0.{'0' * zeros}{bits}e+{zeros}", f"{bits or 1}{'0' * zeros}E-{zeros}"))
        if self.rng.random() < 0.5:
            literal = re.sub("e([+-]?)", self.rng.choice((r"E\1", r"e\g<1>00")), literal)
        return literal if literal[0] == "-" else self.rng.choice(("", "-")) + literal

    def rounding_boundary(self, number: float) -> str:
        """Exactly half-way between two neighbouring doubles, or a hair off it: up to 1600 digits."""
        with decimal.localcontext(decimal.Context(prec=1600)) as context:
            middle = (decimal.Decimal(number) + decimal.Decimal(math.nextafter(number, math.inf))) / 2
            nudge: Callable = self.rng.choice((lambda d: d, context.next_plus, context.next_minus))
            return f"{nudge(middle):e}"

    def text(self, length: int) -> str:
        pool = ASCII if self.rng.random() < 0.6 else ODD + ASCII[:20]
        return "".join(self.rng.choices(pool, k=length))

    def text_of_bytes(self, size: int) -> str:
        """Text of exactly that many UTF-8 bytes; wide characters start at any offset, so they straddle chunk limits."""
        alphabet = self.rng.choice((ASCII, "\xe9\xdf", "\u20ac\u4e2d", "\U0001f600", "a\xe9\u20ac\U0001f600"))
        room, parts = size, self.rng.choices(ASCII, k=min(size, self.rng.randrange(4)))
        room -= len(parts)
        for character in self.rng.choices(alphabet, k=size):
            if len(character.encode()) <= room:
                parts.append(character)
                room -= len(character.encode())
        return "".join(parts) + "z" * room

    def quote(self, text: str) -> str:
        """A string literal: raw where allowed, escaped where required and, to some chosen degree, in other places."""
        share = self.rng.choice((0, 0, 0.05, 1)) if len(text) < 20000 else 0.01
        return '"' + "".join(c if c >= " " and c not in '"\\' and (share == 0 or self.rng.random() >= share)
                             else self.escaped(c) for c in text) + '"'

    def escaped(self, character: str) -> str:
        short = [f"\\{letter}" for letter, meaning in ESCAPES.items() if meaning == character]
        if short and self.rng.random() < 0.5:
            return short[0]
        units = character.encode("utf-16-be").hex()
        units = self.rng.choice((units, units.upper(), units.title()))
        return "".join("\\u" + units[i:i + 4] for i in range(0, len(units), 4))


# Texts that are no document, by reason; split at spaces where none of them holds a space. One character stands for one
# byte (Latin-1), so that bytes which are not UTF-8 can be written too.
REFUSED: dict[str, list[str]] = {
    "number grammar": r"01 -01 00 -00.5 +1 .5 -.5 1. 1.e3 1e 1e+ 1E- - --1 1.5.5 1e5e5 1e1.5 1_000 0x10 1f 1L".split(),
    "digits outside ASCII": ["\xef\xbc\x91", "1\xd9\xa1", "1.\xd9\xa2"],
    "unknown word": "NaN -NaN Infinity -Infinity nul nulll True TRUE tru falsey None undefined nil".split(),
    "overflow": ["9" * 400 + ".0", *"1e400 -1e400 1.7976931348623159e308 -1.8E+308 1e99999999999999999999".split()],
    "integer over 4096 bytes": [str(2 ** 32767), str(-2 ** 32767 - 1), "1" + "0" * 9864, "-" + "9" * 20000],
    "lone surrogate": r"""
        "\ud800" "\udc00" "\udfff" "a\ud800b" "\ude00\ud83d" "\ud83d\ud83d\ude00" "\ud83d\u0041" "\uD83D\n"
        "\ud83d\\ude00" "\ud83dude00" "\ud83d\ude0" {"\udbff":1}""".split(),
    "escape": r""" "\x41" "\a" "\v" "\0" "\u12" "\u12G4" "\u+123" "\u-123" "\U0041" "\u{41}" "\'" "\" "\\\" """.split(),
    "raw control character": ['"\0"', '"\t"', '"\r"', '"a\x1fb"', '{"\b":1}', "[1,\0002]", "\f1", "1\v", "1\0"],
    "foreign space": ["\xc2\xa01", "1\xe2\x80\xa8", "1\xc2\x85", "\xe3\x80\x801", '{\xe2\x80\x8b"a":1}'],
    "byte-order mark": ["\xef\xbb\xbf1", "1\xef\xbb\xbf", '{\xef\xbb\xbf"a":1}', "\xff\xfe1\0", "\0001"],
    "bad UTF-8": ['"\xff"', '"\x80"', '"\xc3("', '"\xc3"', '"\xc0\xaf"', '"\xe0\x80\xaf"', '"\xed\xa0\x80"', "\xff1",
                  '"\xed\xa0\xbd\xed\xb8\x80"', '"\xf0\x9f\x98"', '"\xf4\x90\x80\x80"', '"\xf8\x88\x80\x80\x80"'],
    "array grammar": "[1,] [,1] [,] [1,,2] [1:2] [1;2] [1} [1 ] [ [[] []] [1]] (1)".split() + ["[1 2]"],
    "object grammar": """{"a"} {"a":} {"a":1,} {,} {,"a":1} {"a":1,,"b":2} {"a"::1} {"a",1} {a:1} {1:1} {null:1} {'a':1}
        {["a"]:1} {"a":1] {"a" {"a": {"a":1 { }""".split() + ['{"a":1 "b":2}', '{"a" 1}'],
    "not JSON": ["'x'", "//c", "/*c*/1", "1/*c*/", "1#c", "1;", '"a" "b"', "1 2", '"abc', "`x`", '"', ",", ":", "",
                 " \t\r"],
    "hidden by a later member": ['{"a":1e400,"a":1}', '{"a":01,"a":1}', r'{"a":"\ud800","\u0061":1}',
                                 '{"a":"\xff","a":1}'],
    "nested 129 deep": ["[" * 129 + "]" * 129, '{"a":' * 129 + "1" + "}" * 129, '[{"a":' * 64 + "[]" + "}]" * 64,
                        '{"a":[' * 64 + "{}" + "]}" * 64, "[" * 100000],
}


def invalid_documents(seed: int, count: int) -> Iterator[tuple[bytes, str]]:
    """One-line texts that must be refused, with the reason: a shuffled sweep, every fourth a damaged document."""
    sweep = [(text.encode("latin-1"), reason) for reason, texts in REFUSED.items() for text in texts]
    random.Random(seed).shuffle(sweep)
    for i in range(count):
        rng = random.Random(f"invalid {seed} {i}")
        yield damaged(rng) if i % 4 == 3 else sweep[(i - i // 4) % len(sweep)]


def damaged(rng: random.Random) -> tuple[bytes, str]:
    """A valid container after one change that no container survives, wherever in it the change falls."""
    source = Source(rng)
    make = rng.choice((source.array, source.object))
    good = make(rng.randrange(1, 20), rng.choice((1, 5))).encode("utf-8")
    at = rng.randrange(1, len(good))
    return rng.choice((
        (good[:at], "truncated"),
        (good[:at] + rng.choice((b"\x00", b"\x01", b"\x0b", b"\x1f")) + good[at:], "raw control character"),
        (good[:at] + rng.choice((b"\x80", b"\xc0", b"\xf5", b"\xff")) + good[at:], "bad UTF-8"),
        (good[:-1] + b"," + good[-1:], "trailing comma"),
        (good[:-1] + (b"}" if good[:1] == b"[" else b"]"), "wrong closing bracket"),
        (good + b" " + good, "two documents"),
        (good + good[-1:], "text after the document"),
        (b"[" * 128 + good + b"]" * 128, "nested 129 deep"),
        (b"[" + good + rb',"\udead"]', "lone surrogate"),
        (b"[" + good + b",-1E+309]", "overflow"),
        (b'{"a":' + good + b',"a" :1e999,"a":1}', "hidden by a later member"),
    ))


# ----------------------------------------------------------------------------------------------------- command line

GENERATORS: dict[str, Callable[[int], Any]] = {  # those of the vector file whose values JSON can express
    "vector_of_ints": lambda n: list(range(n)),
    "vector_of_nil": lambda n: [None] * n,
    "vector_of_strings": lambda n: [f"item-{i}" for i in range(n)],
    "map_str_int": lambda n: {f"k{i}": i for i in range(n)},
    "map_str_int_rev": lambda n: {f"k{i}": i for i in reversed(range(n))},
    "map_str_str": lambda n: {f"key-{i}": f"value-{i}" for i in range(n)},
    "string_a": lambda n: "a" * n,
    "string_abc": lambda n: "".join(chr(97 + i % 26) for i in range(n)),
    "string_euro": lambda n: "\u20ac" * n,
    "nested_vec": lambda n: None if n == 0 else [GENERATORS["nested_vec"](n - 1)],
    "nested_map": lambda n: None if n == 0 else {"child": GENERATORS["nested_map"](n - 1)},
}


class Tally:
    """Counts checks and shows the first few that fail."""

    def __init__(self) -> None:
        self.passed, self.failed = 0, 0

    def check(self, good: bool, complaint: str) -> None:
        self.passed, self.failed = self.passed + good, self.failed + (not good)
        if not good and self.failed <= 5:
            print(complaint)

    def close(self) -> int:
        print(f"{self.passed} passed, {self.failed} failed")
        return 1 if self.failed else 0


def refusal(text: bytes) -> Optional[str]:
    """Why we refuse the text, or None if it is a document."""
    try:
        parse(text)
    except Invalid as reason:
        return str(reason)
    return None


def vectors(path: str) -> int:
    """Every vector that JSON can express. Those that rest on a lossy reading by the reference must be refused here."""
    with open(path, encoding="utf-8") as file:
        published = json.load(file)
    tally, skipped = Tally(), 0
    for vector in published["vectors"] + published["multicell"]:
        text = bytes.fromhex(vector["json_utf8_hex"]) if "json_utf8_hex" in vector else vector.get("json", "").encode()
        wrapped = re.fullmatch(r"\[ (\w+)\((\d+)\) \]", vector.get("json_gen", ""))
        overflow = vector.get("note", "").startswith("overflow")
        if overflow or "json_utf8_hex" in vector or vector.get("category") == "string_quirk":
            tally.check(refusal(text) is not None, f"{vector['name']}: accepted, should be refused")
        elif text:
            check_vector(tally, vector, lambda: parse(text))
        elif vector.get("gen") in GENERATORS:
            check_vector(tally, vector, lambda: GENERATORS[vector["gen"]](vector["n"]))
        elif wrapped:
            check_vector(tally, vector, lambda: [GENERATORS[wrapped[1]](int(wrapped[2]))])
        else:
            skipped += 1
    for case in published["json_syntax"]:
        tally.check((refusal(case["json"].encode()) is not None) == (case["reference"] == "reject"), f"syntax: {case}")
    print(f"{skipped} vectors left out: not JSON values")
    return tally.close()


def check_vector(tally: Tally, vector: dict, value: Callable[[], Any]) -> None:
    try:
        encoding = encode(value())
    except Invalid as reason:
        return tally.check(False, f"{vector['name']}: refused: {reason}")
    known = {"encoding_hex": encoding.hex(), "encoding_len": len(encoding), "value_id": sha3(encoding).hex(),
             "embedded": len(encoding) <= EMBEDDED_BYTES_MAX}
    wrong = [key for key in known if key in vector and vector[key] != known[key]]
    tally.check(not wrong, f"{vector['name']}: differs in {', '.join(wrong)}")


def compare(binary: str, count: int, seed: int) -> int:
    """Our ids against those of `binary id --lines`, then `binary id -` on texts that it must refuse."""
    program = shutil.which(os.path.abspath(binary)) or shutil.which(binary)
    if program is None:
        print(f"no such program: {binary}", file=sys.stderr)
        return 2
    tally, texts = Tally(), list(documents(seed, count))
    with tempfile.TemporaryDirectory() as folder:
        lines = os.path.join(folder, "documents")
        with open(lines, "wb") as file:
            file.writelines(text + b"\n" for text in texts)
        result = run([program, "id", "--lines", lines])
    theirs = result.stdout.decode("utf-8", "replace").splitlines()
    if result.returncode != 0 or len(theirs) != len(texts):
        print(f"{len(theirs)} ids for {len(texts)} documents, exit code {result.returncode}: {cut(result.stderr)}")
    for number, text in enumerate(texts):
        ours, their = value_id(parse(text)), theirs[number] if number < len(theirs) else "no id"
        tally.check(ours == their, f"document {number}: {cut(text)}\n  expected {ours}\n  found    {their}")
    tally.check(result.returncode == 0 and len(theirs) <= len(texts), "documents: wrong exit code or extra lines")
    for text, reason in invalid_documents(seed, INVALID_COUNT):
        result = run([program, "id", "-"], text)
        found = f"exit code {result.returncode}, stdout {cut(result.stdout)}"
        tally.check(result.returncode == 2 and not result.stdout, f"not refused ({reason}): {cut(text)}\n  {found}")
    return tally.close()


def run(command: list[str], text: bytes = b"") -> subprocess.CompletedProcess:
    """Runs a command on some input; one that hangs counts as one that failed."""
    try:
        return subprocess.run(command, input=text, capture_output=True, check=False, timeout=RUN_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, -1, b"", b"timed out")


def cut(text: bytes) -> str:
    return ascii(text[:800].decode("utf-8", "backslashreplace"))[1:-1][:200]


def ids(path: str) -> int:
    """One id a line. Stops at the first line that is no document."""
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                print(value_id(parse(line.removesuffix(b"\n"))))
            except Invalid as reason:
                print(f"line {number}: {reason}", file=sys.stderr)
                return 2
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description="An independent oracle for Catena's CAD003 encoding.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("vectors", help="check this file against the published vectors").add_argument("file")
    commands.add_parser("ids", help="print the Value ID of each line").add_argument("file")
    command = commands.add_parser("compare", help="check a program's ids and refusals against this file")
    command.add_argument("--binary", required=True)
    command.add_argument("--count", type=int, default=1000)
    command.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    try:
        if options.command == "compare":
            return compare(options.binary, options.count, options.seed)
        return vectors(options.file) if options.command == "vectors" else ids(options.file)
    except OSError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
