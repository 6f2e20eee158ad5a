"""--pack: kernels made elsewhere join the variants of a command. No GPU: the device is an architecture."""
import json

import pytest

from conftest import LAYER, SOURCE, Room, validate

ARCH = ["--device", "arch:sm_90a", *LAYER, "--tokens", "8"]


@pytest.fixture
def room(tmp_path):
    return Room(tmp_path)


def made_pack(room, name="toy", **changes):
    """A folder with the pack of the tests: five candidates of six were compiled."""
    folder = room.path / name
    folder.mkdir(exist_ok=True)
    manifest = json.loads((SOURCE / "tests/cli/files/pack.json").read_text())
    for file in manifest["files"]:
        (folder / file).write_text(f"the bytes of {file}")
    manifest.update(changes)
    (folder / "pack.json").write_text(json.dumps(manifest))
    return name


def test_list_tells_the_variant_and_its_knobs(room):
    pack = made_pack(room)
    listed = json.loads(room.ok("list", "variants", "--pack", pack, "--format", "json").stdout)["items"]
    assert {"name": "toy", "device": "cuda", "knobs": ["block_m", "fast"], "summary": "kernels of a test"} in listed
    assert "toy" not in room.ok("list", "variants").stdout
    knobs = json.loads(room.ok("list", "knobs", "--pack", pack, "--format", "json").stdout)["items"]
    assert [knob["words"] for knob in knobs if knob["name"] == "fast"] == [["no", "yes"]]


def test_a_dry_run_counts_its_candidates_and_tells_what_is_illegal(room):
    pack = made_pack(room)
    for strategy in ("exhaustive", "auto"):
        plan = json.loads(room.ok("tune", *ARCH, "--pack", pack, "--variant", "toy", "--strategy", strategy, "--dry-run", "--format",
                                  "json").stdout)
        cell, = plan["cells"]
        assert (cell["total"], cell["legal"]) == (6, 5)
        assert cell["pruned"] == {"the pack has no kernel that was compiled for these knobs": 1}
    error = room.error(2, "tune", *ARCH, "--pack", pack, "--variant", "toy", "--dry-run", "--op", "dx")
    assert "toy computes fwd bf16 plain, and this is dx bf16 plain" in error
    error = room.error(2, "tune", "--device", "arch:sm_90a", *LAYER[:-1], "68", "--tokens", "8", "--pack", pack, "--variant", "toy",
                       "--dry-run")
    assert "k must be a multiple of 8" in error


def test_a_damaged_pack_is_refused_with_the_place(room):
    tune = ["tune", *ARCH, "--dry-run", "--pack"]
    assert "--pack: none is not a folder" in room.error(2, *tune, "none")
    (room.path / "empty").mkdir()
    assert "pack.json" in room.error(2, *tune, "empty")
    assert "toy/pack.json: computes: expected at least one computation" in room.error(2, *tune, made_pack(room, computes=[]))
    pack = made_pack(room)
    (room.path / "toy/fast.cubin").write_text("the bytes of slow.cubin")
    assert "toy/fast.cubin: its SHA-256 is another than pack.json says" in room.error(2, *tune, pack)
    error = room.error(2, "list", "variants", "--pack", made_pack(room, "mma", variant="mma"))
    assert "has the variant 'mma', whose name is taken by a variant that is built in" in error
    made_pack(room, "other", summary="others")
    error = room.error(2, "list", "variants", "--pack", made_pack(room), "--pack", "other")
    assert "has the variant 'toy', whose name is taken by" in error
    assert "unknown variant 'toy'" in room.error(2, "tune", *ARCH, "--variant", "toy", "--dry-run")


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


def test_a_table_of_a_pack_that_is_not_here_is_told_of(tabled):
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
    assert "block_m=16" in room.run("diff", "a.json", "b.json").stdout
    room.ok("merge", "a.json", "b.json", "--prefer", "first", "-o", "merged.json")
    assert room.json("merged.json")["entries"][0]["candidate"] == room.json("a.json")["entries"][0]["candidate"]
    cell = room.json("a.json")["entries"][0]["cell"]
    found = room.ok("lookup", "a.json", "--model", cell["model"], "--projection", cell["projection"], "--tokens", cell["tokens"],
                    "--routing", cell["routing"])
    assert text in found.stdout
    assert "its kernel is of the pack toy, whose folder holds it" in room.run("export", "a.json", "--format", "kernels", "-o", "k").stderr
