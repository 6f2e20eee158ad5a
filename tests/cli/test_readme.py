"""What the pages say is true: commands work as they stand there, links lead somewhere, names exist.

A fenced block of shell commands is run when the line before its fence is the comment <!-- run -->. In `console` blocks
the lines that begin with "$ " are commands and the rest is output (readme_test.cpp compares that of the first page); in
`sh` blocks every line is a command. A leading "moetune" or "build/release/moetune" is the binary under test. Blocks of a
file share one folder. Commands that need a GPU or hours are only parsed, with those between backquotes in a text.
"""
import json
import os
import re
import shlex
import subprocess
import sys

import pytest

from conftest import SOURCE, Room

PAGES = sorted(str(page.relative_to(SOURCE)) for folder in ("configs", "kernels", "scripts", "src", "tests/journals")
               for page in (SOURCE / folder).rglob("*.md")) + ["README.md"]
BLOCK = re.compile(r"^(?P<mark><!-- run -->\n+)?```(?P<kind>console|sh|bash)\n(?P<body>.*?)^```", re.M | re.S)
FENCED = re.compile(r"^```.*?^```", re.M | re.S)
LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
PLACEHOLDER = re.compile(r"[A-Z]+")
# Options whose values `moetune list` knows, and under which word.
LISTED = {"--suite": "suites", "--model": "models", "--space": "spaces", "--variant": "variants",
          "--strategy": "strategies", "--format": "formats"}
PROFILERS = ["ncu", "compute-sanitizer"]  # run the command that follows their options
SHOWN = ["text", "markdown", "json", "csv"]  # --format of other commands than export


def text_of(page):
    return (SOURCE / page).read_text(encoding="utf-8")


def commands(kind, body):
    """Whole command lines, with continuation lines joined."""
    body = body.replace("\\\n", " ")
    lines = [line[2:] for line in body.splitlines() if line.startswith("$ ")] if kind == "console" else body.splitlines()
    return [line for line in lines if line.strip() and not line.lstrip().startswith("#")]


def marked_commands(text):
    return [line for m in BLOCK.finditer(text) if m["mark"] for line in commands(m["kind"], m["body"])]


def all_commands(text):
    """Words of each command in a block or between backquotes, without the variables that are set before it."""
    lines = [line for m in BLOCK.finditer(text) for line in commands(m["kind"], m["body"])]
    spans = [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", FENCED.sub("", text))]
    lines += [span for span in spans if re.match(r"(\w+=\S+ )*(moetune |scripts/|build/)", span)]
    result = []
    for line in lines:
        words = shlex.split(line, comments=True)
        while words and re.fullmatch(r"\w+=\S*", words[0]):
            words = words[1:]
        result.append(words)
    return result


def anchors(text):
    """Anchors of a page's headings, as the web sites that show it make them."""
    headings = re.findall(r"^#+ (.*)$", FENCED.sub("", text), re.M)
    return [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]


def broken_links(page, text):
    broken = []
    for link in LINK.findall(FENCED.sub("", text)):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = (SOURCE / page).parent / name if name else SOURCE / page
        if not target.exists() or (anchor and anchor not in anchors(target.read_text(encoding="utf-8"))):
            broken.append(link)
    return broken


def missing_files(page, text):
    """Files of code or settings between backquotes that are neither beside the page, in the repository's root nor in a
    folder of exported kernels, which has src/runtime's files, the header in include."""
    names = re.findall(r"`((?:[\w.-]+/)*[a-z_]+\.(?:h|cuh|cpp|py)|[\w.-]+/[\w./-]+\.json)`", FENCED.sub("", text))
    folders = [(SOURCE / page).parent, SOURCE, SOURCE / "src/runtime"]
    def exists(name):
        return any((folder / name).exists() for folder in folders) or (
            name.startswith("include/") and (SOURCE / "src/runtime" / name[len("include/"):]).exists())
    return [name for name in names if not exists(name)]


def names_of(room, what):
    items = json.loads(room.ok("list", what, "--format", "json").stdout)["items"]
    return [name for item in items for name in [item["name"], *item.get("aliases", [])]]


def test_every_page_is_tested():
    found = subprocess.run(["git", "-C", str(SOURCE), "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
                           stdout=subprocess.PIPE, universal_newlines=True)
    if found.returncode == 0:
        assert sorted(page for page in found.stdout.split() if "golden/" not in page) == sorted([*PAGES, "CHANGELOG.md"])


def test_commands_links_and_names_are_found_in_a_text():
    text = ("# Some: `words` here\n<!-- run -->\n```console\n$ moetune list \\\n    models\n| out |\n```\n\n```sh\n# no\n"
            "A=1 scripts/none --x  # why\n```\nDo `moetune list\nknobs` in `base/no.h` and `tiles.h`, [a](#some-words-here) "
            "[b](#other) [c\nd](no.md) [e](https://example.org)\n")
    assert marked_commands(text) == ["moetune list      models"]
    assert all_commands(text) == [["moetune", "list", "models"], ["scripts/none", "--x"], ["moetune", "list", "knobs"]]
    assert anchors(text) == ["some-words-here"]
    assert LINK.findall(text) == ["#some-words-here", "#other", "no.md", "https://example.org"]
    assert broken_links("kernels/README.md", text) == ["#some-words-here", "#other", "no.md"]
    assert missing_files("kernels/README.md", text) == ["base/no.h"]


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere_and_files_exist(page):
    assert broken_links(page, text_of(page)) == []
    assert missing_files(page, text_of(page)) == []


@pytest.mark.parametrize("page", PAGES)
def test_pages_are_short(page):
    assert len(text_of(page).split()) < (900 if page == "README.md" else 1200)


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith(("configs/", "scripts/"))])
def test_pages_of_tasks_begin_with_a_command(page):
    first = next(part for part in text_of(page).split("\n\n")[1:])
    assert BLOCK.match(first + "\n"), first


