#!/usr/bin/env python3
"""Checks the house of src/: a core whose files include their own room and lower floors only, and wings, which include
the core and which cli alone includes. kernels/ meets the host through its headers (.h) alone. No folder of the
repository holds over two dozen files. Prints each breach as file:line and exits 1 if there is one."""
import pathlib
import re
import sys

FLOORS = {"base": 0, "runtime": 1, "workload": 1, "variant": 2, "backend": 3, "record": 3, "tune": 4, "check": 5, "export": 5,
          "report": 5, "cli": 6, "main.cpp": 7}
FOLDER_FILES = 24  # at most
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
        elif kind == '"' and (root / "kernels" / name).exists():
            breaches.append(f"{where}: includes {name}: name the folder, kernels/{name}")
        elif kind == '"' and target in FLOORS and target != room and FLOORS[target] >= FLOORS[room]:
            breaches.append(f"{where}: {room} (floor {FLOORS[room]}) includes {name} (floor {FLOORS[target]})")

for path in sorted(filter(pathlib.Path.is_file, (root / "kernels").rglob("*"))):
    for number, kind, name in includes(path):
        if kind == "<" or not (root / "kernels" / name).exists():
            breaches.append(f"{path.relative_to(root)}:{number}: includes {name}, which is outside kernels/")

for top in ("configs", "kernels", "scripts", "src", "tests"):
    for folder in filter(pathlib.Path.is_dir, [root / top, *(root / top).rglob("*")]):
        count = sum(path.is_file() for path in folder.iterdir())
        if count > FOLDER_FILES and folder.name != "__pycache__":
            breaches.append(f"{folder.relative_to(root)}: {count} files; a folder holds at most {FOLDER_FILES}: make rooms")

print("\n".join(breaches) or f"layers: {len(FLOORS) - 1} rooms keep to their floors")
sys.exit(1 if breaches else 0)
