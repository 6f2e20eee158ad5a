"""tune --append: new cells join a table, those that it holds stay as they are."""
import json

from conftest import CPU, FEW, LAYER, trials, validate

TABLE = "moetune-table.json"


def cells(*tokens):
    return [*CPU, *LAYER, "--tokens", ",".join(map(str, tokens))]


def tokens_of(table):
    return [entry["cell"]["tokens"] for entry in table["entries"]]


def test_new_cells_join_and_known_ones_stay(room):
    room.ok("tune", *cells(8, 16), *FEW)
    before = room.json(TABLE)
    result = room.ok("tune", "--append", *cells(4, 16, 32, 8), *FEW)
    after = room.json(TABLE)
    assert tokens_of(after) == [8, 16, 4, 32]
    assert after["entries"][:2] == before["entries"]
    assert f"{TABLE} holds 2 of 4 cells already: --append tunes the others" in result.stderr
    assert "4 of 4 cells " in result.stdout
    assert {cell.split("/t")[1].split("/")[0] for cell, _ in trials(room.journal())} == {"4", "32"}
    assert room.files() == [TABLE, f"{TABLE}.journal.jsonl", f"{TABLE}.journal.jsonl.old"]
    assert "--append" in after["tool"]["argv"]
    validate("table", room.path / TABLE)
    validate("journal", room.path / f"{TABLE}.journal.jsonl")


def test_a_table_that_holds_all_cells_is_left_alone(room):
    room.ok("tune", *cells(8, 16), *FEW)
    before, journal = (room.path / TABLE).read_bytes(), room.journal()
    result = room.ok("tune", "--append", *cells(16), *FEW)
    assert f"{TABLE} holds all these cells already: nothing is tuned" in result.stderr
    assert "--warm-start" not in result.stderr
    assert (room.path / TABLE).read_bytes() == before and room.journal() == journal
    assert "1 of 1 cell " in result.stdout and "| 8 |" not in " ".join(result.stdout.split())
    shown = json.loads(room.ok("tune", "--append", *cells(16), *FEW, "--format", "json").stdout)
    assert shown["entries"] == json.loads(before)["entries"][1:]


def test_without_a_table_one_begins(room):
    result = room.ok("tune", "--append", *cells(8), *FEW)
    assert f"{TABLE} does not exist: --append begins a new table" in result.stderr
    assert tokens_of(room.json(TABLE)) == [8]


def test_another_device_environment_or_regime_is_refused(room):
    room.ok("tune", *cells(8), *FEW)
    table = room.json(TABLE)
    for part, message in (("device", "tables of different devices"), ("environment", "the environments don't compare"),
                       ("regime", "the regimes sustained and burst don't compare")):
        other = json.loads(json.dumps(table))
        if part == "device":
            other["device"]["name"] = "another cpu"
        elif part == "regime":
            other["regime"] = "sustained"
        else:
            other["environment"]["identity"]["kernels"] = "others"
        room.write(TABLE, other)
        journal = room.journal()
        text = room.error(3, "tune", "--append", *cells(16), *FEW)
        assert f"--append: cells of this run cannot be added to {TABLE}: {message}" in text
        assert "hint: name another table with -o, or tune all cells again without --append" in text
        assert room.error(3, "tune", "--append", *cells(16), *FEW, "--dry-run")
        assert room.json(TABLE) == other and room.journal() == journal
        assert room.files() == [TABLE, f"{TABLE}.journal.jsonl"]


def test_an_unfinished_cell_is_tuned_again_in_its_place(room):
    room.ok("tune", *cells(8, 16), *FEW)
    table = room.json(TABLE)
    table["entries"][0]["complete"] = False
    room.write(TABLE, table)
    room.ok("tune", "--append", *cells(8, 16), *FEW)
    after = room.json(TABLE)
    assert tokens_of(after) == [8, 16] and after["entries"][0]["complete"]
    assert after["entries"][1] == table["entries"][1]


def test_dry_run_counts_the_new_cells(room):
    room.ok("tune", *cells(8), *FEW)
    plan = json.loads(room.ok("tune", "--append", *cells(8, 16), "--dry-run", "--format", "json").stdout)
    assert [cell["cell"]["tokens"] for cell in plan["cells"]] == [16]
