"""--pack: kernels made elsewhere join the variants of a command. No GPU: the device is an architecture."""
import json

import pytest

from conftest import LAYER, SOURCE, h200_device, made_pack, validate

ARCH = ["--device", "arch:sm_90a", *LAYER, "--tokens", "8"]


def test_list_names_the_variant_and_its_knobs(room):
    pack = made_pack(room)
    listed = json.loads(room.ok("list", "variants", "--pack", pack, "--format", "json").stdout)["items"]
    assert {"name": "toy", "device": "cuda", "knobs": ["block_m", "fast"], "summary": "kernels of a test"} in listed
    assert "toy" not in room.ok("list", "variants").stdout
    knobs = json.loads(room.ok("list", "knobs", "--pack", pack, "--format", "json").stdout)["items"]
    assert [knob["words"] for knob in knobs if knob["name"] == "fast"] == [["no", "yes"]]


def test_a_dry_run_counts_its_candidates_and_names_what_is_illegal(room):
    pack = made_pack(room)
    for strategy in ("exhaustive", "auto"):
        plan = json.loads(room.ok("tune", *ARCH, "--pack", pack, "--variant", "toy", "--strategy", strategy, "--dry-run", "--format",
                                  "json").stdout)
        cell, = plan["cells"]
        assert (cell["total"], cell["legal"]) == (6, 5)
        assert cell["pruned"] == {"the pack has no kernel that was compiled for these knobs": 1}
    launches = json.loads((room.path / pack / "pack.json").read_text())["launches"]
    launches[1]["timed"] = False
    untimed = room.ok("tune", *ARCH, "--pack", made_pack(room, launches=launches), "--variant", "toy", "--dry-run").stderr
    assert "toy runs put_in_order once before all launches: it is not timed" in untimed
    error = room.error(2, "tune", *ARCH, "--pack", pack, "--variant", "toy", "--dry-run", "--op", "dx")
    assert "toy computes fwd bf16 plain, and this is dx bf16 plain" in error
    error = room.error(2, "tune", "--device", "arch:sm_90a", *LAYER[:-1], "68", "--tokens", "8", "--pack", pack, "--variant", "toy",
                       "--dry-run")
    assert "k must be a multiple of 8" in error


def test_validate_knows_packs(room):
    made_pack(room)
    result = room.ok("validate", "toy/pack.json", "--format", "json")
    assert json.loads(result.stdout)["files"][0]["result"] == "valid"
    validate("pack", room.path / "toy/pack.json")


@pytest.fixture
def tabled(room):
    """Two tables of the pack's winners, as a run on a GPU leaves them."""
    table = json.loads((SOURCE / "configs/tuned/nvidia-h200-hopper-peers.json").read_text())
    entry = next(e for e in table["entries"] if e["cell"]["op"] == "fwd" and e["cell"]["dtype"] == "bf16")
    table["entries"] = [entry]
    table.pop("choices", None)
    table["environment"]["identity"]["packs"] = "toy 0123456789ab"
    for name, block_m in (("a.json", 16), ("b.json", 32)):
        entry["candidate"] = {"variant": "toy", "pack": "0123456789ab", "block_m": block_m, "swizzle": "rows", "depth": 3}
        entry["ties"] = []
        room.write(name, table)
    return room


def test_a_table_of_a_pack_that_is_not_here_is_reported(tabled):
    room = tabled
    validate("table", room.path / "a.json")
    room.ok("validate", "a.json")
    text = "toy block_m=16 swizzle=rows depth=3"
    assert text in room.ok("report", "a.json", "--format", "markdown", "-o", "-").stdout
    assert "toy" in room.ok("export", "a.json", "--format", "markdown", "-o", "-").stdout
    header, row = room.ok("export", "a.json", "--format", "csv", "-o", "-").stdout.splitlines()
    fields = dict(zip(header.split(","), row.split(",")))
    assert (fields["variant"], fields["block_m"], fields["swizzle"], fields["depth"]) == ("toy", "16", "rows", "3")
    runtime = json.loads(room.ok("export", "a.json", "--format", "runtime", "-o", "-").stdout)
    served, = runtime["cells"].values()
    assert served["knobs"] == {"block_m": 16, "swizzle": "rows", "depth": 3} and served["file"] is None
    room.ok("merge", "a.json", "b.json", "--prefer", "first", "-o", "merged.json")
    assert room.json("merged.json")["entries"][0]["candidate"] == room.json("a.json")["entries"][0]["candidate"]
    cell = room.json("a.json")["entries"][0]["cell"]
    found = room.ok("lookup", "a.json", "--model", cell["model"], "--projection", cell["projection"], "--tokens", cell["tokens"],
                    "--routing", cell["routing"])
    assert text in found.stdout
    assert "its kernel is in the folder of the pack toy" in room.run("export", "a.json", "--format", "kernels", "-o", "k").stderr


