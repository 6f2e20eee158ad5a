"""cmake --install: what goes where, and that the program runs from there."""
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from conftest import BINARY, SOURCE, TINY, Room, validate

BUILD = pathlib.Path(os.environ.get("MOETUNE_BINARY_DIR", pathlib.Path(BINARY).parent))


@pytest.fixture
def installed(tmp_path):
    """A prefix that holds what the build of these tests installs."""
    prefix = tmp_path / "prefix"
    result = subprocess.run(["cmake", "--install", str(BUILD), "--prefix", str(prefix)], stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, universal_newlines=True)
    assert result.returncode == 0, result.stdout
    return prefix


def test_every_file_has_its_place(installed):
    files = {str(path.relative_to(installed)) for path in installed.rglob("*") if path.is_file()}
    wanted = {"bin/moetune", "share/bash-completion/completions/moetune", "share/zsh/site-functions/_moetune",
              "share/fish/vendor_completions.d/moetune.fish", "share/man/man1/moetune.1"}
    wanted |= {f"share/doc/moetune/{name}" for name in
               ("LICENSE", "README.md", "CHANGELOG.md", "configs/tuned/chart.svg", *(
                   str(page.relative_to(SOURCE)) for folder in ("configs", "kernels", "src") for page in (SOURCE / folder).rglob("*.md")))}
    if (BUILD / "libmoetune.so").exists():  # built with the CUDA toolkit
        wanted |= {"lib/libmoetune.so", "include/moetune.h", "lib/cmake/moetune/moetuneConfig.cmake",
                   "lib/cmake/moetune/moetuneConfigVersion.cmake"}
    wanted |= {f"share/moetune/scripts/{name}" for name in
               ("moetune.py", "peers.py", "peer_libraries.py", "pack_triton.py", "triton_moe.py", "served_moe.py", "gate", "slurm", "slurm_trial")}
    wanted |= {f"share/moetune/{path.relative_to(SOURCE)}" for path in (SOURCE / "scripts/ci").rglob("*") if path.is_file()}
    for folder in ("schema", "tuned", "models", "spaces", "suites", "cost"):
        of_it = (SOURCE / "configs" / folder).rglob("*")
        wanted |= {f"share/moetune/{path.relative_to(SOURCE / 'configs')}" for path in of_it if path.is_file()}
    assert files == wanted
    for name in ("LICENSE", "README.md", "CHANGELOG.md"):
        assert (installed / "share/doc/moetune" / name).read_bytes() == (SOURCE / name).read_bytes()


def test_links_of_the_documents_lead_somewhere(installed):
    docs, found = installed / "share/doc/moetune", 0
    for page in docs.rglob("*.md"):
        links = re.findall(r"\]\(([^)#:]+)[^):]*\)", re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S))
        assert [link for link in links if not (page.parent / link).exists()] == [], page
        found += len(links)
    assert found > 30


def test_scripts_run_from_there(installed):
    for name in ("peers.py", "pack_triton.py", "gate"):
        result = subprocess.run([sys.executable, "-B", str(installed / "share/moetune/scripts" / name), "--help"],
                                stdout=subprocess.PIPE, universal_newlines=True)
        assert result.returncode == 0 and "usage" in result.stdout.lower(), name


def test_the_program_runs_from_there(installed, tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    room = Room(work, str(installed / "bin/moetune"))
    assert room.ok("--version").stdout == subprocess.run([BINARY, "--version"], stdout=subprocess.PIPE,
                                                         universal_newlines=True).stdout
    room.ok("tune", *TINY, "--max-candidates", 2, "-q", "-o", "table.json")  # its worker is the installed binary too
    validate("table", work / "table.json")
    for table in sorted((installed / "share/moetune/tuned").glob("*.json")):
        room.ok("validate", table)
    room.ok("lookup", installed / "share/moetune/tuned/nvidia-h200-qwen3-30b-a3b.json", "--model", "qwen3-30b-a3b",
            "--tokens", 100)


def test_completions_are_those_of_the_program(installed, tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    room = Room(work, str(installed / "bin/moetune"))
    places = {"bash": "bash-completion/completions/moetune", "zsh": "zsh/site-functions/_moetune",
              "fish": "fish/vendor_completions.d/moetune.fish"}
    for shell, place in places.items():
        assert (installed / "share" / place).read_text() == room.ok("completions", shell).stdout, shell


@pytest.mark.skipif(not shutil.which("readelf"), reason="readelf is not installed")
def test_it_needs_nothing_of_the_build(installed):
    text = subprocess.run(["readelf", "-d", str(installed / "bin/moetune")], stdout=subprocess.PIPE,
                          universal_newlines=True, check=True).stdout
    assert "NEEDED" in text and "RPATH" not in text and "RUNPATH" not in text
