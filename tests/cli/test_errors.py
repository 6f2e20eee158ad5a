"""Wrong requests: a clear sentence, exit code 2, and nothing written."""
import json
import os
import pathlib
import subprocess
import sys

import pytest

from conftest import CPU, FEW, LAYER, SOURCE, TINY


def tune(room, *arguments):
    text = room.error(2, "tune", *CPU, *arguments)
    assert room.files() == []
    return text


@pytest.mark.parametrize("arguments, words", [
    ([], "no layer is given"),
    (["--experts", "4"], "--top-k: the size is missing"),
    (LAYER + ["--tokens", "0"], "--tokens: 0 is outside 1 to"),
    (LAYER + ["--tokens", "200000000"], "rows"),
    (LAYER + ["--routing", "uniform,"], "--routing: the list 'uniform,' has an empty word"),
    (LAYER + ["--tokens", ""], "--tokens: the value is empty"),
    (LAYER + ["--tokens", "8,"], "--tokens: the list '8,' has an empty word"),
    (LAYER + ["--variant", ","], "--variant: the list ',' has an empty word"),
    (LAYER + ["--set", "stagse=3"], "unknown knob 'stagse'\nhint: did you mean 'stages'?"),
    (LAYER + ["--variant", "cpu", "--set", "stages=3"],
     "no variant of the space 'all' has the knob 'stages'\nhint: variants that have it: "),
    (LAYER + ["--set", "stages=3"],
     "--set stages=3: no variant of the space 'all' that runs on a cpu has the knob 'stages'\nhint: variants that have it: "),
    (LAYER + ["--time-budget", "soon"], "'soon' is not a duration"),
    (LAYER + ["--time-budget", "0s"], "not a duration"),
    (LAYER + ["--wait", "soon"], "soon"),
    (LAYER + ["--max-candidates", "0"], "--max-candidates"),
    (LAYER + ["--set", "block_m"], "must be knob=value,value"),
    (LAYER + ["--set", "block_m="], "empty"),
    (LAYER + ["--kernels", "nowhere"], "--kernels: nowhere is not a folder"),
])
def test_wrong_requests(room, arguments, words):
    assert words in tune(room, *arguments)


@pytest.mark.parametrize("arguments, words", [
    (["--variant", "mma", "--set", "split=9"], "no candidate is legal for these cells: split must lie in 1 to 8"),
    (["--variant", "cpu", "--space", "quick"], "no variant of the space 'quick' runs on a GPU"),
])
def test_compile_says_why_nothing_is_legal(room, arguments, words):
    assert words in room.error(2, "compile", *LAYER, *arguments)


@pytest.mark.parametrize("command, said", [
    (["compile", *LAYER, "--show-unit", "-o", "cubins"], "error: --output has no effect with --show-unit"),
    (["compile", *LAYER, "--show-unit", "--format", "json"], "warning: --format has no effect with --show-unit"),
    (["list", "models", "--show", "mixtral-8x7b", "--format", "json"], "warning: --format has no effect with --show"),
    (["doctor", *CPU, "--quick", "--no-cache"], "warning: --no-cache has no effect with --quick"),
    (["tune", *TINY, "--at-once", "7", "--dry-run"], "warning: --at-once has no effect on a cpu"),
    (["list", "models", "--variant", "mma"], "error: --variant is for the list of knobs"),
    (["tune", *TINY, "-o", "t.json", "--journal", "t.json.lock"], "--journal names the lock file of --output: t.json.lock"),
    (["bench", "t.json", "--table", "t.json"], "TABLE and --table both name a table"),
    (["verify", *TINY, "--candidate", "cpu", "--variant", "mma"], "no variant of the space 'quick' runs on a cpu"),
])
def test_options_without_an_effect_are_named(room, command, said):
    assert said in room.run(*command).stderr


def test_missing_files_name_the_nearest(room):
    room.write("loads.json", "{}")
    text = room.error(2, "tune", *CPU, *LAYER, "--routing", "trace:laods.json")
    assert "laods.json" in text and "did you mean 'loads.json'?" in text


