"""What outputs may replace: no input, no other output, nothing of another kind, and no table without a copy of it."""
import json
import os
import re

import pytest

from conftest import CPU, LAYER, SOURCE, TINY, trials

GPU_TABLE = SOURCE / "tests/cli/files/tuned/table-triton.json"
SPACE = {"schema": "moetune.space/1",
         "variants": {"cpu": {"block_m": [24], "block_n": [64], "block_k": [64], "threads": [1]}}}
SUITE = {"schema": "moetune.suite/1", "cells": [{"experts": 4, "top_k": 2, "n": 64, "k": 64, "tokens": 8}]}
CONFIG = {"num_local_experts": 4, "num_experts_per_tok": 2, "hidden_size": 64, "intermediate_size": 64}
TRACE = {"experts": 4, "top_k": 2, "tokens": 6, "layers": {"a": [6, 3, 2, 1]}}


def refused(room, named, *command):
    """The command is refused since two options name one file; no file changes."""
    before = {name: (room.path / name).read_bytes() for name in room.files()}
    text = room.error(2, *command)
    assert f"{named} name the same file" in text, text
    assert {name: (room.path / name).read_bytes() for name in room.files()} == before


def links(room, name):
    """The file under other names: itself, a symbolic link, a hard link, a way around."""
    os.symlink(name, room.path / f"{name}.symbolic")
    os.link(room.path / name, room.path / f"{name}.hard")
    return [name, f"{name}.symbolic", f"{name}.hard", f"./{name}", room.path / name]


def test_no_command_replaces_the_table_that_it_reads(room):
    table = room.made_table()
    for name in links(room, table):
        refused(room, "TABLE and --output", "export", table, "-o", name)
        refused(room, "TABLE and --output", "report", table, "-o", name)
        refused(room, "TABLE and --output", "export", name, "--format", "csv", "-o", table)
        refused(room, "--table and --output", "bench", *CPU, "--table", table, "-o", name)
        refused(room, "--table and --output", "verify", *CPU, "--table", table, "-o", name)
        for option in ("--output", "--junit", "--markdown"):
            refused(room, f"TABLE and {option}", "check", table, *CPU, option, name)


def test_tune_replaces_nothing_that_it_reads(room):
    for name, content in (("suite.json", SUITE), ("space.json", SPACE), ("config.json", CONFIG), ("trace.json", TRACE)):
        room.write(name, content)
    for option in ("--output", "--journal"):
        refused(room, f"--suite and {option}", "tune", *CPU, "--suite", "suite.json", option, "suite.json")
        refused(room, f"--space and {option}", "tune", *TINY, "--space", "space.json", option, "space.json")
        refused(room, f"--model and {option}", "tune", *CPU, "--model", "config.json", option, "./config.json")
        refused(room, f"--model and {option}", "tune", *CPU, "--model", ".", option, "config.json")
        refused(room, f"--routing and {option}", "tune", *CPU, *LAYER, "--routing", "uniform,trace:trace.json", option,
                "trace.json")


def test_files_that_a_suite_names_are_inputs(room):
    room.write("config.json", CONFIG)
    room.write("trace.json", TRACE)
    room.write("suite.json", {"schema": "moetune.suite/1", "cells": [{"model": "config.json", "routing": "trace:trace.json"}]})
    refused(room, "--model and --output", "verify", *CPU, "--suite", "suite.json", "-o", "config.json")
    refused(room, "--routing and --output", "verify", *CPU, "--suite", "suite.json", "-o", "trace.json")


def test_recordings_of_a_table_are_inputs(room):
    room.write("trace.json", TRACE)
    table = room.json(room.made_table(tokens=(6,)))
    table["entries"][0]["cell"]["routing"] = "trace:trace.json#a"
    table["entries"][0].update(id="custom/up/fwd/bf16/t6/trace:trace.json#a/e4/top2/n64/k64", m_sizes=[6, 3, 2, 1],
                               figures={"rows": 12, "active_experts": 4, "max_rows": 6, "max_over_mean": 2.0,
                                        "cv": 0.62361, "effective_experts": 2.88})
    room.write("table.json", table)
    refused(room, "--routing and --output", "bench", *CPU, "--table", "table.json", "-o", "trace.json")
    refused(room, "--routing and --output", "check", "table.json", *CPU, "-o", "trace.json")


