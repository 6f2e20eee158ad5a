"""--projection ffn: up and down of a layer tuned as one, in the table, its text, lookup, merge and exports."""
import csv
import io
import json

from conftest import CPU, validate

TABLE = "moetune-table.json"
FFN = ["--experts", "4", "--top-k", "2", "--hidden", "64", "--intermediate", "32", "--projection", "ffn"]
FEW = ["--max-candidates", "3", "--rounds", "9", "--wait", "0s"]
UP, DOWN = "permute_x+silu", "permute_y+topk_weights"
TITLE = "custom ffn, bf16: 4 experts, top 2, hidden 64, intermediate 32, up"


def tune(room, *more, tokens="8"):
    result = room.ok("tune", *CPU, *FFN, "--tokens", tokens, *FEW, *more)
    validate("table", room.path / TABLE)
    return result, room.json(TABLE)


def test_the_table_has_the_layer_beside_its_two_cells(room):
    result, table = tune(room, tokens="8,32")
    assert [entry["cell"]["projection"] for entry in table["entries"]] == ["up", "up", "down", "down"]
    for layer, tokens in zip(table["layers"], (8, 32)):
        ids = {entry["id"]: entry for entry in table["entries"]}
        up, down = ids[layer["up"]["cell"]], ids[layer["down"]["cell"]]
        assert f"/t{tokens}/" in up["id"] and up["id"].endswith(UP) and down["id"].endswith(DOWN)
        others = [rival["name"] for rival in layer["rivals"]]
        winners = layer["up"]["candidate"] == up["candidate"] and layer["down"]["candidate"] == down["candidate"]
        assert others == [*["winners"] * (not winners), "default", "loop"]
        assert layer["measurement"]["median_us"] > 0 and layer["down"]["measurement"]["median_us"] > 0
    assert len(table["layers"]) == 2 and result.stderr.count("pairing: ") == 2
    text, last = result.stdout.rsplit("\n\n", 1)
    assert all(len(line) <= 80 for line in text.splitlines()), text
    assert TITLE in text and "up, then down" in text and "down alone" in text
    assert "2 layers tuned as one: " in last.replace("\n", " ")


def test_exports_and_reports_names_of_it(room):
    _, table = tune(room)
    layer, = table["layers"]
    markdown = room.ok("export", TABLE).stdout
    assert "| up, then down" in markdown and "| down alone" in markdown
    up, down = csv.DictReader(io.StringIO(room.ok("export", TABLE, "--format", "csv").stdout))
    assert up["layer_us"] == down["layer_us"] != ""
    assert float(up["layer_part_us"]) == layer["up"]["measurement"]["median_us"]
    assert float(down["layer_part_us"]) == layer["down"]["measurement"]["median_us"]
    assert up["layer_candidate"].startswith("cpu ")
    room.ok("export", TABLE, "--format", "runtime", "-o", "runtime.json")
    cells = room.json("runtime.json")["cells"]
    assert cells[layer["up"]["cell"]]["down"] == layer["down"]["cell"] and "down" not in cells[layer["down"]["cell"]]
    room.ok("report", TABLE, "-o", "report.html")
    assert "up, then down" in (room.path / "report.html").read_text()


def another_pair(room):
    """The table with another pair of candidates than the winners."""
    _, table = tune(room)
    layer, = table["layers"]
    for part in ("up", "down"):
        layer[part]["candidate"] = {**layer[part]["candidate"], "block_m": 40}
    (room.path / TABLE).write_text(json.dumps(table))
    return layer


def test_lookup_answers_with_the_pair(room):
    layer = another_pair(room)
    ask = ["lookup", TABLE, *FFN, "--tokens", "12"]
    text = room.ok(*ask, "--format", "json").stdout
    validate("lookup", text=text)
    up, down = json.loads(text)["answers"]
    assert up["layer"] == down["layer"] == layer
    assert up["entry"]["candidate"]["block_m"] == down["entry"]["candidate"]["block_m"] == 40
    assert up["match"] == "nearest"
    shown = room.ok(*ask).stdout
    assert TITLE in shown and "up, then down" in shown and "block_m=40" in shown
    one = json.loads(room.ok("lookup", TABLE, *FFN[:-1], "up", "--gated", "silu", "--permute-x", "--tokens", "8",
                             "--format", "json").stdout)["answers"][0]
    assert "layer" not in one and one["entry"]["candidate"]["block_m"] != 40, "up by itself has its own winner"