@pytest.mark.parametrize("name, content, words", [
    ("cut.json", '{"schema": "moetune.table/1", "tool": {"na', "cut off"),
    ("broken.json", '{"schema": "moetune.table/1",, }', "broken.json:1:"),
    ("empty.json", "", "empty.json"),
    ("other.json", '{"schema": "moetune.bench/1"}', "its schema is 'moetune.bench/1', expected 'moetune.table/1'"),
    ("newer.json", '{"schema": "moetune.table/2"}', "its schema is 'moetune.table/2', expected 'moetune.table/1'"),
    ("older.json", '{"schema": "moetune.table/0"}', "another version of moetune wrote it: make it again with this one"),
    ("plain.json", "{}", "schema"),
    ("list.json", "[]", "list.json"),
    ("deep.json", "[" * 100000, "deep.json"),
    ("binary.json", "\x00\x01\x02", "binary.json:1:1"),
])
@pytest.mark.parametrize("command", [["check"], ["lookup", *LAYER], ["export"], ["merge", "good.json"], ["bench", "--table"]])
def test_broken_tables(room, command, name, content, words):
    room.write("good.json", {"schema": "moetune.table/1"})
    room.write(name, content)
    command = command[:1] + [name] + command[1:] if command[0] == "lookup" else command + [name]
    text = room.error(2, *command)
    assert words in text or "good.json" in text


def test_a_huge_file_is_refused(room):
    with open(room.path / "huge.json", "wb") as file:
        file.truncate(3 << 30)  # sparse: takes no room
    text = room.error(2, "check", "huge.json", timeout=60)
    assert "huge.json: larger than" in text


def test_candidates_that_cannot_run_are_reported(room):
    result = room.run("bench", *TINY, "--candidate", "simt block_m=16 block_n=64 block_k=16")
    assert result.returncode == 1
    assert "simt: illegal: simt runs on GPUs only" in " ".join(result.stdout.split())


def test_plans_are_made_for_a_gpu_that_is_not_here(room):
    request = ["--device", "h200", "--model", "qwen3-30b-a3b", "--projection", "up", "--tokens", "16"]
    plan = json.loads(room.ok("tune", *request, "--dry-run", "--space", "quick", "--format", "json").stdout)
    assert plan["device"]["name"] == "NVIDIA H200" and plan["device"]["processors"] == 132
    assert "NVIDIA H200 is planned and compiled for, but is not here to run kernels" in room.error(2, "tune", *request)


def test_a_dry_run_ends_as_the_run_does(room):
    for options in (["--set", "block_m=7"], ["--variant", "mma"], ["--set", "stages=3"]):
        run = room.error(2, "tune", *TINY, *options)
        dry = room.run("tune", *TINY, *options, "--dry-run")
        assert dry.returncode == 2
        assert dry.stderr.splitlines()[0] == run.splitlines()[0]
    assert "block_m must be a multiple of 8" in room.run("tune", *TINY, "--set", "block_m=7", "--dry-run").stdout
    missing = ["--routing", "trace:missing.json"]
    assert room.error(2, "tune", *TINY, *missing) == room.error(2, "tune", *TINY, *missing, "--dry-run")


def large_space(room):
    """Over five million candidates of the cpu."""
    values = {"block_m": [8 * i for i in range(1, 201)], "block_n": [32 * i for i in range(1, 101)],
              "block_k": [64 * i for i in range(1, 61)], "threads": [1, 2, 3, 4, 5]}
    return room.write("large.json", {"schema": "moetune.space/1", "variants": {"cpu": values}})


def test_a_space_too_large_to_list_names_the_remedy(room):
    space = large_space(room)
    exhaustive = ["tune", *TINY, "--strategy", "exhaustive"]
    for command in (exhaustive, [*exhaustive, "--dry-run"], ["tune", *TINY, "--strategy", "random"], ["verify", *TINY]):
        text = room.error(2, *command, "--space", space)
        assert "the space of 'cpu' has over 5000000 candidates" in text
        assert "--max-candidates N" in text and "--strategy random" in text
        assert room.files() == [space]


