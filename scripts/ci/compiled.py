#!/usr/bin/env python3
"""Compares what kernels take on a GPU with what they took before: registers,
spilled bytes, shared memory, threads.

Both files are output of `moetune compile --format json` (moetune.compile/1).
Kernels are paired by cell and variant, first those of equal knobs, then the
nearest. Prints as Markdown what differs, the worst first. Worse is: more than N
registers a thread above the stored ones [8], more spilled bytes, more shared
memory of a block, a status other than ok, a kernel that is gone. Exit 0:
nothing is worse. 1: something is. 2: wrong usage.
"""
import argparse
import json
import re
import sys

FIGURES = ("registers", "spill_bytes", "shared_bytes", "threads")
NOT_OF_A_KERNEL = ("model", "routing", "seed", "tp", "ep", "zero_experts", "tokens")  # of a cell


class WrongFile(Exception):
    """Exit code 2."""


def markdown(text):
    """`text` in one line of a table, where it makes no markup and mentions nobody."""
    text = re.sub(r"([\\`*~$|<>\[\]])", r"\\\1", " ".join(str(text).split()))
    return text.replace("@", "@&#8203;").replace("://", "&#58;//")


def words(values):
    return " ".join(name if value is True else f"{name}={value}" for name, value in values.items() if value is not False)


def kernels_of(path):
    """{(variant, cell, tokens): [(knobs, figures)]}, each kernel of a cell once, whatever its model, routing and build."""
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
        if document["schema"] != "moetune.compile/1":
            raise WrongFile(f"{path}: its schema is {document['schema']}, not moetune.compile/1")
        kernels = {}
        for result in document["results"]:
            compiled = result["compile"]
            cell = {name: value for name, value in result["cell"].items() if name not in NOT_OF_A_KERNEL}
            knobs = {name: value for name, value in result["candidate"].items() if name not in ("variant", "pack")}
            figures = {"status": compiled["status"], "registers": compiled.get("registers", 0),
                       "spill_bytes": compiled.get("spill_bytes", 0), "threads": result.get("threads", 0),
                       "shared_bytes": result.get("shared_bytes", 0) + compiled.get("static_shared_bytes", 0)}
            of_cell = kernels.setdefault((result["candidate"]["variant"], words(cell), result["cell"]["tokens"]), [])
            if (knobs, figures) not in of_cell:
                of_cell.append((knobs, figures))
        return kernels
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise WrongFile(f"{path}: {error!r}") from error


def pairs(stored, new):
    """Kernels of a cell and variant: those of equal knobs, the others beside the nearest. None where one side has no more."""
    def changed(before, now):
        return sum(before[0].get(name) != now[0].get(name) for name in {**before[0], **now[0]})
    left = list(new)
    pair_of = {}
    for most in (0, sys.maxsize):  # equal ones first
        for i, before in enumerate(stored):
            near = min(left, key=lambda now: changed(before, now), default=None) if i not in pair_of else None
            if near and changed(before, near) <= most:
                pair_of[i] = near
                left.remove(near)
    return [(before, pair_of.get(i)) for i, before in enumerate(stored)] + [(None, now) for now in left]


def faults_of(before, now, slack):
    """What is worse, in words; empty where nothing is."""
    if now is None:
        return ["gone"]
    faults = [] if now["status"] == "ok" else [now["status"]]
    limits = {"registers": slack, "spill_bytes": 0, "shared_bytes": 0}
    return faults + [f"more {figure}" for figure, limit in limits.items() if before and now[figure] > before[figure] + limit]


def row_of(before, now, slack):
    """Whether it is fine, and the columns of a row, the first with the knobs and those that differ."""
    (old_knobs, old), (knobs, figures) = before or (None, None), now or (None, None)
    shown = words(knobs or old_knobs)
    if before and now and knobs != old_knobs:
        shown += "; was " + words({name: value for name, value in old_knobs.items() if knobs.get(name) != value})
    faults = faults_of(old, figures, slack)
    changes = [f"{old[figure] if old else '-'} → {figures[figure] if figures else '-'}" for figure in FIGURES]
    verdict = f"**{markdown(', '.join(faults))}**" if faults else "" if before else "new"
    return not faults, markdown(shown), *changes, verdict


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stored")
    parser.add_argument("new")
    parser.add_argument("--registers", type=int, default=8, metavar="N")
    options = parser.parse_args(argv)
    try:
        stored, new = kernels_of(options.stored), kernels_of(options.new)
    except WrongFile as error:
        print(f"compiled.py: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    found = {}  # tokens of equal rows
    for variant, cell, tokens in {**stored, **new}:
        key = variant, cell, tokens
        for before, now in pairs(stored.get(key, ()), new.get(key, ())):
            if before != now:
                found.setdefault((f"{variant}, {cell}", *row_of(before, now, options.registers)), []).append(tokens)
    rows = [(fine, [markdown(f"{cell}, tokens {' '.join(map(str, tokens))}"), *columns])
            for (cell, fine, *columns), tokens in found.items()]
    worse = sum(not fine for fine, _ in rows)
    if rows:
        print("| cell | knobs | registers | spilled bytes | shared bytes | threads | worse |\n| --- | --- | ---: | ---: | ---: | ---: | --- |")
        print("\n".join(f"| {' | '.join(row)} |" for _, row in sorted(rows, key=lambda row: row[0])) + "\n")
    count = sum(map(len, new.values()))
    print(f"{count} kernels: {len(rows)} differ from {markdown(options.stored)}, {worse} of them for the worse.")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
