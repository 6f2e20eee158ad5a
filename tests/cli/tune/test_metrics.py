"""A metric besides time, planted as energy: journals, tables, exports, the report and check carry it."""
import csv
import io
import json
import re

import pytest

from conftest import FEW, TINY, validate

STEADY = "waited:0;steady:100"  # 100 to 100.6 us, whatever else the machine does
JOULES = r"0\.03(0\d)? ± 0\.\d"  # of 300 watts


def plant(watts):
    return {"MOETUNE_PLANT": f"{STEADY};watts:{watts}"}


def test_every_file_and_table_carries_a_metric(planted):
    shown = planted.ok("tune", *TINY, *FEW, env=plant(300)).stdout
    assert "energy (J)" in shown and re.search(JOULES, shown)
    table, journal = "moetune-table.json", "moetune-table.json.journal.jsonl"
    trial = next(line for line in planted.journal() if line["kind"] == "trial")
    assert trial["blocks"]["energy_j"] == pytest.approx([300e-6 * us for us in trial["blocks"]["us"]], rel=1e-5)
    entry, = planted.json(table)["entries"]
    for one in (trial, entry, *entry["rivals"]):
        energy = one["measurement"]["metrics"]["energy_j"]
        assert energy["median"] == pytest.approx(300e-6 * one["measurement"]["median_us"], rel=1e-5)
        assert energy["low"] <= energy["median"] <= energy["high"]
    validate("table", planted.path / table)
    planted.ok("validate", table, journal)

    row, = csv.DictReader(io.StringIO(planted.ok("export", table, "--format", "csv").stdout))
    energy = entry["measurement"]["metrics"]["energy_j"]
    assert [float(row[f"energy_j{end}"]) for end in ("", "_low", "_high")] == list(energy.values())
    loop, = [rival for rival in entry["rivals"] if rival["name"] == row["baseline"]]
    assert float(row["baseline_energy_j"]) == loop["measurement"]["metrics"]["energy_j"]["median"]
    for page in (planted.ok("export", table, "--format", "markdown").stdout,
                 planted.ok("report", table, "--format", "markdown", "-o", "-").stdout):
        assert "energy (J) |" in page and re.search(JOULES + r" % +\|", page)
    assert "energy vs loop |" in page

    bench = json.loads(planted.ok("bench", "--table", table, "--device", "cpu", "--rounds", "5", "--format", "json",
                                  env=plant(300)).stdout)
    assert all("energy_j" in point["measurement"]["metrics"] for point in bench["points"])

    # A tenth more energy in the same time: shown, and no regression.
    check = "check", table, "--device", "cpu", "--rounds", "5"
    found = planted.ok(*check, "-o", "check.json", env=plant(330)).stdout
    finding, = planted.json("check.json")["findings"]
    assert finding["finding"] == "equivalent"
    assert finding["metric_changes"]["energy_j"]["change"] == pytest.approx(0.1, abs=0.01)
    assert "energy" in found and re.search(r"\+(9|10)\.\d % ± ", found)
    validate("check", planted.path / "check.json")
    without = planted.ok(*check, env={"MOETUNE_PLANT": STEADY}).stdout  # a backend that does not measure it
    assert "energy" not in without