def test_a_preset_is_no_file(room):
    room.write("qwen3-30b-a3b", "")  # a table may be called so
    room.ok("tune", *CPU, "--model", "qwen3-30b-a3b", "-o", "qwen3-30b-a3b", "--dry-run")


def test_outputs_differ_from_each_other(room):
    table = room.made_table()
    for first, second in (("--output", "--junit"), ("--output", "--markdown"), ("--junit", "--markdown")):
        refused(room, f"{first} and {second}", "check", table, *CPU, first, "x", second, "./x")
    (room.path / "link").symlink_to("new.json")
    for output, journal in (("x.json", "./x.json"), ("link", "new.json")):
        text = room.error(2, "tune", *TINY, "-o", output, "--journal", journal)
        assert "--output and --journal name the same file" in text


def test_the_step_summary_is_no_output(room):
    table = room.made_table()
    text = room.error(2, "check", table, *CPU, "--markdown", "summary.md",
                      env={"GITHUB_STEP_SUMMARY": str(room.path / "summary.md")})
    assert "GITHUB_STEP_SUMMARY and --markdown name the same file" in text


def test_merge_alone_may_write_to_its_input(room):
    room.made_table("a.json", tokens=(8,))
    before = (room.path / room.made_table("b.json", tokens=(16,))).read_bytes()
    result = room.ok("merge", "a.json", "b.json", "-o", "b.json")
    assert "the older b.json is kept as b.json.old" in result.stderr
    assert len(room.json("b.json")["entries"]) == 2
    assert (room.path / "b.json.old").read_bytes() == before


# What is there already

OTHERS = [("notes.txt", "my notes\n"), ("data.json", "{\"a\": 1}\n"), ("list.json", "[1]\n"),
          ("bytes", "\x00\x01"), ("quoting.json", '{"x": {"schema": "moetune.table/1"}}')]


@pytest.mark.parametrize("name, content", OTHERS)
def test_files_of_others_are_not_replaced(room, name, content):
    table = room.made_table()
    room.write(name, content)
    for kind, command in [("table of moetune", ["tune", *TINY, "-o"]), ("journal of moetune", ["tune", *TINY, "--journal"]),
                          ("result of moetune bench", ["bench", *TINY, "-o"]),
                          ("result of moetune verify", ["verify", *TINY, "-o"]),
                          ("result of moetune check", ["check", table, *CPU, "-o"]),
                          ("JUnit file of moetune check", ["check", table, *CPU, "--junit"]),
                          ("Markdown file of moetune check", ["check", table, *CPU, "--markdown"]),
                          ("table of moetune", ["merge", table, table, "-o"]),
                          ("CSV file of moetune export", ["export", table, "--format", "csv", "-o"]),
                          ("Markdown file of moetune export", ["export", table, "-o"]),
                          ("page of moetune report", ["report", table, "-o"]),
                          ("Markdown file of moetune report", ["report", table, "--format", "markdown", "-o"])]:
        text = room.error(2, *command, name)
        assert f"{name} exists and is not a {kind}: moetune does not replace it" in text, text
        assert "hint: give another file name, or remove that file first" in text
    assert (room.path / name).read_text() == content
    assert room.files() == sorted([name, "table.json"])


def test_a_table_is_no_result_of_other_commands(room):
    table = room.made_table("a.json")
    other = room.made_table("b.json")
    for command in (["bench", *TINY, "-o"], ["tune", *TINY, "--journal"], ["check", table, *CPU, "-o"]):
        assert "b.json exists and is not a " in room.error(2, *command, other)