def test_a_space_too_large_to_list_is_searched(room):
    searching = ["tune", *TINY, "--space", large_space(room)]
    plan = room.ok(*searching, "--dry-run").stdout
    assert "The space is searched without a list of its candidates" in plan
    assert "legal" not in json.loads(room.ok(*searching, "--dry-run", "--format", "json").stdout)["cells"][0]
    room.ok(*searching, "--max-candidates", "4", "-q")
    assert len([line for line in room.journal() if line["kind"] == "trial"]) >= 4


def test_a_space_too_large_to_list_is_drawn_from(room):
    drawing = ["tune", *TINY, "--space", large_space(room), "--strategy", "random", "--max-candidates", "4"]
    plan = json.loads(room.ok(*drawing, "--dry-run", "--format", "json").stdout)["cells"][0]
    assert plan["legal"] == 4
    room.ok(*drawing, "-q", "--wait", "0")
    tried = [line["candidate"] for line in room.journal() if line["kind"] == "trial"]
    assert len(tried) == 4  # the default among them
    room.ok("verify", *TINY, "--space", "large.json", "--max-candidates", "2", "-q")


def test_the_full_space_of_hopper_is_drawn_from(room):
    full = ["compile", "--model", "qwen3-30b-a3b", "--space", "full", "--variant", "wgmma", "--show-unit"]
    units = room.ok(*full, "--max-candidates", "5").stdout
    assert units.count("struct Config") == 5
    assert units == room.ok(*full, "--max-candidates", "5").stdout != room.ok(*full, "--max-candidates", "5", "--seed", "1").stdout
    assert "needs a space to draw from" in room.error(2, "compile", *LAYER, "--max-candidates", "5")
    assert "--max-candidates: 0 is outside" in room.error(2, *full, "--max-candidates", "0")


def is_clean(text):
    """Nothing in it steers a terminal."""
    return all(c == "\n" or c.isprintable() for c in text)


HOSTILE = "a\x1b[31m\x07\x9b\u202eb\x7f"


def test_control_characters_reach_no_terminal(room):
    room.write("hostile.json", {"schema": HOSTILE})
    room.write("layers.json", {"experts": 4, "top_k": 2, "tokens": 6, "layers": {HOSTILE: [6, 3, 2, 1]}})
    room.write(HOSTILE + ".json", {"num_local_experts": 4, "num_experts_per_tok": 2, "hidden_size": 64, "intermediate_size": 64})
    for command in (["list", HOSTILE], [HOSTILE], ["tune", "--" + HOSTILE], ["tune", *CPU, "--model", HOSTILE],
                    ["tune", *TINY, "--space", HOSTILE], ["check", HOSTILE], ["check", "hostile.json"],
                    ["tune", *TINY, "--device=" + HOSTILE], ["tune", *TINY, "-o", HOSTILE + "/" + "x" * 300],
                    ["tune", *CPU, *LAYER, "--routing", "trace:layers.json"], ["tune", *CPU, "--model", HOSTILE + ".json"],
                    ["tune", *CPU, *LAYER, "--routing", f"trace:{HOSTILE}.json"], ["bench", *TINY, "--candidate", HOSTILE]):
        text = room.error(2, *command)
        assert is_clean(text), repr(text)
    assert "\\x1b[31m\\x07\\u009b\\u202eb\\u007f" in room.error(2, "list", HOSTILE)


def test_names_of_files_and_devices_are_escaped_in_results(room):
    table = room.json(room.made_table())
    table["device"]["name"] = HOSTILE
    room.write("named.json", table)
    for command in (["export", "named.json"], ["export", "named.json", "--format", "csv"], ["merge", "named.json", "named.json"],
                    ["lookup", "named.json", *LAYER, "--tokens", "8", "--routing", "balanced"]):
        result = room.ok(*command)
        assert is_clean(result.stdout) and is_clean(result.stderr), repr(result.stdout)
    merged = json.loads(room.ok("merge", "named.json", "named.json").stdout)
    assert merged["device"]["name"] == HOSTILE  # JSON keeps what it says


