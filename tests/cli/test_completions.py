"""completions: what bash, zsh and fish complete a command line to."""
import json
import os
import pathlib
import pty
import re
import select
import shutil
import subprocess
import time

import pytest


SHELLS = ["bash", "zsh", "fish"]
needs_zsh = pytest.mark.skipif(not shutil.which("zsh"), reason="zsh is not installed")
needs_fish = pytest.mark.skipif(not shutil.which("fish"), reason="fish is not installed")


@pytest.fixture
def script(room):
    """Writes the script of a shell; returns its path."""
    def write(shell):
        return room.path / room.write(f"{shell}-completions", room.ok("completions", shell).stdout)
    return write


def in_path(room, **more):
    """An environment whose shells find moetune."""
    return {**room.env, "PATH": f"{pathlib.Path(room.binary).parent}:{room.env['PATH']}", **more}


def bash(room, path, line, breaks=None):
    """What bash's function replies for a line, as words."""
    text = 'source "$1"; [[ $3 ]] && COMP_WORDBREAKS=$3; COMP_LINE=$2; COMP_POINT=${#2}; _moetune; ' \
           'printf "%s\\n" "${COMPREPLY[@]}"'
    result = subprocess.run(["bash", "--norc", "-c", text, "bash", str(path), line, breaks or ""], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, universal_newlines=True, cwd=room.path, env=in_path(room))
    assert result.returncode == 0 and result.stderr == "", result.stderr
    return result.stdout.split()


