#!/usr/bin/env python3
"""Checks files that moetune wrote against configs/schema.

usage: validate.py KIND FILE...     KIND: table, journal, bench, verify, check, ...; FILE - is standard input
Exit 0: all are valid. 1: one isn't; each fault is printed as FILE: PLACE: what. 2: wrong usage.
"""
import json
import pathlib
import sys

SCHEMAS = pathlib.Path(__file__).resolve().parents[2] / "configs" / "schema"


def kinds():
    return sorted(path.stem for path in SCHEMAS.glob("*.json") if path.stem != "common")


def load_schema(kind):
    """One schema with the shared definitions folded in: no library version then has to resolve files."""
    text = (SCHEMAS / f"{kind}.json").read_text(encoding="utf-8")
    schema = json.loads(text.replace('"common.json#/', '"#/'))
    common = json.loads((SCHEMAS / "common.json").read_text(encoding="utf-8"))["$defs"]
    schema["$defs"] = {**common, **schema.get("$defs", {})}
    return schema


def place(path):
    """entries[3].cell.tokens, or "the top" for the document itself."""
    words = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return words.lstrip(".") or "the top"


def leaves(error):
    """The faults behind a failed oneOf or anyOf: those of the branch that came nearest."""
    if not error.context:
        return [error]
    branches = {}
    for inner in error.context:
        branches.setdefault(inner.schema_path[0], []).append(inner)
    nearest = min(branches.values(), key=len)
    return [leaf for inner in nearest for leaf in leaves(inner)]


def refuse_constant(word):
    raise ValueError(f"{word} is not JSON")


def unique_keys(pairs):
    keys = [key for key, _ in pairs]
    twice = {key for key in keys if keys.count(key) > 1}
    if twice:
        raise ValueError(f"key {sorted(twice)[0]!r} appears twice")
    return dict(pairs)


def documents(name, kind):
    """(where, parsed or ValueError) of each JSON document in the file: one, or one a line for a journal."""
    if name == "-":
        text = sys.stdin.read()
    else:
        text = pathlib.Path(name).read_text(encoding="utf-8")
    pieces = [(name, text)]
    if kind == "journal":
        pieces = [(f"{name}:{number}", line) for number, line in enumerate(text.splitlines(), 1)]
    for where, piece in pieces:
        try:
            yield where, json.loads(piece, parse_constant=refuse_constant, object_pairs_hook=unique_keys)
        except ValueError as error:
            yield where, error


def faults(name, kind, validator):
    try:
        found = list(documents(name, kind))
    except (OSError, UnicodeDecodeError) as error:
        yield f"{name}: {error}"
        return
    if not found:
        yield f"{name}: empty"
    for number, (where, value) in enumerate(found):
        if isinstance(value, ValueError):
            yield f"{where}: {value}"
            continue
        is_header = isinstance(value, dict) and value.get("kind") == "header"
        if kind == "journal" and is_header != (number == 0):
            yield f"{where}: the first line, and no other, is the header"
        for error in sorted(validator.iter_errors(value), key=lambda e: place(e.absolute_path)):
            for leaf in leaves(error):
                message = leaf.message if len(leaf.message) < 300 else leaf.message[:300] + " ..."
                yield f"{where}: {place(leaf.absolute_path)}: {message}"


def main(arguments):
    if len(arguments) < 2 or arguments[0] not in kinds():
        print(f"usage: validate.py KIND FILE...\nKIND is one of: {', '.join(kinds())}", file=sys.stderr)
        return 2
    import jsonschema

    schema = load_schema(arguments[0])
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    wrong = [fault for name in arguments[1:] for fault in faults(name, arguments[0], validator)]
    for fault in wrong:
        print(fault, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