def test_outputs_replace_their_own_kind_and_empty_files(room):
    table = room.made_table()
    room.write("empty", "")
    for _ in range(2):
        room.ok("verify", *TINY, "-q", "-o", "verify.json")
        room.ok("export", table, "--format", "csv", "-o", "x.csv")
        room.ok("export", table, "-o", "x.md")
        room.run("check", table, *CPU, "-q", "-o", "c.json", "--junit", "c.xml", "--markdown", "c.md")
    room.ok("export", table, "-o", "empty")
    assert room.files() == sorted([table, "verify.json", "x.csv", "x.md", "c.json", "c.xml", "c.md", "empty"])


def test_a_table_that_was_cut_off_is_still_ours(room):
    for name in ("cut.json", "cut2.json"):
        room.write(name, (room.path / room.made_table()).read_text()[:300])
    room.ok("merge", room.made_table("a.json", tokens=(8,)), room.made_table("b.json", tokens=(16,)), "-o", "cut.json")
    assert len((room.path / "cut.json.old").read_text()) == 300


def test_a_table_with_its_keys_in_another_order_is_still_ours(room):
    table = room.json(room.made_table("a.json", tokens=(8,)))
    room.write("sorted.json", json.dumps(table, sort_keys=True, indent=1))
    room.ok("merge", "a.json", room.made_table("b.json", tokens=(16,)), "-o", "sorted.json")
    assert (room.path / "sorted.json.old").exists()


def test_tune_keeps_every_table_and_journal_before_it(room):
    room.made_table("t.json", tokens=(8, 16, 24))
    room.made_table("t.json.old", tokens=(8, 16))
    journal = '{"schema": "moetune.journal/1", "kind": "header"}\n'
    for end in ("", ".old"):
        room.write("t.json.journal.jsonl" + end, journal)
    result = room.ok("tune", *TINY, "--max-candidates", "1", "--wait", "0", "-o", "t.json")
    assert "note: the older t.json is kept as t.json.old2\n" in result.stderr
    assert "as t.json.journal.jsonl.old2\n" in result.stderr
    assert [len(room.json(name)["entries"]) for name in ("t.json", "t.json.old", "t.json.old2")] == [1, 2, 3]
    assert (room.path / "t.json.journal.jsonl.old2").read_text() == journal
    assert len(trials(room.journal("t.json.journal.jsonl"))) == 1


def test_configurations_of_other_programs_are_kept(room):
    (room.path / "gpu.json").write_bytes(GPU_TABLE.read_bytes())
    room.ok("export", "gpu.json", "--format", "vllm", "-o", "configs")
    name, = os.listdir(room.path / "configs")
    room.ok("export", "gpu.json", "--format", "vllm", "-o", "configs")  # the same again: nothing to keep
    assert os.listdir(room.path / "configs") == [name]
    theirs = '{"1": {"BLOCK_SIZE_M": 16}}\n'
    (room.path / "configs" / name).write_text(theirs)
    assert f"is kept as configs/{name}.old" in room.ok("export", "gpu.json", "--format", "vllm", "-o", "configs").stderr
    assert (room.path / "configs" / f"{name}.old").read_text() == theirs


# Names

def test_empty_names(room):
    table = room.made_table()
    for command in (["tune", *TINY], ["bench", *TINY], ["verify", *TINY], ["check", table, *CPU], ["merge", table, table],
                    ["export", table], ["report", table], ["compile", *LAYER]):
        assert "--output: the value is empty" in room.error(2, *command, "-o", "")
    for option in ("--junit", "--markdown"):
        assert f"{option}: the value is empty" in room.error(2, "check", table, *CPU, option, "")
    assert "--journal: the value is empty" in room.error(2, "tune", *TINY, "--journal", "")
    assert room.files() == [table]


@pytest.mark.parametrize("name, reason", [("loop", "Too many levels of symbolic links"), ("x" * 250, "File name too long"),
                                          ("x" * 300, "File name too long"), ("x" * 300 + "/t.json", "File name too long")])
