"""lookup on other devices, and export: which files it writes, and where."""
import copy
import json
import os
import re

from conftest import CPU, FEW, LAYER, TINY, h200_device, validate

MMA = {"variant": "mma", "block_m": 64, "block_n": 64, "block_k": 64, "warps": 4, "stages": 3, "raster": "n", "group": 1}
TRITON = {"variant": "triton_moe", "pack": "0123456789ab", "BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64,
          "GROUP_SIZE_M": 1, "num_warps": 4, "num_stages": 3}
VLLM_NAME = "E=4,N=32,device_name=NVIDIA_H200.json"


def gpu_table(room, candidate=MMA):
    """A tuned table as if of a GPU."""
    table = room.json(room.made_table(tokens=(8,)))
    table["device"] = h200_device()
    for entry in table["entries"]:
        entry.update(candidate=dict(candidate), occupancy=round(4 / 64, 5))
    return table


def sglang_table(room):
    """With a down projection beside up: SGLang wants two files."""
    table = gpu_table(room, TRITON)
    down = copy.deepcopy(table["entries"][0])
    down["cell"].update(projection="down", n=64, k=32)
    down["id"] = down["id"].replace("/up/", "/down/").replace("/n64/k64", "/n64/k32")
    table["entries"].append(down)
    return room.write("gpu.json", table)


def test_lookup_answers_from_no_farther_than_asked(room):
    asked = ["lookup", room.made_table(tokens=(8,)), *LAYER, "--tokens", "64", "--format", "json", "--max-distance"]
    for distance, code, match in (("3.5", 0, "other_routing"), ("2.5", 1, "none")):
        result = room.run(*asked, distance)
        validate("lookup", text=result.stdout)
        answer, = json.loads(result.stdout)["answers"]
        assert result.returncode == code and answer["match"] == match and answer["distance"] > 3
    assert "cannot be negative" in room.error(2, *asked, "-1")
    assert "--max-distance" in room.error(2, *asked, "far")


def test_a_folder_is_made_for_vllm(room):
    room.write("gpu.json", gpu_table(room, TRITON))
    result = room.ok("export", "gpu.json", "--format", "vllm", "--unproven", "-o", "ex/qwen-vllm")
    assert os.listdir(room.path / "ex/qwen-vllm") == [VLLM_NAME]
    assert f"wrote ex/qwen-vllm/{VLLM_NAME}" in result.stderr
    assert "looks for the file name" not in result.stderr


def test_a_json_name_is_one_file(room):
    room.write("gpu.json", gpu_table(room, TRITON))
    result = room.ok("export", "gpu.json", "--format", "vllm", "--unproven", "-o", "ex/mine.json")
    assert os.listdir(room.path / "ex") == ["mine.json"]
    assert f"vllm looks for the file name {VLLM_NAME}" in result.stderr


def test_a_json_name_for_two_files_is_refused(room):
    table = sglang_table(room)
    text = room.error(2, "export", table, "--format", "sglang", "--unproven", "-o", "mine.json")
    assert "mine.json is one file, but the table makes 2 files: E=4,N=32" in text and "_down.json" in text
    assert not (room.path / "mine.json").exists()
    room.ok("export", table, "--format", "sglang", "--unproven", "-o", "folder")
    assert len(os.listdir(room.path / "folder")) == 2


def test_a_file_in_the_folders_place_is_refused(room):
    room.write("gpu.json", gpu_table(room, TRITON))
    room.write("taken", "mine")
    room.error(2, "export", "gpu.json", "--format", "vllm", "--unproven", "-o", "taken")
    assert (room.path / "taken").read_text() == "mine"


HOSTILE = "m<img src=x onerror=alert(1)>&|[y](javascript:1)`b`\\"


def is_live(text):
    return "<" in text or re.search(r"(?<!\\)(`|]\()", text)


def test_names_of_a_table_are_text_in_markdown(room):
    room.made_table("table.json")
    table = room.json("table.json")
    table["device"]["name"] = HOSTILE
    for entry in table["entries"]:
        entry["cell"]["model"] = HOSTILE
        entry["id"] = entry["id"].replace("custom", HOSTILE, 1)
    room.write("table.json", table)
    room.write("bad <b>.json", {"schema": "moetune.<i>/1"})
    for command in (["export", "table.json", "--format", "markdown", "-o", "-"],
                    ["report", "table.json", "--format", "markdown", "-o", "-"],
                    ["validate", "bad <b>.json", "--format", "markdown"],
                    ["lookup", "table.json", *LAYER, "--tokens", "8", "--routing", "balanced", "--format", "markdown"]):
        text = room.run(*command).stdout
        assert text and not is_live(text), command
        assert "&lt;" in text or command[0] == "lookup"
    assert "bad <b>.json" in room.run("validate", "bad <b>.json").stdout  # a terminal shows it as it is


def test_names_are_text_in_the_markdown_and_the_step_summary_of_check(room):
    room.ok("tune", *TINY, *FEW, "-q")
    table = room.json("moetune-table.json")
    for entry in table["entries"]:
        entry["id"] = entry["id"].replace("custom", HOSTILE, 1)
        entry["cell"]["model"] = HOSTILE
    room.write("x<b>.json", table)
    room.run("check", "x<b>.json", *CPU, "--threshold", "90%", "--markdown", "check.md", "-q",
             env={"GITHUB_STEP_SUMMARY": str(room.path / "summary.md")})
    for name in ("check.md", "summary.md"):
        text = (room.path / name).read_text()
        assert not is_live(text) and "&amp;\\|[y\\](javascript:1)\\`b\\`\\\\" in text and "x&lt;b&gt;.json" in text


def test_a_winner_with_a_knob_of_another_version_is_kept_and_cannot_run(room):
    table = room.json(room.tuned())
    entry, = table["entries"]
    entry["candidate"]["newknob"] = 3
    room.write("table.json", table)
    room.ok("validate", "table.json")
    asked = ["lookup", "table.json", *LAYER, "--tokens", "8"]
    assert "newknob=3" in room.ok(*asked).stdout
    assert "newknob=3" in room.ok("export", "table.json", "--format", "markdown", "-o", "-").stdout
    served, = json.loads(room.ok("export", "table.json", "--format", "runtime", "-o", "-").stdout)["cells"].values()
    assert served["knobs"]["newknob"] == 3
    words = "no kernel here has newknob=3; tune this cell again"
    result = room.run("check", "table.json", *CPU)
    assert result.returncode == 1 and words in " ".join(result.stdout.split())
    assert words in " ".join(room.run("verify", "--table", "table.json", *CPU).stdout.split())
