"""validate: what a file is, whether it is valid, and that it refuses what configs/schema refuses."""
import copy
import csv
import hashlib
import importlib.util
import io
import json

import jsonschema
import pytest

from conftest import CPU, LAYER, SOURCE, TINY, VALIDATE, Room, made_entry, validate

SPEC = importlib.util.spec_from_file_location("schema_check", VALIDATE)
SCHEMAS = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(SCHEMAS)

KINDS = ["bench", "check", "compile", "diff", "doctor", "journal", "kernels", "list", "lookup", "model", "pack", "peers", "plan", "replay",
         "routing", "runtime", "space", "suite", "table", "validate", "verify"]
GONE = object()  # the key is removed

# Of each kind: places and what stands there instead. Each must be refused by the schema and by the program.
TOOL = [("tool", GONE), ("tool/name", "other"), ("tool/version", GONE), ("tool/version", ""), ("tool/dirty", "no"),
        ("tool/argv", "moetune tune"), ("tool/argv/0", 1)]
DEVICE = [("device", GONE), ("device/kind", "tpu"), ("device/name", ""), ("device/processors", -1),
          ("device/cache_bytes", 1.5), ("device/peak_flops", -1), ("device/peak_bandwidth", "fast")]
ENVIRONMENT = [("environment", GONE), ("environment", [])]


def cell_at(place):
    return [(place, GONE), (f"{place}/model", ""), (f"{place}/experts", 0), (f"{place}/dtype", "bf17"), (f"{place}/op", "bwd"),
            (f"{place}/projection", "side"), (f"{place}/permute_x", 1), (f"{place}/tokens", "8"), (f"{place}/seed", -1),
            (f"{place}/routing", ""), (f"{place}/accumulate", "no")]


def measurement_at(place):
    return [(f"{place}/median_us", 0), (f"{place}/low_us", GONE), (f"{place}/high_us", "12"), (f"{place}/samples", 0),
            (f"{place}/launches", 1.5), (f"{place}/clock_mhz", -1), (f"{place}/waited", 1.5)]


def verdict_at(place):
    return [(f"{place}/ok", "yes"), (f"{place}/reason", GONE), (f"{place}/elements", -1), (f"{place}/mismatches", 0.5),
            (f"{place}/max_ulps", "few"), (f"{place}/normalised_error", -1)]


def point_at(place):
    return [*cell_at(f"{place}/cell"), *verdict_at(f"{place}/verdict"), (f"{place}/contender", GONE), (f"{place}/contender", {}),
            (f"{place}/contender", {"baseline": ""}), (f"{place}/contender", {"candidate": {}}), (f"{place}/status", "fine"),
            (f"{place}/status", "timeout")]