TRITON = {"variant": "triton_moe", "pack": "0123456789ab", "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 16,
          "num_warps": 8}


def triton(block_m, stages):
    return {**TRITON, "BLOCK_SIZE_M": block_m, "num_stages": stages}


def us(median):
    return {"median_us": median, "low_us": 0.99 * median, "high_us": 1.01 * median, "samples": 5, "launches": 100, "clock_mhz": 0.0}


# Times of up and of down. Each has a winner of its own; 64x4 has the least sum, and of one BLOCK_SIZE_M 64x3 with 64x4.
TIMES = [(triton(16, 3), 10, 30), (triton(32, 3), 30, 10), (triton(64, 4), 13, 12), (triton(64, 3), 11, 25)]


@pytest.fixture
def served(room):
    """A table of a pack's winners for up and down, as a run on an H200 leaves it, with its journal."""
    table = room.json(room.made_table(tokens=(16,), projections=("up", "down")))
    table["device"] = h200_device()
    header = {"schema": "moetune.journal/1", "kind": "header", "device": table["device"], "environment": table["environment"],
              "space": "all", "strategy": "exhaustive", "seed": 0, "regime": table["regime"],
              "cells": [{"id": entry["id"], **entry["cell"]} for entry in table["entries"]]}
    lines = [header]
    for entry in table["entries"]:
        times = {"up": 1, "down": 2}[entry["cell"]["projection"]]
        entry["candidates"] = {"legal": len(TIMES), "measured": len(TIMES), "failed": 0}
        entry["candidate"] = min(TIMES, key=lambda timed: timed[times])[0]
        lines += [{"kind": "trial", "cell": entry["id"], "candidate": timed[0], "status": "ok", "measurement": us(timed[times]),
                   "verdict": entry["verdict"], "took_us": 1000.0} for timed in TIMES]
    room.write("t.json", table)
    room.write("t.json.journal.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    return room


def row(room, file):
    return room.json(file)["16"]


def written(block_m, stages):
    return {key: value for key, value in triton(block_m, stages).items() if key not in ("variant", "pack")}


def test_a_report_maps_the_tiles_of_a_pack(served):
    served.ok("report", "t.json", "--format", "markdown")
    page = (served.path / "t.md").read_text()
    assert "No cell was timed with two tiles" not in page
    assert "(triton_moe)" in page and "block_n 64" in page


def test_without_its_journal_up_and_down_keep_their_winners(served):
    room = served
    (room.path / "t.json.journal.jsonl").rename(room.path / "kept.jsonl")
    message = room.ok("export", "t.json", "--format", "vllm", "--unproven", "-o", "v.json").stderr
    assert row(room, "v.json") == written(16, 3)
    assert "name the journal of the run with --journal" in message
    room.ok("export", "t.json", "--format", "vllm", "--unproven", "-o", "v.json", "--journal", "kept.jsonl")
    assert row(room, "v.json") == written(64, 4)
    assert "--journal has no effect without --format vllm or sglang" in room.error(2, "export", "t.json", "--format", "csv", "--journal", "kept.jsonl")
    room.error(2, "export", "t.json", "--format", "vllm", "--unproven", "-o", "kept.jsonl", "--journal", "kept.jsonl")
    other = (room.path / "kept.jsonl").read_text().replace("NVIDIA H200", "NVIDIA H100")
    room.write("other.jsonl", other)
    message = room.error(3, "export", "t.json", "--format", "vllm", "--unproven", "--journal", "other.jsonl")
    assert "it is of 'NVIDIA H100', the table is of 'NVIDIA H200'" in message


@pytest.mark.parametrize("name, value", [("kernels", "f00d"), ("packs", "triton_moe ffffffffffff")])
def test_a_journal_of_another_build_is_refused(served, name, value):
    room = served
    table = room.json("t.json")
    table["environment"] = {"identity": {"kernels": "cafe", "packs": "triton_moe 0123456789ab"}}
    room.write("t.json", table)
    lines = [json.loads(line) for line in (room.path / "t.json.journal.jsonl").read_text().splitlines()]
    lines[0]["environment"] = {"identity": {**table["environment"]["identity"], name: value}}
    room.write("t.json.journal.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    words = f'its environment has {name} "{value}", the table\'s "{table["environment"]["identity"][name]}"'
    for command in (["export", "t.json", "--format", "vllm", "--unproven", "-o", "v.json"], ["report", "t.json"]):
        text = room.error(3, *command, "--journal", "t.json.journal.jsonl")
        assert "is of another run than the table: " + words in text
        assert "t.json.journal.jsonl is left out: " + words in room.ok(*command).stderr
    assert row(room, "v.json") == written(16, 3)