def test_names_that_lead_nowhere(room, name, reason):
    (room.path / "loop").symlink_to("pool")
    (room.path / "pool").symlink_to("loop")
    table = room.made_table()
    for command in (["tune", *TINY, "-o"], ["bench", *TINY, "-o"], ["verify", *TINY, "-o"], ["check", table, *CPU, "--junit"],
                    ["merge", table, table, "-o"], ["export", table, "-o"], ["report", table, "-o"]):
        text = room.error(2, *command, name)
        assert reason in text and "filesystem error" not in text, text
    for command in (["check", name], ["tune", *CPU, "--suite", name], ["tune", *TINY, "--space", name],
                    ["tune", *CPU, "--model", name], ["tune", *CPU, *LAYER, "--routing", f"trace:{name}.json"]):
        assert "filesystem error" not in room.error(2, *command)
    assert room.files() == ["loop", "pool", table]


def test_a_dry_run_looks_at_its_files_as_the_run_does(room):
    room.write("notes.txt", "my notes")
    assert "is not a table of moetune" in room.error(2, "tune", *TINY, "--dry-run", "-o", "notes.txt")
    assert "notes.txt" in room.error(2, "tune", *TINY, "--dry-run", "-o", "notes.txt/t.json")
    room.error(2, "tune", *TINY, "--dry-run", "-o", "/proc/moetune/t.json")
    room.ok("tune", *TINY, "--dry-run", "-o", "new/folder/t.json")
    assert room.files() == ["notes.txt"]


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "link"])
def test_an_open_descriptor_is_no_output(room, name):
    (room.path / "link").symlink_to("/dev/stdout")
    table = room.made_table()
    for command in (["tune", *TINY], ["tune", *TINY, "--dry-run"], ["bench", *TINY], ["merge", table, table], ["export", table], ["report", table]):
        with open(room.path / "shell", "w", encoding="utf-8") as out:  # where a shell sends standard output
            assert "expected the name of a regular file" in room.error(2, *command, "-o", name, stdout=out)
    assert (room.path / "shell").read_text() == "" and room.files() == ["link", "shell", table]
    assert not os.path.exists("/dev/stdout.journal.jsonl")


def test_dev_null_is_no_output(room):
    table = room.made_table()
    for command in (["tune", *TINY], ["tune", *TINY, "--dry-run"], ["bench", *TINY], ["verify", *TINY], ["check", table, *CPU],
                    ["merge", table, table], ["export", table], ["report", table]):
        assert "/dev/null: expected the name of a regular file, found a device" in room.error(2, *command, "-o", "/dev/null")
    for command in (["tune", "--for", "vllm", "--model", "qwen3-30b-a3b", "--device", "h200", "--dry-run"], ["compile", *LAYER],
                    ["export", SOURCE / "tests/cli/files/tuned/table-mma.json", "--format", "kernels"], ["export", GPU_TABLE, "--format", "vllm"]):
        assert re.search("/dev/null.* folder", room.error(2, *command, "-o", "/dev/null"))
    assert room.files() == [table]


def test_a_hyphen_is_standard_output(room):
    table = room.made_table()
    for command in (["verify", *TINY], ["bench", *TINY, "--rounds", "1"]):
        result = room.ok(*command, "-o", "-")
        assert json.loads(result.stdout)["schema"] == f"moetune.{command[0]}/1"
        words = [*command, "-o", "-", "--format", "markdown"]
        assert "--output - and --format markdown both ask for standard output" in room.error(2, *words)
    assert json.loads(room.ok("merge", table, table, "-o", "-").stdout)["schema"] == "moetune.table/1"
    assert room.ok("export", table, "--format", "csv", "-o", "-").stdout.startswith("device,")
    for command in (["tune", *TINY, "-o"], ["tune", *TINY, "--journal"], ["check", table, *CPU, "--junit"],
                    ["check", table, *CPU, "--markdown"]):
        assert "'-' is not the name of a file" in room.error(2, *command, "-")
    for command in (["compile", *LAYER], ["tune", "--for", "vllm", "--model", "qwen3-30b-a3b", "--device", "h200", "--dry-run"]):
        assert "'-' is not the name of a file or folder" in room.error(2, *command, "-o", "-")
    assert room.files() == [table]
