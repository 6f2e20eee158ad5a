#!/usr/bin/env python3
"""Checks the floors of src/: a file includes its own room and lower floors only, and kernels/ meets the host through
its headers (.h) alone. Prints each breach as file:line and exits 1 where there is one."""
import pathlib
import re
import sys

FLOORS = {"loader": 0, "base": 0, "workload": 1, "variant": 2, "backend": 3, "table": 3, "tune": 4, "cli": 5, "main.cpp": 6}
FORBIDDEN_NAMES = {"utils", "util", "common", "helpers", "helper", "manager", "detail", "impl", "misc"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')

root = pathlib.Path(__file__).resolve().parent.parent
breaches = []


def includes(path):
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if match := INCLUDE.match(line):
            yield number, match.group(1), match.group(2)


for path in sorted((root / "src").rglob("*")):
    if FORBIDDEN_NAMES & {path.stem, path.name}:
        breaches.append(f"{path.relative_to(root)}: the name says nothing: name the file by what is in it")
    if path.suffix not in (".h", ".cpp", ".inc"):
        continue
    room = path.relative_to(root / "src").parts[0]
    if room not in FLOORS:
        breaches.append(f"{path.relative_to(root)}: the room is not in FLOORS of scripts/layers.py")
        continue
    for number, kind, name in includes(path):
        target = name.split("/")[0]
        where = f"{path.relative_to(root)}:{number}"
        if kind == '"' and target == "kernels" and not name.endswith(".h"):
            breaches.append(f"{where}: device code; the host reads headers (.h) of kernels/ only")
        elif kind == '"' and target in FLOORS and target != room and FLOORS[target] >= FLOORS[room]:
            breaches.append(f"{where}: {room} (floor {FLOORS[room]}) includes {name} (floor {FLOORS[target]})")

for path in sorted((root / "kernels").iterdir()):
    for number, kind, name in includes(path):
        if kind == "<" or not (root / "kernels" / name).exists():
            breaches.append(f"{path.relative_to(root)}:{number}: includes {name}, which is outside kernels/")

print("\n".join(breaches) or f"layers: {len(FLOORS) - 1} rooms keep to their floors")
sys.exit(1 if breaches else 0)