@pytest.mark.parametrize("shell", SHELLS)
def test_scripts_are_right_shell(script, shell):
    path = script(shell)
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    result = subprocess.run([shell, "-n", str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
    assert result.returncode == 0 and result.stderr == "", result.stderr


def test_bash_completes_every_command_and_option_of_help(room, script):
    path = script("bash")
    commands = re.findall(r"^  (\w+) +\w", room.ok("--help").stdout.split("Options:")[0].split("Commands:")[1], re.M)
    assert len(commands) >= 13
    assert set(bash(room, path, "moetune ")) >= {*commands, "help", "--version"}
    for command in commands:
        declared = room.ok(command, "--help").stdout.split("Examples:")[0]
        names = set(re.findall(r"^  (?:-\w, )?(--[a-z][a-z0-9-]*)", declared, re.M))
        assert len(names) >= 2
        assert {word for word in bash(room, path, f"moetune {command} --") if word.startswith("--")} == names, command


@pytest.mark.parametrize("line, words", [
    ("moetune val", ["validate"]),
    ("moetune help val", ["validate"]),
    ("moetune --color alw", ["always"]),
    ("moetune --color never val", ["validate"]),
    ("moetune tune --model mixtral-8x7", ["mixtral-8x7b"]),
    ("moetune tune --model mixtral-8x7b,qwen3-3", ["mixtral-8x7b,qwen3-30b-a3b"]),
    ("moetune tune --model=mixtral-8x7", ["mixtral-8x7b"]),          # bash replaces what stands behind '='
    ("moetune tune --device cuda:", ["0", "all"]),                   # and behind ':'
    ("moetune tune --routing uniform,trace:g", ["gpt-oss-20b"]),
    ("moetune tune --projection up,d", ["up,down"]),
    ("moetune tune --op d", ["dx", "dw"]),
    ("moetune tune --dtype b", ["bf16"]),
    ("moetune tune --space qu", ["quick"]),
    ("moetune tune --suite hopper-p", ["hopper-peers"]),
    ("moetune tune --variant mm", ["mma"]),
    ("moetune tune --strategy ex", ["exhaustive"]),
    ("moetune tune --format ", ["text", "markdown", "json", "csv"]),
    ("moetune check --inconclusive ", ["fail", "pass"]),
    ("moetune tune --regime ", ["burst", "sustained"]),
    ("moetune tune --choose w", ["worst"]),
    ("moetune merge --prefer l", ["last"]),
    ("moetune export --format v", ["vllm"]),
    ("moetune list sch", ["schemas"]),
    ("moetune list schemas --show pee", ["peers"]),
    ("moetune completions ", ["bash", "zsh", "fish"]),
    ("moetune tune --tokens ", []),
    ("moetune check tab", ["table.json"]),
    ("moetune merge table.json tab", ["table.json"]),
    ("moetune tune -o tab", ["table.json"]),
    ("moetune tune --output=tab", ["table.json"]),
    ("moetune tune --model tab", ["table.json"]),
])
def test_bash_completes(room, script, line, words):
    room.write("table.json", {})
    assert bash(room, script("bash"), line) == words


def test_bash_completes_where_colons_do_not_end_words(room, script):
    assert bash(room, script("bash"), "moetune tune --device cuda:", breaks=" =") == ["cuda:0", "cuda:all"]


def test_bash_completes_all_models(room, script):
    models = json.loads(room.ok("list", "models", "--format", "json").stdout)["items"]
    words = bash(room, script("bash"), "moetune bench --model ")
    assert words[:len(models)] == [model["name"] for model in models]
    assert set(words[len(models):]) == {entry.name + "/" * entry.is_dir() for entry in room.path.iterdir()}


def fish(room, path, line):
    result = subprocess.run(["fish", "--no-config", "-c", f"source {path}; complete -C '{line}'"], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, universal_newlines=True, cwd=room.path,
                            env=in_path(room, HOME=str(room.path), XDG_CONFIG_HOME=str(room.path)))
    assert result.returncode == 0, result.stderr
    return [text.split("\t")[0] for text in result.stdout.splitlines()]


@needs_fish
@pytest.mark.parametrize("line, words", [
    ("moetune val", ["validate"]),
    ("moetune tune --tok", ["--tokens"]),
    ("moetune tune --model mixtral-8x7b,qwen3-3", ["mixtral-8x7b,qwen3-30b-a3b"]),
    ("moetune tune --device cuda:", ["cuda:0", "cuda:all"]),
    ("moetune tune -o tab", ["table.json"]),
])
def test_fish_completes(room, script, line, words):
    room.write("table.json", {})
    assert fish(room, script("fish"), line) == words


def zsh(room, path, typed):
    """The line that an interactive zsh has after a tab."""
    folder = room.path / "functions"
    folder.mkdir(exist_ok=True)
    shutil.copy(path, folder / "_moetune")
    room.write(".zshrc", f"fpath=({folder} $fpath); autoload -Uz compinit; compinit -u -d {room.path}/dump; PS1='> '\n"
                         "show() { print -r -- \"<<$BUFFER>>\" }; zle -N show; bindkey '^X^P' show; print READY\n")
    master, slave = pty.openpty()
    process = subprocess.Popen(["zsh", "-i"], stdin=slave, stdout=slave, stderr=slave, cwd=room.path, start_new_session=True,
                               env=in_path(room, ZDOTDIR=str(room.path), TERM="dumb", COLUMNS="400"))
    os.close(slave)
    seen = b""

    def wait_for(pattern):
        nonlocal seen
        end = time.monotonic() + 60
        while not re.search(pattern, seen):
            assert time.monotonic() < end, seen
            if select.select([master], [], [], 0.2)[0]:
                seen += os.read(master, 65536)
        return re.search(pattern, seen)
    try:
        wait_for(rb"READY\r\n[^\n]*> ")
        os.write(master, typed.encode() + b"\t\x18\x10")
        return wait_for(rb"<<(.*)>>").group(1).decode().rstrip()
    finally:
        process.kill()
        process.wait()
        os.close(master)


@needs_zsh
@pytest.mark.parametrize("typed, line", [
    ("moetune valid", "moetune validate"),
    ("moetune tune --projection up,do", "moetune tune --projection up,down"),
    ("moetune tune --device cuda:a", "moetune tune --device cuda:all"),
    ("moetune merge old.json tab", "moetune merge old.json table.json"),
    ("moetune tune -o tab", "moetune tune -o table.json"),
])
def test_zsh_completes(room, script, typed, line):
    room.write("table.json", {})
    assert zsh(room, script("zsh"), typed) == line


def test_a_mistyped_shell(room):
    assert "did you mean 'fish'?" in room.error(2, "completions", "fihs")
    assert "SHELL is required" in room.error(2, "completions")