def test_bench_times_the_pair_beside_its_rivals(room):
    layer = another_pair(room)
    table = room.json(TABLE)
    for entry in table["entries"]:  # the default may have won
        entry["candidate"]["block_m"] = 56
    (room.path / TABLE).write_text(json.dumps(table))
    result = room.ok("bench", *CPU, "--table", TABLE, "--projection", "ffn", "-o", "bench.json")
    validate("bench", room.path / "bench.json")
    timed, = room.json("bench.json")["layers"]
    for part in ("up", "down"):
        assert timed[part]["cell"] == layer[part]["cell"] and timed[part]["candidate"] == layer[part]["candidate"]
        assert timed[part]["measurement"]["samples"] == 11
    assert [rival["name"] for rival in timed["rivals"]] == ["winners", "default", "loop"]
    assert [point["role"] for point in room.json("bench.json")["points"]] == ["winner", "layer", "default",
                                                                              "baseline"] * 2
    assert TITLE in result.stdout and "up, then down" in result.stdout and "winners" in result.stdout
    assert "8 contenders measured in 2 cells and 1 layer." in result.stdout
    one = room.ok("bench", *CPU, "--table", TABLE, "--projection", "up", "--rounds", "1").stdout
    assert "3 contenders measured in 1 cell." in one and "up, then down" not in one


def test_bench_without_layers_takes_the_winners_or_the_defaults(room):
    _, table = tune(room)
    del table["layers"]
    (room.path / TABLE).write_text(json.dumps(table))
    few = ["--rounds", "1", "-o", "bench.json"]
    assert "layer" not in room.ok("bench", *CPU, "--table", TABLE, *few).stderr
    assert "layers" not in room.json("bench.json")
    room.ok("bench", *CPU, "--table", TABLE, "--projection", "ffn", *few)
    layer, = room.json("bench.json")["layers"]
    assert [layer[part]["candidate"] for part in ("up", "down")] == [entry["candidate"] for entry in table["entries"]]
    room.ok("bench", *CPU, *FFN, "--tokens", "8", *few)
    layer, = room.json("bench.json")["layers"]
    assert [rival["name"] for rival in layer["rivals"]] == ["default", "loop"] and layer["rivals"][0]["ratio"] == 1


def test_bench_names_what_makes_no_layer(room):
    error = room.error(2, "bench", *CPU, *FFN, "--tokens", "8", "--candidate", "cpu")
    assert "--candidate is of one launch, and --projection ffn times two" in error and "--projection up or down" in error
    room.ok("tune", *CPU, *FFN[:-1], "up", "--tokens", "8", *FEW)
    error = room.error(1, "bench", *CPU, "--table", TABLE, "--projection", "ffn")
    assert "no two of these cells are up and down of a layer" in error and "--projection ffn --append" in error


def test_bench_fails_where_a_chain_is_wrong(planted):
    result = planted.run("bench", *CPU, *FFN, "--tokens", "8", "--rounds", "1", "-o", "bench.json",
                         env={"MOETUNE_PLANT": "wrong:then"})
    assert result.returncode == 1 and "no layer: its kernels do not run one after the other" in result.stderr
    assert "layers" not in planted.json("bench.json")


def test_append_and_resume_measure_the_layer_again(room):
    _, table = tune(room)
    _, again = tune(room, "--resume")
    assert [entry["candidate"] for entry in again["entries"]] == [entry["candidate"] for entry in table["entries"]]
    assert len(again["layers"]) == 1
    _, more = tune(room, "--append", tokens="16")
    assert len(more["layers"]) == 2
    parts = [*FFN[:-1], "up,down", "--gated", "silu", "--permute-x", "--permute-y", "--topk-weights"]
    room.ok("tune", *CPU, *parts, "--tokens", "8", *FEW, "-o", "parts.json")
    assert "layers" not in room.json("parts.json"), "only where it is asked for"
    room.ok("tune", *CPU, *FFN, "--tokens", "8", *FEW, "-o", "parts.json", "--append")
    assert len(room.json("parts.json")["layers"]) == 1


def test_other_requests_are_refused(room):
    def error(*more, layer=FFN):
        return room.error(2, "tune", *CPU, *layer, "--tokens", "8", *more)

    assert "--projection: ffn is up and down already" in error(layer=[*FFN[:-1], "ffn,up"])
    assert "--projection: ffn is fwd alone" in error("--op", "fwd,dx")
    assert "down of fp8-block does not read what up writes" in error("--dtype", "fp8")
    assert "--projection: n and k are the sizes of one projection" in error(layer=[*FFN[:4], "--n", "64", "--k", "64", *FFN[-2:]])
    assert "a shard may hold up of a layer and not its down" in error("--shard", "1/2")
    assert "have no gate" in error(layer=["--model", "nemotron-3-nano-30b", "--projection", "ffn"])
