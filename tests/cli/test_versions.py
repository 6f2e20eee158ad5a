"""The promise of CHANGELOG.md: files of earlier versions, kept in tests/cli/files, are read. Add files there, replace none."""
import json
import pathlib
import re
import shutil

import pytest

from conftest import SOURCE

FILES = sorted((SOURCE / "tests/cli/files").rglob("*.json*"))
TABLES = [path for path in FILES if path.name.startswith("table")]
JOURNALS = [path for path in FILES if path.name.startswith("journal")]


def kind_of(path):
    return re.split(r"[-.]", path.name)[0]


def test_every_kind_has_a_file_from_before(room):
    kinds = {item["name"] for item in json.loads(room.ok("list", "schemas", "--format", "json").stdout)["items"]}
    assert {kind_of(path) for path in FILES} == kinds


def test_they_are_valid(room):
    files = json.loads(room.ok("validate", *FILES, "--format", "json").stdout)["files"]
    assert [(pathlib.Path(file["file"]), file["kind"], file["version"]) for file in files] == [
        (path, kind_of(path), 1) for path in FILES]


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_tables_give_their_winners(room, path):
    for entry in json.loads(path.read_text(encoding="utf-8"))["entries"]:
        cell = entry["cell"]
        layer = [word for key in ("experts", "top_k", "n", "k", "dtype", "projection", "op", "tokens", "routing", "seed")
                 for word in ("--" + key.replace("_", "-"), str(cell[key]))]
        answer, = json.loads(room.ok("lookup", path, *layer, "--format", "json").stdout)["answers"]
        assert answer["match"] == "exact" and answer["entry"]["id"] == entry["id"]
        for knob, value in entry["candidate"].items():
            assert answer["entry"]["candidate"].get(knob, value) == value, knob
    room.ok("export", path)


@pytest.mark.parametrize("path", JOURNALS, ids=lambda path: path.stem)
def test_journals_merge(room, path):
    copy = room.path / "copy.jsonl"
    shutil.copy(path, copy)
    room.ok("merge", path, copy, "-o", "both.jsonl")
    def trials(file):
        lines = map(json.loads, file.read_text(encoding="utf-8").splitlines())
        return sum(line["kind"] == "trial" for line in lines)
    assert trials(room.path / "both.jsonl") == trials(path) > 0


def test_unknown_fields_are_ignored(room):
    table = json.loads(TABLES[0].read_text(encoding="utf-8"))
    table["later"] = {"a": 1}
    table["entries"][0]["later"] = table["entries"][0]["measurement"]["later"] = "b"
    room.ok("validate", room.write("later.json", table))
    room.ok("export", "later.json")


def test_a_later_number_is_refused_with_both_numbers(room):
    table = json.loads(TABLES[0].read_text(encoding="utf-8"))
    table["schema"] = "moetune.table/2"
    assert "its schema is 'moetune.table/2', expected 'moetune.table/1'" in room.error(
        2, "export", room.write("later.json", table))
