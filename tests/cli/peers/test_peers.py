"""scripts/peers.py as far as it goes without a GPU, and what the program makes of its files."""
import copy
import importlib.util
import json
import subprocess
import sys

import pytest

from conftest import SOURCE, TINY, made_entry, validate

SCRIPT = SOURCE / "scripts/peers.py"
TABLE = SOURCE / "configs/tuned/nvidia-h200-qwen3-30b-a3b.json"


@pytest.fixture(scope="module")
def peers():
    sys.path.insert(0, str(SCRIPT.parent))  # as where the script is run
    spec = importlib.util.spec_from_file_location("peers", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def libraries(peers):
    import peer_libraries
    return peer_libraries


def run(*arguments, cwd=None):
    return subprocess.run([sys.executable, "-B", str(SCRIPT), *map(str, arguments)], cwd=cwd, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, universal_newlines=True, timeout=120)


def refused(*arguments):
    result = run(*arguments)
    assert result.returncode == 2, result.stderr
    assert result.stdout == ""
    return result.stderr


def has_gpu():
    torch = importlib.util.find_spec("torch")
    return torch is not None and __import__("torch").cuda.is_available()


def table(**changes):
    """A table of one small cell, as far as the script reads it."""
    cell = {"projection": "up", "op": "fwd", "experts": 4, "top_k": 2, "n": 64, "k": 32, "dtype": "bf16", "tokens": 4}
    entry = {"id": "a", "cell": cell, "m_sizes": [4, 0, 3, 1], **changes}
    return {"schema": "moetune.table/1", "entries": [entry]}


# --- requests ---


@pytest.mark.skipif(has_gpu(), reason="this machine has a GPU and torch")
def test_without_torch_or_gpu_it_says_so_and_exits_3(tmp_path):
    result = run(TABLE, "-o", tmp_path / "peers.json")
    assert result.returncode == 3
    assert result.stderr.startswith("peers.py: error: torch ")
    assert list(tmp_path.iterdir()) == []


def test_list_names_every_peer(peers):
    result = run("--list")
    assert result.returncode == 0
    lines = {line.split()[0]: line.split(maxsplit=1)[1] for line in result.stdout.splitlines()}
    assert list(lines) == list(peers.PEERS)
    for name, words in lines.items():
        assert words == "can be imported" or " is not installed" in words
        assert (peers.absent(name) is None) == (words == "can be imported")


@pytest.mark.parametrize("text, words", [
    ('{"schema": "moetune.ta', "not JSON"),
    ("", "not JSON"),
    ("[]", 'its schema is null, expected "moetune.table/1"'),
    ('{"schema": "moetune.peers/1"}', 'its schema is "moetune.peers/1"'),
    ('{"schema": "moetune.bench/1"}', "bench files hold no rows per expert"),
    ('{"schema": "moetune.table/1"}', "entries: expected a list"),
    ('{"schema": "moetune.table/1", "entries": []}', "no entries"),
    ('{"schema": "moetune.table/1", "entries": [7]}', "entries[0]: expected an entry"),
    ("[" * 100000, "not JSON"),
])
def test_broken_files_are_named(tmp_path, text, words):
    path = tmp_path / "broken.json"
    path.write_text(text)
    error = refused(path)
    assert error.startswith("peers.py: error: ") and "broken.json" in error and words in error


@pytest.mark.parametrize("changes, words", [
    ({"m_sizes": None}, "'m_sizes' is missing"),
    ({"m_sizes": [5, 0, 0, 0]}, "m_sizes[0]: expected 0 to 4 rows, found 5"),
    ({"m_sizes": [4, -1, 0, 0]}, "m_sizes[1]: expected 0 to 4 rows, found -1"),
    ({"m_sizes": [4, 4, 1, 0]}, "m_sizes contradict"),
    ({"m_sizes": [1, 1, 1, 1, 1]}, "m_sizes contradict"),
    ({"cell": {"n": 0}}, "cell.n: expected a whole number of at least 1, found 0"),
    ({"cell": {"n": 64}}, "cell.k: expected a whole number of at least 1, found null"),
    ({"id": 3}, "expected an entry with 'id' and 'cell'"),
])
def test_wrong_entries_name_their_place(tmp_path, changes, words):
    path = tmp_path / "wrong.json"
    path.write_text(json.dumps(table(**changes)))
    error = refused(path)
    assert "wrong.json: entries[0]" in error and words in error


def test_a_missing_file_is_named():
    assert "nowhere.json: No such file" in refused("nowhere.json")


@pytest.mark.parametrize("arguments, words", [
    (["--peers", "torch"], "--peers: 'torch' is none of torch-grouped-mm,"),
    (["--peers", "moetune-export"], "--peers: moetune-export needs --export DIR"),
    (["--export", "nowhere"], "--export: nowhere has no manifest.json"),
    (["--blocks", "0"], "--blocks: 0 is less than 1"),
    (["--blocks", "x"], "--blocks"),
    (["--rest-ms", "-1"], "--rest-ms: -1 is outside"),
    (["--rest-ms", "nan"], "--rest-ms: nan is outside"),
    (["--cells", "nothing*"], "--cells: no cell matches nothing*"),
    (["--resume"], "--resume needs -o"),
    (["-o", "nowhere/peers.json"], "its folder does not exist"),
])
def test_wrong_options(arguments, words):
    assert words in refused(TABLE, *arguments)


def test_cells_of_several_tables_are_taken_once(peers, tmp_path):
    other = table(id="b", m_sizes=[2, 2, 2, 2])
    (tmp_path / "one.json").write_text(json.dumps(table()))
    (tmp_path / "two.json").write_text(json.dumps({**other, "entries": table()["entries"] + other["entries"]}))
    entries = peers.read_entries([tmp_path / "one.json", tmp_path / "two.json"])
    assert [entry["id"] for entry in entries] == ["a", "b"]
    (tmp_path / "two.json").write_text(json.dumps(table(m_sizes=[2, 2, 2, 2])))
    with pytest.raises(peers.WrongRequest, match="other rows than in an earlier table"):
        peers.read_entries([tmp_path / "one.json", tmp_path / "two.json"])


def test_every_tuned_table_of_the_repository_is_read(peers):
    for path in (SOURCE / "configs/tuned").glob("*.json"):
        entries = [entry for entry in peers.read_entries([path])
                   if not any(entry["cell"].get(part) for part in ("sum_slots", "weight_gradient", "store_h"))]
        assert entries and all(peers.unsuited(entry) is None for entry in entries)


@pytest.mark.parametrize("cell, m_sizes, words", [
    ({"op": "db", "dtype": "bf16"}, [1], "op db"),
    ({"op": "dw", "dtype": "bf16", "accumulate": True}, [1], "accumulate"),
    ({"op": "dw", "dtype": "bf16", "accumulate": False, "fp32_dw": True}, [1], "fp32_dw"),
    ({"op": "dx", "dtype": "bf16", "sum_slots": True}, [1], "sum_slots"),
    ({"op": "dx", "dtype": "bf16", "weight_gradient": True}, [1], "weight_gradient"),
    ({"op": "fwd", "dtype": "fp32"}, [1], "dtype fp32"),
    ({"op": "dx", "dtype": "fp8", "scales": "block", "out_dtype": "bf16"}, [1], "fp8 dx"),
    ({"op": "fwd", "dtype": "fp8", "scales": "none", "out_dtype": "bf16"}, [1], "scales of none"),
    ({"op": "fwd", "dtype": "fp8", "scales": "block", "out_dtype": "bf16"}, [0], "no rows"),
    ({"op": "fwd", "dtype": "bf16"}, [0, 0], "no rows"),
])
def test_cells_without_peers(peers, cell, m_sizes, words):
    assert words in peers.unsuited({"cell": cell, "m_sizes": m_sizes})


# --- figures ---


def test_median(peers):
    assert peers.median([3, 1, 2]) == 2
    assert peers.median([4, 1, 3, 2]) == 2.5


@pytest.mark.parametrize("count, low, high", [(1, 1, 1), (5, 1, 5), (6, 1, 6), (9, 2, 8), (11, 2, 10), (15, 4, 12)])
def test_interval_of_the_median_is_that_of_order_statistics(peers, count, low, high):
    assert peers.median_interval(list(range(count, 0, -1))) == (low, high)


def test_sets_hold_three_caches_and_are_two_at_least(libraries):
    assert libraries.choose_sets(10, 10) == 3
    assert libraries.choose_sets(11, 10) == 3
    assert libraries.choose_sets(15, 10) == 2
    assert libraries.choose_sets(1000, 10) == 2
    assert libraries.choose_sets(1, 1 << 30) == libraries.MAX_SETS


def test_launches_are_whole_rotations(peers):
    assert peers.launches_in_block(100e-6, 2) == 20
    assert peers.launches_in_block(100e-6, 3) == 21
    assert peers.launches_in_block(1.0, 2) == 2
    assert peers.launches_in_block(0, 4) == 2000
    assert peers.launches_in_block(0, 4, 1.0) == peers.MAX_LAUNCHES


def test_rounding(peers):
    assert peers.rounded(123.456789) == 123.457
    assert peers.rounded(1e-9 / 3) == 3.33333e-10


# --- rows ---


def test_padded_starts(libraries):
    assert libraries.padded_starts([0, 1, 128, 129, 0], 128) == [0, 0, 128, 256, 512, 512]


@pytest.mark.parametrize("m_sizes, tokens, top_k", [
    ([4, 0, 3, 1], 4, 2), ([16] * 8, 16, 8), ([0, 0, 5, 5], 5, 2), ([1], 1, 1), ([3, 1], 4, 2)])
def test_each_row_has_a_slot_and_no_expert_a_token_twice(libraries, m_sizes, tokens, top_k):
    order = list(range(tokens))[::-1]
    slots = libraries.slots_of_rows(m_sizes, tokens, top_k, order)
    assert len(slots) == sum(m_sizes) == len(set(slots))
    assert all(0 <= slot < tokens * top_k for slot in slots)
    begin = 0
    for m in m_sizes:
        mine = slots[begin : begin + m]
        assert mine == sorted(mine) and len({slot // top_k for slot in mine}) == m
        begin += m


def test_blocks_are_padded_expert_by_expert(libraries):
    ids, experts = libraries.blocks_of_slots([3, 0, 5], [10, 11, 12, 20, 21, 22, 23, 24], 4, 99)
    assert ids == [10, 11, 12, 99, 20, 21, 22, 23, 24, 99, 99, 99]
    assert experts == [0, 2, 2]


# --- configurations ---


def test_files_of_vllm_give_the_nearest_token_count(libraries):
    assert libraries.vllm_config(128, 768, 16) == ((16, 64, 256, 1, 4, 2), "vLLM's H200 file")
    assert libraries.vllm_config(8, 14336, 250) == ((128, 256, 64, 1, 8, 4), "vLLM's H200 file")
    assert libraries.vllm_config(8, 14336, 10**6)[0] == libraries.VLLM_H200[8, 14336][4096]


@pytest.mark.parametrize("tokens, config", [
    (16, (16, 64, 128, 1, 4, 4)), (32, (16, 64, 128, 1, 4, 4)), (33, (32, 64, 128, 1, 4, 3)),
    (97, (64, 128, 64, 1, 4, 3)), (256, (64, 128, 64, 1, 8, 3)), (513, (128, 128, 64, 1, 8, 3)),
    (4128, (128, 128, 64, 16, 8, 3))])
def test_other_layers_get_the_default(libraries, tokens, config):
    assert libraries.vllm_config(32, 2880, tokens) == (config, "vLLM's default")


@pytest.mark.parametrize("m_sizes", [[1] * 8, [64] * 8, [1024] * 8])
def test_what_is_tried_begins_with_vllms_and_fits_an_sm(libraries, m_sizes):
    tried = libraries.triton_configs(8, 1, 100, m_sizes, True)
    assert tried[0][1] == "vLLM's default" and 11 <= len(tried) <= 13
    assert len({config for config, _ in tried}) == len(tried)
    assert libraries.triton_configs(8, 1, 100, m_sizes, False) == tried[:1]
    for (m, n, k, _, _, stages), _ in tried:
        assert (m + n) * k * 2 * stages <= 227 * 1024


# --- results ---


def result(cell, peer, us):
    return {"id": cell, "peer": peer, "median_us": us}


def test_markdown_has_the_best_in_bold_and_gaps(peers):
    text = peers.markdown([result("a", "cublas-loop", 20.0), result("a", "torch-grouped-mm", 10.0),
                           result("b", "cublas-loop", 5.123456)])
    assert text.splitlines() == ["| cell, us | torch-grouped-mm | cublas-loop |", "| --- | ---: | ---: |",
                                 "| a | **10** | 20 |", "| b |  | **5.123** |"]


def test_files_are_written_whole_or_not_at_all(peers, tmp_path):
    peers.write_atomic(tmp_path / "x.json", "one")
    with pytest.raises(TypeError):
        peers.write_atomic(tmp_path / "x.json", None)
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]
    assert (tmp_path / "x.json").read_text() == "one"


def test_resume_wants_its_own_environment(peers, tmp_path):
    path = tmp_path / "peers.json"
    assert peers.read_results(path, {"torch": "1"}) == ([], {"torch": "1"})

    def left(**environment):
        path.write_text(json.dumps({"schema": peers.SCHEMA, "environment": environment, "entries": [1]}))

    left(torch="1")
    assert peers.read_results(path, {"torch": "1"}) == ([1], {"torch": "1"})
    with pytest.raises(peers.WrongRequest, match="another environment"):
        peers.read_results(path, {"torch": "2"})
    with pytest.raises(peers.WrongRequest, match="another environment"):
        peers.read_results(path, {"torch": "1", "device": "other"})
    # A library that one run lacks doesn't matter; one of another version does.
    left(torch="1", quack="3", deep_gemm=None)
    now = {"torch": "1", "unsloth": "4", "deep_gemm": "5"}
    assert peers.read_results(path, now) == ([1], now | {"quack": "3"})
    with pytest.raises(peers.WrongRequest, match="another environment"):
        peers.read_results(path, {"torch": "1", "quack": "4"})
    path.write_text("{}")
    with pytest.raises(peers.WrongRequest, match="not a file of moetune.peers/1"):
        peers.read_results(path, {})


# --- a run, with everything that needs a GPU replaced ---


class FakeTorch:
    """Enough of torch for run(): a GPU that can be lost."""

    class cuda:
        lost = False

        @staticmethod
        def synchronize():
            if FakeTorch.cuda.lost:
                raise RuntimeError("CUDA error: an illegal memory access\nsecond line")

        @staticmethod
        def empty_cache():
            pass


@pytest.fixture
def fake(peers, libraries, monkeypatch):
    """Peers whose preparation gives [(note, seconds or an error)] instead of variants."""
    monkeypatch.setattr(FakeTorch.cuda, "lost", False)
    monkeypatch.setattr(peers, "open_gpu", lambda device: FakeTorch)
    monkeypatch.setattr(peers, "environment_of", lambda torch, device: {"device": "x", "torch": "2", "cuda": "13"})

    class Problem:
        weighted, activation = False, None

        def __init__(self, torch, entry, device):
            self.torch, self.op = torch, entry["cell"]["op"]

    def prove(problem, variant):
        if isinstance(variant.outputs, Exception):
            raise variant.outputs

    def measure(problem, variant, blocks, rest, block_seconds=0):
        return [variant.outputs] * blocks, 20

    monkeypatch.setattr(peers, "Problem", Problem)
    monkeypatch.setattr(peers, "prove", prove)
    monkeypatch.setattr(peers, "measure", measure)

    def plant(**kinds):
        made = {name: (lambda p, options, variants=variants: [libraries.Variant(note, None, s) for note, s in variants],
                       (), ("fwd",)) for name, variants in kinds.items()}
        monkeypatch.setattr(peers, "PEERS", made)

    return plant


def full_table(peers, path, cells):
    entries = json.loads(TABLE.read_text())["entries"][:cells]
    path.write_text(json.dumps({"schema": "moetune.table/1", "entries": entries}))
    return [entry["id"] for entry in entries]


def test_a_run_writes_the_fastest_right_variant_of_each_peer(peers, fake, tmp_path, capsys):
    ids = full_table(peers, tmp_path / "t.json", 2)
    fake(one=[("slow", 3e-6), ("wrong", ArithmeticError("wrong result: error 1")), ("fast", 2e-6)],
         two=[("only", 5e-6)], bad=[("x", OSError("no compiler"))])
    output = tmp_path / "p.json"
    assert peers.main([str(tmp_path / "t.json"), "-o", str(output), "--blocks", "5"]) == 0
    validate("peers", output)
    entries = json.loads(output.read_text())["entries"]
    assert [(e["id"], e["peer"], e["median_us"], e["note"]) for e in entries] == [
        (id, *rest) for id in ids for rest in (("one", 2.0, "fast"), ("two", 5.0, "only"))]
    assert (entries[0]["samples"], entries[0]["launches"]) == (5, 100)
    out, err = capsys.readouterr()
    assert f"| {ids[0]} | **2** | 5 |" in out
    assert err.count("bad: left out: OSError: no compiler") == 2
    assert err.count("one: passed over: wrong: ArithmeticError: wrong result") == 2


def test_peers_of_fp8_depend_on_its_scales(peers, fake, tmp_path, monkeypatch):
    entries = []
    for scales in ("block", "tensor"):
        entries += table(id=scales)["entries"]
        entries[-1]["cell"].update(dtype="fp8", scales=scales, out_dtype="bf16", fast_sums=False)
    (tmp_path / "t.json").write_text(json.dumps({"schema": "moetune.table/1", "entries": entries}))
    fake(one=[("a", 1e-6)], two=[("b", 2e-6)])
    monkeypatch.setattr(peers, "FP8_PEERS", {"block": ("one",), "tensor": ("one", "two")})
    assert peers.main([str(tmp_path / "t.json"), "-o", str(tmp_path / "p.json")]) == 0
    found = [(e["id"], e["peer"]) for e in json.loads((tmp_path / "p.json").read_text())["entries"]]
    assert found == [("block", "one"), ("tensor", "one"), ("tensor", "two")]


def test_resume_measures_what_is_missing(peers, fake, tmp_path, capsys):
    full_table(peers, tmp_path / "t.json", 2)
    arguments = [str(tmp_path / "t.json"), "-o", str(tmp_path / "p.json")]
    fake(one=[("a", 1e-6)], two=[("b", 2e-6)])
    assert peers.main([*arguments, "--peers", "one"]) == 0
    fake(one=[("again", 9e-6)], two=[("b", 2e-6)])
    assert peers.main([*arguments, "--resume"]) == 0
    entries = json.loads((tmp_path / "p.json").read_text())["entries"]
    assert sorted((e["peer"], e["note"]) for e in entries) == [("one", "a")] * 2 + [("two", "b")] * 2


def test_a_lost_gpu_ends_the_run_and_keeps_what_was_measured(peers, fake, tmp_path, capsys, monkeypatch):
    full_table(peers, tmp_path / "t.json", 2)
    fake(one=[("a", 1e-6)], breaks=[("x", RuntimeError("launch failed"))], two=[("b", 2e-6)])
    prove = peers.prove

    def breaking(problem, variant):
        FakeTorch.cuda.lost = variant.note == "x"
        prove(problem, variant)

    monkeypatch.setattr(peers, "prove", breaking)
    assert peers.main([str(tmp_path / "t.json"), "-o", str(tmp_path / "p.json")]) == 1
    assert [e["peer"] for e in json.loads((tmp_path / "p.json").read_text())["entries"]] == ["one"]
    error = capsys.readouterr().err
    assert "breaks broke the CUDA context: RuntimeError: CUDA error: an illegal memory access\n" in error
    assert "--resume" in error


def test_nothing_measured_is_exit_1(peers, fake, tmp_path, capsys):
    full_table(peers, tmp_path / "t.json", 1)
    fake(bad=[("x", ValueError(""))])
    assert peers.main([str(tmp_path / "t.json"), "-o", str(tmp_path / "p.json")]) == 1
    out, err = capsys.readouterr()
    assert out == "" and "bad: left out: ValueError: no text" in err and "nothing was measured" in err
    assert not (tmp_path / "p.json").exists()


# --- the program ---


def peers_file(cell, **changes):
    entry = {"id": "x", "cell": cell, "peer": "deepgemm-masked", "median_us": 1e-3, "low_us": 1e-3, "high_us": 2e-3,
             "samples": 11, "launches": 220, "clock_mhz": 0, "note": "", **changes}
    return {"schema": "moetune.peers/1", "tool": {"name": "peers.py", "argv": []},
            "environment": {"device": "x", "torch": "2", "cuda": None}, "entries": [entry]}


def test_bench_shows_peers_beside_our_own(room):
    tuned = json.loads(room.tuned().read_text())["entries"][0]
    other = peers_file(tuned["cell"])["entries"][0]
    file = peers_file(tuned["cell"], id=tuned["id"])
    file["entries"].append(other)
    file["environment"]["device"] = room.json("moetune-table.json")["device"]["name"]
    room.write("peers.json", file)
    validate("peers", room.path / "peers.json")
    output = room.ok("bench", *TINY, "--rounds", "2", "-q", "--peers", "peers.json", "-o", "bench.json").stdout
    row = [line for line in output.splitlines() if "deepgemm-masked" in line]
    assert len(row) == 1 and row[0].startswith("| deepgemm-masked (peer) ")
    validate("bench", room.path / "bench.json")
    points = [point for point in room.json("bench.json")["points"] if point["role"] == "peer"]
    assert [point["contender"] for point in points] == [{"baseline": "deepgemm-masked"}]
    assert points[0]["measurement"]["median_us"] == 1e-3


def test_bench_compares_winners_with_the_fastest_of_each_cell(room):
    room.ok("tune", "--device", "cpu", "--experts", "4", "--top-k", "2", "--n", "40", "--k", "24", "--tokens", "8,16",
            "--op", "fwd,dx", "--max-candidates", "1", "--wait", "0", "-q", "-o", "table.json")
    table = room.json("table.json")
    file = peers_file(None)
    file["environment"]["device"] = table["device"]["name"]
    file["entries"] = [{**peers_file(entry["cell"], id=entry["id"], peer=peer)["entries"][0], **{
        key: factor * entry["measurement"]["median_us"] for key in ("median_us", "low_us", "high_us")}}
        for entry in table["entries"] for peer, factor in (("slow", 1e4), ("quick", 1e-4 * entry["cell"]["tokens"] / 8))]
    room.write("peers.json", file)
    output = room.ok("bench", "--device", "cpu", "--table", "table.json", "--rounds", "2", "-q", "--peers", "peers.json",
                     "-o", "bench.json").stdout
    assert "Speed of the winners over others" in output
    validate("bench", room.path / "bench.json")
    compared = {(one["op"], one["other"]): one for one in room.json("bench.json")["comparisons"]}
    for op in ("fwd", "dx"):
        quick, fastest = compared[op, "quick (peer)"], compared[op, "fastest in each cell"]
        assert quick["cells"] == 2 and fastest == {**quick, "other": "fastest in each cell"}
        assert quick["least"] < quick["geometric_mean"] < quick["most"] < 1 < compared[op, "slow (peer)"]["least"]
        assert f"/{op}/" in quick["least_cell"]
        points = {(point["cell"]["tokens"], point["role"].split("+")[0], point["contender"].get("baseline")): point
                  for point in room.json("bench.json")["points"] if point["cell"]["op"] == op}
        ratios = [points[tokens, "peer", "quick"]["measurement"]["median_us"]
                  / points[tokens, "winner", None]["measurement"]["median_us"] for tokens in (8, 16)]
        assert quick["geometric_mean"] == pytest.approx((ratios[0] * ratios[1]) ** 0.5, rel=1e-3)


def test_bench_refuses_peers_of_another_device_with_both_names(room):
    tuned = json.loads(room.tuned("--wait", "0").read_text())
    file = peers_file(tuned["entries"][0]["cell"], id=tuned["entries"][0]["id"])
    file["environment"]["device"] = "NVIDIA H200"
    room.write("peers.json", file)
    text = room.error(3, "bench", *TINY, "--peers", "peers.json")
    assert f"--peers: these times are of NVIDIA H200 (burst), those of this run of {tuned['device']['name']} (burst)" in text
    del file["environment"]
    room.write("peers.json", file)
    assert "peers.json: 'environment' is missing" in room.error(2, "bench", *TINY, "--peers", "peers.json")


@pytest.mark.parametrize("changes, words", [
    ({"median_us": 0}, "peers.json: entries[0].median_us: must be more than 0, found 0"),
    ({"high_us": 1e-6}, "lies outside its interval"),
    ({"peer": 3}, "entries[0].peer: expected"),
    ({"id": None}, "entries[0].id: expected a string, found null"),
])
def test_bench_refuses_wrong_peers(room, changes, words):
    room.write("peers.json", peers_file(made_entry("up", 8)["cell"], **changes))
    assert words in room.error(2, "bench", *TINY, "--peers", "peers.json")


def test_bench_refuses_a_peer_twice_and_other_files(room):
    file = peers_file(made_entry("up", 8)["cell"])
    file["entries"].append(copy.deepcopy(file["entries"][0]))
    room.write("peers.json", file)
    assert "entries[1]: deepgemm-masked appears twice in x" in room.error(2, "bench", *TINY, "--peers", "peers.json")
    room.write("peers.json", {"schema": "moetune.table/1"})
    assert "expected 'moetune.peers/1'" in room.error(2, "bench", *TINY, "--peers", "peers.json")
    assert "--peers and --hot exclude each other" in room.error(2, "bench", *TINY, "--peers", "peers.json", "--hot")