DAMAGES = {
    "bench": [*TOOL, *DEVICE, *ENVIRONMENT, ("points", {}), *point_at("points/0"), ("points/0/measurement", GONE),
              *measurement_at("points/0/measurement"), ("fault", 3), ("training_steps", [{"cells": []}])],
    "check": [*TOOL, *DEVICE, *ENVIRONMENT, ("baseline", GONE), ("threshold", 0), *cell_at("findings/0/cell"),
              ("findings/0/finding", "slower"), ("findings/0/reason", GONE), ("findings/0/change", GONE),
              ("findings/0/change_low", -2), ("findings/0/time_change", -2), ("findings/0/time_change", "much"), ("findings/0/now", GONE), *measurement_at("findings/0/now"),
              ("findings/0/rounds", -1), ("findings/0/control", 3), ("findings/0/by_time", "slower"), ("fault", [])],
    "compile": [*TOOL, ("arch", "hopper"), ("results", GONE), *cell_at("results/0/cell"), ("results/0/candidate", {}),
                ("results/0/compile/status", "fine"), ("results/0/compile/registers", -1),
                ("results/0/compile/seconds", -1), ("results/0/compile/from_cache", 0), ("results/0/threads", 0),
                ("results/0/shared_bytes", -4)],
    "diff": [*TOOL, ("old/file", ""), ("old/cells", -1), ("new/device", GONE), ("origin", "none"), ("times_compared", "no"),
             ("cells/0/id", ""), *cell_at("cells/0/cell"), ("cells/0/differs", GONE), ("cells/0/winner_changed", 1),
             ("cells/0/only_in", "both"), ("cells/0/old", GONE), *measurement_at("cells/0/new/measurement"),
             ("cells/0/time", "same"), ("cells/0/ratio", 0), ("cells/0/ratio_low", GONE)],
    "doctor": [*TOOL, ("devices", []), ("devices/0/word", "gpu"), ("devices/0/device/kind", "tpu"),
               ("devices/0/environment", GONE), ("notes", GONE), ("notes", [1]), ("devices/0/ceilings", {})],
    "kernels": [*TOOL, ("abi", 2), ("device/arch", GONE), ("regime", "calm"), ("files", GONE), ("files/route.sm_90a.cubin/sha256", "abc"),
                ("route/int64", GONE), ("kernels/0/op", "bwd"), ("kernels/0/sizes/x_rows", GONE), ("kernels/0/candidate", {}),
                ("kernels/0/operands/0/shape", "rows"), ("kernels/0/operands/0/shape/0", 3), ("kernels/0/buffers/0/zeroed", "yes"),
                ("kernels/0/launches", []), ("kernels/0/launches/0/grid", GONE), ("kernels/0/launches/0/grid", "rows; 1"),
                ("kernels/0/launches/0/threads", 0), ("kernels/0/launches/0/cooperative", 1),
                ("kernels/0/launches/0/arguments/0/struct/size", 0), ("kernels/0/launches/0/arguments/0/struct/fields/0/offset", -1),
                ("kernels/0/launches/1/fill/byte", 256), ("cells", []), *[(f"cells/0/asked/{name}", GONE) for name in ("op", "n", "fusion")],
                ("cells/0/extents/k", -1), ("cells/0/skew", "much"), ("cells/0/tuned", 1), ("cells/0/kernel", GONE),
                ("ranges/0/tokens/to", "all"), ("ranges/0/tokens/from", 0), ("ranges/0/worst_regret", GONE)],
    "list": [*TOOL, ("what", "modles"), ("items", GONE), ("items/0/name", GONE), ("items/0/name", "")],
    "lookup": [*TOOL, ("table", GONE), *cell_at("answers/0/cell"), ("answers/0/match", "near"), ("answers/0/explanation", ""),
               ("answers/0/distance", -1), ("answers/0/log_skew_distance", GONE), ("answers/0/entry", GONE),
               ("answers/0/match", "none"), *measurement_at("answers/0/entry/measurement"),
               ("answers/0/entry/candidate", {}), *verdict_at("answers/0/entry/verdict")],
    "model": [("name", GONE), ("name", ""), ("experts", 0), ("experts", 65537), ("top_k", GONE), ("hidden", "2048"),
              ("gated", 1), ("aliases", "other"), ("aliases", [""]), ("architecture", GONE)],
    "pack": [("variant", "a b"), ("summary", GONE), ("knobs", []), ("knobs/0/values", []), ("knobs/0/values/1", 16),
             ("knobs/0/values/1", -1), ("knobs/1/default", GONE), ("computes/0/op", "bwd"), ("computes/0/weighting", "sum"),
             ("rules/0/zero", "k; 8"), ("rules/0/reason", GONE), ("files/slow.cubin/sha256", "abc"), ("files/slow.cubin/arch", "hopper"),
             ("files/slow.cubin/bytes", 0), ("binaries", []), ("binaries/0/files", {}), ("binaries/0/threads", 2048),
             ("binaries/0/entry", GONE), ("binaries/1/scratch_bytes", -1), ("binaries/1/trailing/0", {}), ("candidates", []),
             ("candidates/0/0", 1.5), ("operands/0/shape", "rows"), ("buffers/0/zeroed", "yes"), ("launches", []),
             ("launches/0/fill/byte", 256), ("launches/1/threads", 0), ("launches/2/cubin", "other"), ("launches/2/grid", GONE),
             ("launches/2/arguments/0/struct/size", 0)],
    "peers": [("tool", GONE), ("tool/name", "moetune"), ("environment/device", ""), ("environment/torch", GONE), ("entries", {}),
              ("entries/0/id", GONE), ("entries/0/peer", ""), ("entries/0/note", 1), *cell_at("entries/0/cell"),
              *measurement_at("entries/0")],
    "plan": [*TOOL, *DEVICE, *cell_at("cells/0/cell"), ("cells/0/figures/rows", -1), ("cells/0/figures/cv", "0"),
             ("cells/0/legal", -1), ("cells/0/pruned", []), ("cells/0/pruned", {"why": 0}), ("files/journal", GONE),
             ("estimate/by", "hope"), ("estimate/seconds", -1)],
    "replay": [*TOOL, ("strategy", GONE), ("runs", 0), ("mean_loss", -1), ("cells/0/id", GONE), ("cells/0/recorded", 0),
               ("cells/0/best", {}), ("cells/0/best_us", 0), ("cells/0/losses", "none"), ("cells/0/candidates/0", 0)],
    "routing": [("layers", GONE), ("layers", {}), ("layers", []), ("experts", 0), ("top_k", "4"), ("tokens", -1),
                ("topk_ids", {"0": [[0]]})],
    "runtime": [*TOOL, ("device", GONE), ("device/name", ""), ("regime", "calm"), ("cells", {}), ("ranges", GONE),
                *[(f"cells/a/{name}", GONE) for name in ("variant", "knobs", "file", "asked", "tokens", "skew", "time_us")],
                ("cells/a/knobs/block_m", 1.5), ("cells/a/file", 3), ("cells/a/asked/top_k", 0), ("cells/a/time_us", 0),
                ("cells/a/skew", -1), ("ranges/0/tokens/to", GONE), ("ranges/0/tokens/from", 0), ("ranges/0/worst_regret", -1)],
    "space": [("variants", GONE), ("variants", {}), ("variants/mma", []), ("variants/mma/block_m", []),
              ("variants/mma/block_m", 64), ("variants/mma/block_m", [1.5])],
    "suite": [("cells", GONE), ("cells", []), ("cells/0", "qwen"), ("cells/0/token", 16), ("cells/0/tokens", 1.5)],
    "table": [*TOOL, *DEVICE, *ENVIRONMENT, ("regime", "calm"), ("entries", {}), ("entries/0/id", GONE), ("entries/0/id", 1),
              *cell_at("entries/0/cell"), ("entries/0/m_sizes/0", 1.5), ("entries/0/figures/cv", GONE),
              ("entries/0/flops", -1), ("entries/0/candidate", GONE), ("entries/0/candidate", {}),
              *measurement_at("entries/0/measurement"), ("entries/0/occupancy", 1.5), ("entries/0/derived", GONE),
              ("entries/0/derived/tflops", "fast"), ("entries/0/derived/speedup", GONE), *verdict_at("entries/0/verdict"),
              ("entries/0/rivals/0/name", ""), ("entries/0/rivals/0/ratio", 0), ("entries/0/ties", "none"),
              ("entries/0/candidates/legal", -1), ("entries/0/complete", "yes"), ("entries/0/skipped", "too large"),
              ("sweep", "all"), ("training_steps", [])],
    "validate": [*TOOL, ("files", GONE), ("files/0/file", ""), ("files/0/result", "good"), ("files/0/result", "invalid"),
                 ("files/0/fault", "a fault of a valid file"), ("files/0/version", 0)],
    "verify": [*TOOL, *DEVICE, *ENVIRONMENT, *point_at("points/0"), ("points/0/verdict", GONE), ("pruned", {"why": 0}),
               ("points/0/repetition", {"launches": 1}), ("fault", 3)],
}
HEADER = [("cells", GONE), *cell_at("cells/0")[1:], ("cells/0/id", GONE), *DEVICE, *ENVIRONMENT, ("space", GONE), ("space", ""),
          ("strategy", ""), ("seed", -1), ("sweep", "all")]
