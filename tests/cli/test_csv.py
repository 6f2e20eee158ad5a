"""CSV: numbers alone, the unit in the header, the same columns for the same thing."""
import csv
import io

from conftest import CPU

CELL = ["id", "model", "projection", "op", "dtype", "scales", "out_dtype", "fast_sums", "weights",
        "experts", "top_k", "n", "k", "tp", "ep", "zero_experts", "permute_x", "permute_y", "by_slot",
        "topk_weights", "accumulate", "fp32_dw", "sum_slots",
        "weight_gradient", "silu", "gelu", "gpt_oss", "interleaved", "store_h", "bias", "tokens", "routing", "seed"]


def rows_of(result):
    """Rows as dictionaries; every line has every column."""
    lines = list(csv.reader(io.StringIO(result.stdout)))
    assert all(len(line) == len(lines[0]) for line in lines), result.stdout
    assert len(set(lines[0])) == len(lines[0])
    return [dict(zip(lines[0], line)) for line in lines[1:]]


def test_csv_of_tune_quotes_as_rfc_4180_says(room):
    room.write("suite.json", {"schema": "moetune.suite/1",
                              "cells": [{"experts": 4, "top_k": 2, "n": 64, "k": 64, "routing": "trace:q\"uoted.json"}]})
    (room.path / "q\"uoted.json").write_text('{"experts": 4, "top_k": 2, "tokens": 6, "layers": {"x, y": [6, 3, 2, 1]}}')
    result = room.ok("tune", *CPU, "--suite", "suite.json", "--max-candidates", "1", "-q", "--format", "csv")
    row, = rows_of(result)
    assert list(row)[2:2 + len(CELL)] == CELL
    assert (row["variant"], row["stages"], row["n"]) == ("cpu", "", "64") and float(row["low_us"]) <= float(row["median_us"])
    assert row["routing"] == "trace:q\"uoted.json#x, y"
    assert '"trace:q""uoted.json#x, y"' in result.stdout


def test_csv_of_bench_and_of_a_dry_run_has_a_row_a_result(room):
    cells = [*CPU, "--experts", "4", "--top-k", "2", "--n", "64", "--k", "64", "--tokens", "8,16", "--format", "csv"]
    planned = rows_of(room.ok("tune", *cells, "--dry-run", "--space", "quick", "--strategy", "random"))
    assert [row["tokens"] for row in planned] == ["8", "16"] and all(int(row["legal"]) > 0 for row in planned)
    measured = rows_of(room.ok("bench", *cells, "--rounds", "2", "-q"))
    assert [row["role"] for row in measured if row["tokens"] == "8"] == ["default", "baseline"]
    assert list(measured[0])[:len(CELL)] == CELL and all(float(row["median_us"]) > 0 for row in measured)