def test_arguments_that_are_no_utf8_are_escaped(room):
    for arguments in ([b"list", b"a\xffb"], [b"check", b"a\xffb"], [b"tune", b"--routing", b"trace:\xff.json", *map(os.fsencode, LAYER)]):
        result = subprocess.run([os.fsencode(room.binary), *arguments], cwd=room.path, env=room.env, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE)
        assert result.returncode == 2
        assert b"\\xff" in result.stderr and is_clean(result.stderr.decode("utf-8"))


def test_resume_of_another_run(room):
    room.tuned()
    text = room.error(2, "tune", *CPU, *LAYER, "--tokens", "16", *FEW, "--resume")
    assert "the journal is of other cells" in text
    assert len(room.journal()) > 1  # still there


def test_resume_of_a_broken_journal(room):
    room.tuned()
    journal = room.path / "moetune-table.json.journal.jsonl"
    lines = journal.read_text().splitlines()
    journal.write_text("\n".join([lines[0], "{nonsense", *lines[2:]]) + "\n")
    text = room.error(2, "tune", *TINY, *FEW, "--resume")
    assert "moetune-table.json.journal.jsonl:2" in text


def test_a_space_without_a_variant_for_the_device_moves_no_journal(room):
    room.tuned()
    before = room.files()
    assert "no variant of the space 'all' runs on a cpu" in room.error(2, "tune", *TINY, "--variant", "mma")
    assert room.files() == before


def test_values_of_which_none_is_legal_are_not_replaced_by_the_default(room):
    text = room.error(2, "tune", *TINY, "--set", "block_m=7")
    assert "no candidate of the space 'all' is legal: " in text and "block_m" in text, text
    assert room.files() == []


@pytest.mark.parametrize("closed", [(1,), (2,), (1, 2), (0, 1), (0, 1, 2)])
def test_closed_descriptors_are_not_taken_for_files(room, closed):
    def close():
        for fd in closed:
            os.close(fd)

    result = room.run("tune", *TINY, *FEW, "-o", "t.json", preexec_fn=close, stdin=None)
    assert result.returncode == (3 if 1 in closed else 0), result.stderr
    table = json.loads((room.path / "t.json").read_text())
    assert len(table["entries"]) == 1 and table["entries"][0]["complete"]
    for lock in pathlib.Path(room.env["MOETUNE_LOCK_DIR"]).iterdir():
        assert "|" not in lock.read_text() and "[" not in lock.read_text(), lock.read_text()


def test_no_gpu_where_there_is_none(room):
    listed = room.ok("list", "devices").stdout
    if "cuda:0" in listed:
        pytest.skip("this machine has a GPU")
    room.error(3, "tune", "--device", "cuda", *LAYER)


def test_a_dump_of_sglang_is_converted(room):
    room.write("dump.pt", "")
    text = room.error(2, "tune", *CPU, *LAYER, "--routing", "trace:dump.pt")
    assert "make JSON of SGLang's dump with scripts/convert_recording.py FILE.pt" in text
    script = [os.environ.get("MOETUNE_TRITON_PYTHON", sys.executable), "-B", SOURCE / "scripts/convert_recording.py"]
    if subprocess.run([script[0], "-c", "import torch"], capture_output=True).returncode != 0:
        pytest.skip("needs torch")
    dump = "import torch; torch.save({'logical_count': torch.tensor([[[2, 1, 0, 1]], [[1, 2, 1, 0]]])}, 'dump.pt')"
    subprocess.run([script[0], "-c", dump], check=True, cwd=room.path)
    subprocess.run([*script, "dump.pt", "--top-k", "2", "-o", "loads.json"], check=True, cwd=room.path)
    assert json.loads((room.path / "loads.json").read_text()) == {"top_k": 2, "logical_count": [[3, 3, 1, 1]]}
    room.run("tune", *CPU, *LAYER, "--routing", "trace:loads.json", "--dry-run")
