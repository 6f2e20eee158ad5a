"""CSV: numbers alone, the unit in the header, the same columns for the same thing."""
import csv
import io

from conftest import CANDIDATE, CPU, TINY

CELL = ["id", "model", "projection", "op", "dtype", "scales", "out_dtype", "fast_sums",
        "experts", "top_k", "n", "k", "tp", "ep", "zero_experts", "permute_x", "permute_y", "by_slot",
        "topk_weights", "accumulate", "fp32_dw", "sum_slots",
        "weight_gradient", "silu", "gelu", "gpt_oss", "interleaved", "store_h", "bias", "tokens", "routing", "seed"]


def rows_of(result):
    """Rows as dictionaries; every line has every column."""
    lines = list(csv.reader(io.StringIO(result.stdout)))
    assert all(len(line) == len(lines[0]) for line in lines), result.stdout
    assert len(set(lines[0])) == len(lines[0])
    return [dict(zip(lines[0], line)) for line in lines[1:]]


def number(row, column):
    return float(row[column])


def test_csv_of_bench(room):
    result = room.run("bench", *TINY, "--rounds", "3", "--candidate", CANDIDATE, "--candidate", "simt", "--format", "csv")
    assert result.returncode == 1
    rows = rows_of(result)
    assert list(rows[0])[:len(CELL)] == CELL
    assert [row["role"] for row in rows] == ["candidate", "candidate", "default", "baseline"]
    named, illegal, default, baseline = rows
    assert (named["variant"], named["block_m"], named["threads"], named["stages"]) == ("cpu", "24", "1", "")
    for row in (named, default, baseline):
        assert row["status"] == "ok" and row["samples"] == "3"
        assert 0 < number(row, "low_us") <= number(row, "median_us") <= number(row, "high_us")
        assert number(row, "tflops") > 0 and number(row, "tbps") > 0 and number(row, "baseline_speedup") > 0
    assert baseline["baseline"] == "loop" and baseline["variant"] == "" and number(baseline, "baseline_speedup") == 1
    assert illegal["status"] == "illegal" and "GPUs" in illegal["reason"] and illegal["median_us"] == illegal["tflops"] == ""


def test_csv_quotes_as_rfc_4180_says(room):
    room.write("suite.json", {"schema": "moetune.suite/1",
                              "cells": [{"experts": 4, "top_k": 2, "n": 64, "k": 64, "routing": "trace:q\"uoted.json"}]})
    (room.path / "q\"uoted.json").write_text('{"experts": 4, "top_k": 2, "tokens": 6, "layers": {"x, y": [6, 3, 2, 1]}}')
    result = room.ok("tune", *CPU, "--suite", "suite.json", "--max-candidates", "1", "-q", "--format", "csv")
    row, = rows_of(result)
    assert row["routing"] == "trace:q\"uoted.json#x, y"
    assert '"trace:q""uoted.json#x, y"' in result.stdout
