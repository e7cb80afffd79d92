"""Damage to the content of files, drawn from a seeded generator."""

import io
import json
import random
import zipfile
from collections.abc import Callable
from typing import Any

Mutate = Callable[[bytes, random.Random], bytes]

VALUES = (
    None, True, -1, 0, 10**25, 10**400, -(10**30), 1e308, -1e-308, float("nan"), float("inf"),
    "", "x", "../../x", "\0", "\ud800", [], {}, [[]], {"a": {"b": []}}, [1, "a", None], 0.5, 2,
)  # fmt: skip
DEEP = "[" * 50_000 + "]" * 50_000
HUGE = "9" * 5_000


def of_bytes(content: bytes, draw: random.Random) -> bytes:
    """Damage that any file can have: cut, empty, flipped bits, other bytes."""
    place = draw.randrange(len(content) + 1)
    made = bytearray(content)
    match draw.randrange(7):
        case 0:
            return content[:place]
        case 1:
            return b""
        case 2:
            return draw.randbytes(draw.randrange(1, 2000))
        case 3:
            for _ in range(draw.randrange(1, 9)):
                made[draw.randrange(len(made))] ^= 1 << draw.randrange(8)
        case 4:
            made[place:place] = draw.randbytes(draw.randrange(1, 50))
        case 5:
            made[place : place + draw.randrange(1, 50)] = b""
        case 6:
            end = place + draw.randrange(1, 200)
            made[place:end] = bytes(len(made[place:end]))
    return bytes(made)


def of_json(content: bytes, draw: random.Random) -> bytes:
    """One value of a JSON text replaced, removed, repeated or renamed."""
    if draw.random() < 0.2:
        return of_bytes(content, draw)
    found = json.loads(content)
    parent, key = draw.choice(list(_places(found)))
    kind = draw.randrange(6)
    if parent is None:
        return json.dumps(draw.choice(VALUES)).encode()
    if kind == 0:
        del parent[key]
    elif kind == 1 and isinstance(parent, dict):
        parent[draw.choice(("", "__class__", "x" * 1000))] = parent.pop(key)
    elif kind == 2:
        parent[key] = "@@"
        text = json.dumps(found)
        return text.replace('"@@"', draw.choice((DEEP, HUGE, '1, "a": 2', "1e999"))).encode()
    else:
        parent[key] = draw.choice(VALUES)
    return json.dumps(found).encode()


def of_lines(content: bytes, draw: random.Random) -> bytes:
    """One line of a file of JSON lines damaged."""
    lines = content.splitlines()
    place = draw.randrange(len(lines))
    lines[place] = of_json(lines[place], draw)
    return b"\n".join(lines) + b"\n"


def of_table(content: bytes, draw: random.Random) -> bytes:
    """A cell, a column or a line of a CSV file damaged."""
    rows = [line.split(",") for line in content.decode().splitlines()]
    row, column = draw.randrange(len(rows)), draw.randrange(len(rows[0]))
    match draw.randrange(7):
        case 0:
            return of_bytes(content, draw)
        case 1:
            rows = [cells[:column] + cells[column + 1 :] for cells in rows]
        case 2:
            del rows[row]
        case 3:
            rows[0][column] = draw.choice(rows[0])
        case 4:
            rows[row].append("more")
        case 5:
            rows[row] = rows[row][:column]
        case 6:
            cell = draw.choice(["", "x", "-1", "1e999", "nan", "9" * 400, '"', "\0", "\ud7ff"])
            rows[row][column] = cell
    return "\n".join(",".join(cells) for cells in rows).encode() + b"\n"


def of_zip(content: bytes, draw: random.Random) -> bytes:
    """An archive with entries renamed, lost, swapped, encrypted, or of an unknown compression."""
    kind = draw.randrange(7)
    if kind < 2:
        return of_bytes(content, draw)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        entries = [(name, archive.read(name)) for name in archive.namelist()]
    place = draw.randrange(len(entries))
    name, own = entries[place]
    if kind == 2:
        names = ["../../x.npy", "/etc/x", "C:\\x", "a/../../b.png", "x" * 5000]
        entries[place] = (draw.choice(names), own)
    elif kind == 3:
        del entries[place]
    elif kind == 4:
        other = draw.randrange(len(entries))
        entries[place], entries[other] = (name, entries[other][1]), (entries[other][0], own)
    elif kind == 5:
        entries[place] = (name, of_array(own, draw) if name.endswith(".npy") else b"")
    file = io.BytesIO()
    method = draw.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA])
    with zipfile.ZipFile(file, "w", method) as archive:
        for entry, value in entries:
            archive.writestr(entry, value)
    made = bytearray(file.getvalue())
    if kind == 6:  # the flags or the compression of an entry in the directory
        start = made.find(b"PK\x01\x02")
        made[start + draw.choice((8, 10))] = draw.choice((1, 97, 255))
    return bytes(made)


def of_array(content: bytes, draw: random.Random) -> bytes:
    """A .npy file whose header claims something else."""
    if draw.random() < 0.3:
        return of_bytes(content, draw)
    shape = draw.choice(
        ["(10000000000,)", "(1000000000000000,)", "(-1, 4)", "(0, 1000000000000)", "()", "(3,)",
         "(1000000, 1000000, 1000000)", "('a',)", "(1,) * 9", "((1,),)", "(" * 500 + ")" * 500]
    )  # fmt: skip
    kind = draw.choice(["<f4", "|O", "<U0", "|V8", "<f8", "<U99999999", "[('a', '<f4')]", "x", ""])
    described = f"'{kind}'" if not kind.startswith("[") else kind
    header = f"{{'descr': {described}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + content[80:]


def of_tensors(content: bytes, draw: random.Random) -> bytes:
    """A safetensors file with another header."""
    size = int.from_bytes(content[:8], "little")
    if draw.random() < 0.3:
        return of_bytes(content, draw)
    header = of_json(content[8 : 8 + size], draw)
    claimed = draw.choice([len(header), 2**63, 2**40, 0, size])
    return claimed.to_bytes(8, "little") + header + content[8 + size :]


def of_checkpoint(content: bytes, draw: random.Random) -> bytes:
    """A file of torch.save with values lost, or of another type or shape."""
    import torch

    if draw.random() < 0.3:
        return of_bytes(content, draw)
    found = torch.load(io.BytesIO(content), weights_only=True)
    places = [place for place in _places(found) if place[0] is not None]
    parent, key = draw.choice(places)
    if draw.random() < 0.3:
        del parent[key]
    else:
        others = [torch.zeros(3), torch.ones(2, 2).bool(), torch.zeros(1).expand(10**12)]
        parent[key] = draw.choice([None, -1, 10**30, "x", [], {}, float("nan"), *others])
    file = io.BytesIO()
    torch.save(found, file)
    return file.getvalue()


def _places(value: Any, parent: Any = None, key: Any = None) -> list[tuple[Any, Any]]:
    """Each value that can be replaced, as its container and its key in there."""
    found = [(parent, key)]
    inside: Any = ()
    if isinstance(value, dict):
        inside = value.items()
    elif isinstance(value, list):
        inside = list(enumerate(value))[:3]
    for name, item in list(inside):
        found += _places(item, value, name)
    return found