TRIAL = [("blocks/us", "12"), ("blocks/us/0", 0), ("blocks/launches", GONE), ("kind", "tail"), ("kind", "header"), ("cell", GONE), ("candidate", {}), ("status", "fine"), ("reason", 3), ("measurement", GONE),
         *measurement_at("measurement"), ("verdict", GONE), *verdict_at("verdict"), ("compile/registers", -1)]


def damaged(document, place, value):
    result = copy.deepcopy(document)
    *path, last = [int(word) if word.isdigit() and not isinstance(word, int) else word for word in place.split("/")]
    at = result
    for word in path:
        at = at[word]
    if value is GONE:
        del at[last]
    else:
        at[last] = value
    return result


def config(path):
    return json.loads((SOURCE / "configs" / path).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A room with a tuned table, and a document of each kind."""
    room = Room(tmp_path_factory.mktemp("made"))
    room.tuned()
    table = "moetune-table.json"
    entry = room.json(table)["entries"][0]
    tool = room.json(table)["tool"]
    results = {"bench": ["bench", "--table", table, "--rounds", 3], "verify": ["verify", "--table", table],
               "lookup": ["lookup", table, *LAYER, "--tokens", 9], "list": ["list", "models"],
               "doctor": ["doctor", *CPU, "--quick"], "diff": ["diff", table, table], "validate": ["validate", table],
               "plan": ["tune", *TINY, "--dry-run"], "replay": ["replay", f"{table}.journal.jsonl", "--runs", 2]}
    documents = {kind: json.loads(room.ok(*words, "--format", "json").stdout) for kind, words in results.items()}
    documents.update(table=room.json(table), model=config("models/mixtral-8x7b.json"),
                     routing=config("routings/gpt-oss-20b.json"), space=config("spaces/full.json"),
                     suite=config("suites/hopper-peers.json"))
    finding = {"cell": entry["cell"], "finding": "equivalent", "reason": "as before", "control": "loop", "change": 0.01,
               "change_low": -0.01, "change_high": 0.02, "time_change": None, "by_ratio": "equivalent",
               "by_time": "equivalent", "now": entry["measurement"], "before_us": 10.0, "control_now_us": 20.0,
               "control_before_us": 20.0, "rounds": 15}
    bench = documents["bench"]
    documents["check"] = {"schema": "moetune.check/1", "tool": tool, "device": bench["device"],
                          "environment": bench["environment"], "baseline": table, "threshold": 0.05, "findings": [finding]}
    built = {"status": "ok", "reason": "", "registers": 64, "spill_bytes": 0, "static_shared_bytes": 0,
             "from_cache": False, "seconds": 0.2}
    documents["compile"] = {"schema": "moetune.compile/1", "tool": tool, "arch": "sm_90a",
                            "results": [{"cell": entry["cell"], "candidate": entry["candidate"], "compile": built,
                                         "shared_bytes": 0, "threads": 128}]}
    documents["peers"] = {"schema": "moetune.peers/1", "tool": {"name": "peers.py", "argv": ["peers.py"]},
                          "environment": {"device": "cpu", "torch": "2.9", "cuda": None},
                          "entries": [{**entry["measurement"], "id": entry["id"], "cell": entry["cell"],
                                       "peer": "torch", "note": ""}]}
    served = {"variant": "mma", "knobs": {"block_m": 128, "raster": "n"}, "file": None,
              "asked": {"op": "fwd", "dtype": "bf16", "experts": 8, "top_k": 2, "n": 64, "k": 64, "fusion": "plain"}}
    documents["runtime"] = {"schema": "moetune.runtime/1", "tool": tool, "device": {"name": "a GPU"}, "regime": "burst",
                            "cells": {"a": {**served, "tokens": 8, "skew": 1.5, "time_us": 10.0}},
                            "ranges": [{**served, "tokens": {"from": 1, "to": None}, "worst_regret": 0.0}]}
    documents["pack"] = json.loads((SOURCE / "tests/cli/files/pack-toy.json").read_text())
    for name in documents["pack"]["files"]:
        room.write(name, f"the bytes of {name}")
    documents["kernels"] = json.loads((SOURCE / "tests/cli/files/kernels.json").read_text())
    return room, documents


def schema_refuses(kind, document):
    return not jsonschema.Draft202012Validator(SCHEMAS.load_schema(kind)).is_valid(document)


def results_of(room, files):
    """(result, fault) of each file, as validate tells them."""
    result = room.run("validate", *files, "--format", "json")
    document = json.loads(result.stdout)
    validate("validate", text=result.stdout)
    return [(file["result"], file.get("fault", "")) for file in document["files"]]


def test_every_kind_has_a_schema_and_is_listed(room):
    listed = json.loads(room.ok("list", "schemas", "--format", "json").stdout)["items"]
    assert [item["name"] for item in listed] == KINDS == SCHEMAS.kinds()
    for item in listed:
        assert item["version"] == 1 and item["written_by"] and item["holds"]
        shown = room.ok("list", "schemas", "--show", item["name"]).stdout
        assert shown == (SOURCE / item["file"]).read_text(encoding="utf-8")
        schema = json.loads(shown)
        if item["name"] not in ("journal",):
            assert schema["properties"]["schema"]["const"] == f"moetune.{item['name']}/{item['version']}"


def test_show_prints_models_and_others_too(room):
    assert room.ok("list", "models", "--show", "mixtral-8x7b").stdout == (
        SOURCE / "configs/models/mixtral-8x7b.json").read_text(encoding="utf-8")
    assert "did you mean 'table'?" in room.error(2, "list", "schemas", "--show", "tabel")
    assert "--show: variants are not kept in files" in room.error(2, "list", "variants", "--show", "mma")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "journal"])
def test_what_the_program_writes_is_valid_and_damages_are_refused(made, kind):
    room, documents = made
    document = documents[kind]
    assert not schema_refuses(kind, document)
    files = [room.write(f"{kind}.json", document)]
    damages = [("schema", f"moetune.{kind}/2"), *DAMAGES[kind]]
    if kind == "routing":
        damages = damages[1:] + [("schema", "moetune.space/1")]
    for number, (place, value) in enumerate(damages):
        broken = damaged(document, place, value)
        assert schema_refuses(kind, broken), f"the schema takes {place}: {value}"
        files.append(room.write(f"{kind}-{number}.json", broken))
    (good, fault), *bad = results_of(room, files)
    assert good == "valid", fault
    taken = [damage for damage, (result, _) in zip(damages, bad) if result != "invalid"]
    assert taken == []
    assert all(fault for _, fault in bad)


def test_a_journal_is_valid_and_damages_of_its_lines_are_refused(made):
    room, _ = made
    header, *lines = room.journal()
    built = {"status": "ok", "reason": "", "registers": 64, "spill_bytes": 0, "static_shared_bytes": 0,
             "from_cache": False, "seconds": 0.2}
    trial = next(line for line in lines if line["kind"] == "trial" and line["status"] == "ok")
    trial = {"reason": "", **trial, "compile": built}
    def text(*documents):
        return "".join(json.dumps(document) + "\n" for document in documents)
    files = [room.write("journal.jsonl", text(header, *lines))]
    damages = []
    for place, value in HEADER:
        damages.append((place, damaged(header, place, value)))
        files.append(room.write(f"header-{len(damages)}.jsonl", text(damages[-1][1])))
    for place, value in TRIAL:
        damages.append((place, damaged(trial, place, value)))
        files.append(room.write(f"trial-{len(damages)}.jsonl", text(header, damages[-1][1])))
    for place, document in damages:
        assert schema_refuses("journal", document) or place == "kind", place
    (good, fault), *bad = results_of(room, files)
    assert good == "valid", fault
    assert [place for (place, _), (result, _) in zip(damages, bad) if result != "invalid"] == []
    assert all(fault.startswith("line 2") for _, fault in bad[len(HEADER):]), bad


def test_all_configs_are_valid(room):
    folders = ("models", "routings", "spaces", "suites", "tuned")
    files = [path for folder in folders for path in sorted((SOURCE / "configs" / folder).glob("*.json"))]
    assert len(files) > 40
    result = room.ok("validate", *files)
    assert f"{len(files)} of {len(files)} files valid." in result.stdout


def test_exit_codes(room):
    good = str(SOURCE / "configs/spaces/quick.json")
    bad = room.write("bad.json", {"schema": "moetune.space/1"})
    assert room.run("validate", good).returncode == 0
    assert room.run("validate", good, bad).returncode == 1
    unreadable = room.run("validate", bad, "missing.json", good)
    assert unreadable.returncode == 2
    assert "1 of 3 files valid." in unreadable.stdout  # all are judged
    assert "missing.json" in unreadable.stdout and "unreadable" in unreadable.stdout


def test_places_and_remedies_are_told(room):
    files = [room.write("a.json", {"schema": "moetune.tables/1"}), room.write("b.json", {"rows": 3}), room.write("c.json", "{,"),
             room.write("d.json", {"schema": "moetune.model/1", "name": 3}), room.write("e.json", [1])]
    text = " ".join(room.run("validate", *files).stdout.split())
    assert "a.json: schema: unknown schema 'moetune.tables/1' (hint: did you mean 'moetune.table/1'?)" in text
    assert "b.json: \"schema\" is missing (hint: files of moetune name their kind there: see 'moetune list schemas')" in text
    assert "c.json: line 1:2: " in text
    assert "d.json: name: expected a string, found an integer" in text
    assert "e.json: expected an object" in text


def test_files_of_other_formats(room):
    room.write("rows.csv", "# top_k=2\nlayer,expert,rows\n0,0,3\n0,2,1\n0,3,2\n")
    room.write("wrong.csv", "# top_k=2\nlayer,expert,rows\n0,0,3\n0,2,-1\n")
    room.write("loads.json", {"experts": 4, "top_k": 2, "layers": {"0": [3, 0, 1, 2]}})
    room.write("config.json", '{"model_type": "moe", "num_experts": 8, "num_experts_per_tok": 2, "hidden_size": 64, '
                              '"moe_intermediate_size": 32, "scale": NaN}')
    room.write("dense.json", {"model_type": "dense", "hidden_size": 64})
    rows = csv.DictReader(io.StringIO(room.run("validate", "rows.csv", "wrong.csv", "loads.json", "config.json", "dense.json",
                                               "--format", "csv").stdout))
    found = {row["file"]: (row["kind"], row["result"]) for row in rows}
    assert found == {"rows.csv": ("routing", "valid"), "wrong.csv": ("routing", "invalid"),
                     "loads.json": ("routing", "valid"), "config.json": ("model", "valid"),
                     "dense.json": ("model", "invalid")}


def test_a_recording_may_leave_open_what_the_layer_of_a_sweep_says(room):
    files = [room.write("rows.json", {"layers": {"0": [3, 0, 1, 2]}}), room.write("rows.csv", "layer,expert,rows\n0,0,3\n0,2,1\n"),
             room.write("mixed.json", {"loads": [{"name": "a", "counts": [3, 1]}, {"name": "b", "counts": [1, 1, 2]}]})]
    room.ok("validate", *files)
    room.ok("tune", *CPU, "--experts", 4, "--top-k", 2, "--n", 64, "--k", 64, "--routing", "trace:rows.json", "--dry-run")
    wrong = [room.write("sum.json", {"tokens": 4, "layers": {"0": [3, 0, 1, 2]}}),
             room.write("many.json", {"tokens": 2, "top_k": 3, "layers": {"0": [3, 0, 1, 2]}}),
             room.write("bad.json", {"loads": [{"name": "a", "counts": [3, 1]}, {"name": "b", "counts": [1, 1, -2]}]})]
    assert [result for result, _ in results_of(room, wrong)] == ["invalid"] * 3


def test_text_fits_and_markdown_is_a_table(room):
    good = str(SOURCE / "configs/spaces/quick.json")
    bad = room.write("bad.json", {"schema": "moetune.space/1", "variants": {"mma": {"block_m": "a value of many words " * 9}}})
    assert room.run("validate", "bad.json").stdout.splitlines()[0].startswith("| file ")
    assert all(len(line) <= 80 for line in room.run("validate", bad).stdout.splitlines())
    assert "| valid " in room.ok("validate", good, "--format", "markdown").stdout


def test_the_files_of_a_pack_are_those_of_its_manifest(room):
    manifest = json.loads((SOURCE / "tests/cli/files/pack-toy.json").read_text())
    for name in manifest["files"]:
        room.write(name, f"the bytes of {name}")
    room.write("pack.json", manifest)
    assert results_of(room, ["pack.json"]) == [("valid", "")]
    room.write("fast.cubin", "the bytes of slow.cubin")
    assert results_of(room, ["pack.json"]) == [("invalid", "fast.cubin: its SHA-256 differs from the one in pack.json")]
    (room.path / "fast.cubin").unlink()
    assert results_of(room, ["pack.json"]) == [("invalid", "fast.cubin: No such file or directory")]
    room.write("copy.json", manifest)  # no reader opens it: its files may lie elsewhere
    assert results_of(room, ["copy.json"]) == [("valid", "")]


def test_the_files_of_exported_kernels_are_those_of_their_manifest(room):
    manifest = json.loads((SOURCE / "tests/cli/files/kernels.json").read_text())
    room.write("copy.json", manifest)
    assert results_of(room, ["copy.json"]) == [("valid", "")]
    for name, file in manifest["files"].items():
        room.write(name, f"the bytes of {name}")
        file.update(bytes=len(f"the bytes of {name}"), sha256=hashlib.sha256(f"the bytes of {name}".encode()).hexdigest())
    room.write("manifest.json", manifest)
    assert results_of(room, ["manifest.json"]) == [("invalid", "manifest.sha256: No such file or directory")]
    digest = hashlib.sha256((room.path / "manifest.json").read_bytes()).hexdigest()
    room.write("manifest.sha256", f"{digest}  manifest.json\n")
    assert results_of(room, ["manifest.json"]) == [("valid", "")]
    name = next(iter(manifest["files"]))
    room.write(name, f"the bytes of {name[:-1]}!")
    told = f"{name}: is not the file that the manifest names: it was changed or cut short"
    assert results_of(room, ["manifest.json"]) == [("invalid", told)]
    (room.path / name).unlink()
    assert results_of(room, ["manifest.json"]) == [("invalid", f"{name}: No such file or directory")]
    room.write("manifest.json", json.dumps(manifest) + " ")
    told = "was changed or cut short: manifest.sha256 has another digest"
    assert results_of(room, ["manifest.json"]) == [("invalid", told)]


def test_a_cut_off_table_is_told(room):
    whole = json.dumps({"schema": "moetune.table/1", "entries": [made_entry("up", 8)]})
    (result, fault), = results_of(room, [room.write("cut.json", whole[:200])])
    assert result == "invalid" and fault.startswith("line 1:201: ")