@pytest.mark.parametrize("page", [page for page in PAGES if marked_commands(text_of(page))])
def test_marked_commands_run(tmp_path, page):
    room = Room(tmp_path)
    for folder in ("configs", "tests"):
        (tmp_path / folder).symlink_to(SOURCE / folder)
    for line in marked_commands(text_of(page)):
        words = shlex.split(line)
        assert words[0] in ("moetune", "build/release/moetune", "./build/release/moetune"), line
        result = room.run(*words[1:], timeout=600)
        assert result.returncode == 0, f"{line}\n{result.stdout}\n{result.stderr}"


def test_recordings_are_read_as_they_stand_there(tmp_path):
    """The block behind <!-- files -->: a file's name, and what it holds from the same column on."""
    block, = re.findall(r"^<!-- files -->\n```text\n(.*?)^```", text_of("configs/routings.md"), re.M | re.S)
    files = {}
    for line in block.splitlines():
        name = line[:12].strip() or name
        files.setdefault(name, []).append(line[12:])
    assert sorted(files) == ["ids.csv", "ids.json", "ids.npy", "rows.csv", "rows.json"]
    numpy = pytest.importorskip("numpy")
    room = Room(tmp_path)
    realised = set()
    for name, lines in files.items():
        if name.endswith(".npy"):
            words = re.search(r"numpy.array\((.*?)\)", lines[0])[1]
            numpy.save(tmp_path / name, numpy.array(json.loads(words)))
        else:
            room.write(name, "\n".join(lines) + "\n")
        plan = json.loads(room.ok("tune", "--device", "cpu", "--experts", 4, "--top-k", 2, "--n", 64, "--k", 64, "--routing",
                                  f"trace:{name}#0", "--dry-run", "--format", "json").stdout)
        realised.add(json.dumps(plan["cells"][0]["figures"]))
    assert len(realised) == 1  # all have the same rows


def require_options(words, help_text):
    known = re.findall(r"(?<![\w-])--?[a-z][a-z-]*", help_text)
    for option in [word.split("=")[0] for word in words if re.match(r"--?[a-z]", word)]:
        assert option in known, f"{shlex.join(words)}: {option}"


def require_names(room, words):
    for option, value in zip(words, words[1:]):
        if option not in LISTED or PLACEHOLDER.fullmatch(value):
            continue
        known = SHOWN if option == "--format" and words[1] != "export" else names_of(room, LISTED[option])
        if option == "--variant" and "--pack" in words:
            known = known + ["triton_moe", "vllm_moe", "sglang_moe", "my_kernel"]  # of scripts/pack_triton.py
        for name in value.split(","):
            assert name in known, f"{shlex.join(words)}: {option} {name}"


@pytest.mark.parametrize("page", PAGES)
def test_every_command_exists(tmp_path, page):
    room = Room(tmp_path)
    lines = all_commands(text_of(page))
    assert lines
    for words in lines:
        if words[0] in PROFILERS:
            words = words[words.index("moetune"):]
        if re.fullmatch(r"(.*/)?moetune", words[0]):
            result = room.run(*words[1:], "--help")  # --help is obeyed where the words before it parse
            assert result.returncode == 0, f"{shlex.join(words)}\n{result.stderr}"
            require_options(words, result.stdout)
            require_names(room, words)
        elif words[0].startswith("build/dev/"):
            assert list((SOURCE / "tests").glob(words[0][len("build/dev/"):].replace("_tests", "") + "/*_test.cpp")), words[0]
        else:
            assert os.access(SOURCE / words[0], os.X_OK), words[0]
            if words[0] == "scripts/peers.py":
                help_text = subprocess.run([sys.executable, "-B", str(SOURCE / words[0]), "--help"], check=True,
                                           stdout=subprocess.PIPE, universal_newlines=True).stdout
                require_options(words, help_text)
            if words[0] == "scripts/soak":  # its options are those of verify
                require_options(words, room.run("verify", "--help").stdout)


def test_every_knob_of_the_kernels_is_described(tmp_path):
    items = json.loads(Room(tmp_path).ok("list", "knobs", "--format", "json").stdout)["items"]
    knobs = {item["name"] for item in items if item["variants"] != ["cpu"]}
    _, _, section = text_of("kernels/README.md").partition("\n## Knobs\n")
    described = [name for line in re.findall(r"^- ((?:`\w+`(?:, )?)+):", section, re.M) for name in re.findall(r"\w+", line)]
    assert sorted(set(described)) == sorted(knobs)
    assert len(described) == len(set(described))
