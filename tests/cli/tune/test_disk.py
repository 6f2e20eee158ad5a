"""Outputs that cannot be written: found before the work where they can be, else reported plainly."""
import os
import resource
import subprocess

import pytest

from conftest import CPU, FEW, LAYER, TINY, trials


@pytest.mark.parametrize("option", ["-o", "--journal"])
def test_unwritable_files_are_found_before_tuning(room, option):
    room.write("file", "")
    text = room.error(2, "tune", *TINY, option, "file/below.json")
    assert "file" in text
    assert room.files() == ["file"]


def test_a_read_only_folder(room):
    if os.geteuid() == 0:
        pytest.skip("root may write anywhere")
    (room.path / "locked").mkdir(mode=0o500)
    assert "cannot be written" in room.error(2, "tune", *TINY, "-o", "locked/table.json")


def test_a_full_standard_output(room):
    with open("/dev/full", "w", encoding="utf-8") as full:
        text = room.error(3, "tune", *TINY, *FEW, stdout=full)
    assert "cannot write to standard output: No space left on device" in text
    assert (room.path / "moetune-table.json").exists()  # the work is not lost


def test_a_closed_pipe_is_no_error(room):
    reader, writer = os.pipe()
    os.close(reader)
    result = room.run("tune", *TINY, *FEW, stdout=writer)
    os.close(writer)
    assert result.returncode == 0, result.stderr
    assert "error" not in result.stderr
    assert (room.path / "moetune-table.json").exists()


def test_a_closed_standard_error_is_no_error(room):
    reader, writer = os.pipe()
    os.close(reader)
    result = room.run("tune", *TINY, *FEW, stderr=writer)
    os.close(writer)
    assert result.returncode == 0


def test_a_journal_that_hits_the_file_size_limit(room):
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (8000, 8000))

    result = room.run("tune", *TINY, "--strategy", "exhaustive", preexec_fn=limit)
    assert result.returncode == 3, result.stderr
    assert "moetune-table.json.journal.jsonl: cannot write: File too large" in result.stderr
    assert "--resume" in result.stderr
    before = trials(room.journal())
    assert before
    room.ok("tune", *TINY, "--strategy", "exhaustive", "--resume")  # with room again, nothing is repeated
    after = trials(room.journal())
    assert after[:len(before)] == before and len(after) == len(set(after))


def test_a_journal_without_room_for_its_header_is_none(room):
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))

    result = room.run("tune", *TINY, *FEW, preexec_fn=limit)
    assert result.returncode == 3, result.stderr
    assert "moetune-table.json.journal.jsonl: cannot write: File too large" in result.stderr
    assert room.journal() == []
    result = room.ok("tune", *TINY, *FEW, "--resume")
    assert "moetune-table.json.journal.jsonl has nothing to continue" in result.stderr


def test_an_old_table_survives_a_failed_write(room):
    path = room.tuned()
    old = path.read_bytes()
    (room.path / "moetune-table.json.journal.jsonl").unlink()

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(old) // 2, len(old) // 2))

    result = room.run("tune", *CPU, *LAYER, "--tokens", "8,16,24,32", *FEW, "--journal", "/dev/null", preexec_fn=limit)
    assert result.returncode == 3, result.stderr
    assert path.read_bytes() == old
    assert room.files() == ["moetune-table.json"]  # and no temporary stays


def test_outputs_of_check_are_looked_at_first(room):
    path = room.tuned()
    room.write("file", "")
    for option in ("-o", "--junit", "--markdown"):
        room.error(2, "check", path, option, "file/below")


def small_files(size):
    """Every file that is larger fails, as on a full disk; standard output is a pipe and takes all."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def test_check_names_every_output_that_fails(room):
    path = room.tuned()
    with open("/dev/full", "w", encoding="utf-8") as full:
        text = room.error(3, "check", path, *CPU, "-q", "-o", "a.json", "--junit", "c.xml", "--markdown", "c.md",
                          preexec_fn=small_files(20), stdout=full)
    assert text == ("moetune: error: cannot write to standard output: No space left on device; a.json: cannot write: File "
                    "too large; c.xml: cannot write: File too large; c.md: cannot write: File too large\n")


@pytest.mark.parametrize("command", [["verify", *TINY], ["bench", *TINY, "--rounds", "3"]])
@pytest.mark.parametrize("form", ["text", "json"])
def test_results_that_find_no_room_are_on_standard_output(room, command, form):
    result = room.run(*command, "-o", "out.json", "--format", form, preexec_fn=small_files(100))
    assert result.returncode == 3, result.stderr
    assert result.stderr.endswith("moetune: error: out.json: cannot write: File too large\n")  # and no hint
    assert "loop" in result.stdout or "right" in result.stdout or '"ok"' in result.stdout
    assert "Written to" not in result.stdout
    assert room.files() == []


def test_bench_writes_its_file_though_standard_output_is_full(room):
    with open("/dev/full", "w", encoding="utf-8") as full:
        text = room.error(3, "bench", *TINY, "--rounds", "3", "-o", "bench.json", stdout=full)
    assert text.count("cannot write to standard output") == 1
    assert len(room.json("bench.json")["points"]) >= 2


@pytest.fixture
def tiny_disk(room):
    """A file system that is full, for one test."""
    disk = room.path / "tiny"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", disk], stderr=subprocess.PIPE)
    if mounted.returncode != 0:
        pytest.skip("no file system may be mounted here")
    try:
        with open(disk / "filler", "wb", buffering=0) as filler:
            try:
                while filler.write(b"x" * 4096):
                    pass
            except OSError:
                pass
        yield disk
    finally:
        subprocess.run(["umount", disk], check=True)


def test_a_full_disk_names_no_option_that_the_command_lacks(room, tiny_disk):
    path = room.tuned()
    result = room.run("check", path, *CPU, "--threshold", "90%", "-q", "-o", "tiny/c.json", "--junit", "c.xml")
    assert result.returncode == 3
    assert result.stderr == "moetune: error: tiny/c.json: cannot write: No space left on device\n"
    assert "1 cell: " in result.stdout and "<testcase" in (room.path / "c.xml").read_text()
    assert "--resume" not in room.error(3, "export", path, "--format", "csv", "-o", "tiny/table.csv")
    (room.path / "other.json").write_bytes(path.read_bytes())
    assert "--resume" not in room.error(3, "merge", path, "other.json", "-o", "tiny/merged.json")
    assert "--resume" in room.error(3, "tune", *TINY, *FEW, "-o", "tiny/table.json", "--journal", "journal.jsonl")
