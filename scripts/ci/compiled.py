#!/usr/bin/env python3
"""Compares what kernels take on a GPU with what they took before: registers,
spilled bytes, shared memory, threads.

Both are output of `moetune compile --format json` (moetune.compile/1). Prints
what differs as Markdown, the worst first. More than N registers a thread above
the stored ones count as worse [8], and so do more spilled bytes, more shared
memory of a block, another status than ok, and a kernel that is gone. Exit 0:
nothing is worse. 1: something is. 2: wrong usage.
"""
import argparse
import json
import sys

FIGURES = ("registers", "spill_bytes", "shared_bytes", "threads")


class WrongFile(Exception):
    """Exit code 2."""


def kernels_of(path):
    """{kernel: its figures}: a kernel is what it computes and its knobs, whatever the build and the number of tokens."""
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
        if document["schema"] != "moetune.compile/1":
            raise WrongFile(f"{path}: its schema is {document['schema']}, not moetune.compile/1")
        kernels = {}
        for result in document["results"]:
            cell, compiled = result["cell"], result["compile"]
            knobs = " ".join(f"{name}={value}" for name, value in result["candidate"].items() if name not in ("variant", "pack"))
            fusion = "".join(f" {name}" for name, value in cell.items() if value is True)
            name = (f"{result['candidate']['variant']} {knobs}, {cell['op']} {cell['dtype']}{fusion} "
                    f"e{cell['experts']} n{cell['n']} k{cell['k']}")
            kernels[name] = {"status": compiled["status"], "registers": compiled.get("registers", 0),
                             "spill_bytes": compiled.get("spill_bytes", 0), "threads": result.get("threads", 0),
                             "shared_bytes": result.get("shared_bytes", 0) + compiled.get("static_shared_bytes", 0)}
        return kernels
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise WrongFile(f"{path}: {error!r}") from error


def faults_of(before, now, slack):
    """What is worse, in words; empty where nothing is."""
    if now is None:
        return ["gone"]
    faults = [] if now["status"] == "ok" else [now["status"]]
    limits = {"registers": slack, "spill_bytes": 0, "shared_bytes": 0}
    return faults + [f"more {figure}" for figure, limit in limits.items() if before and now[figure] > before[figure] + limit]


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stored")
    parser.add_argument("new")
    parser.add_argument("--registers", type=int, default=8, metavar="N")
    options = parser.parse_args(argv)
    try:
        stored, new = kernels_of(options.stored), kernels_of(options.new)
    except WrongFile as error:
        print(f"compiled.py: {error}", file=sys.stderr)
        return 2
    rows = []
    for kernel in {**stored, **new}:
        before, now = stored.get(kernel), new.get(kernel)
        faults = faults_of(before, now, options.registers)
        if before == now:
            continue
        changes = [f"{before[figure] if before else '-'} → {now[figure] if now else '-'}" for figure in FIGURES]
        rows.append((not faults, f"| {kernel} | {' | '.join(changes)} | {'**' + ', '.join(faults) + '**' if faults else 'new' if not before else ''} |"))
    worse = sum(not fine for fine, _ in rows)
    if rows:
        print("| kernel | registers | spilled bytes | shared bytes | threads | worse |\n| --- | ---: | ---: | ---: | ---: | --- |")
        print("\n".join(row for _, row in sorted(rows, key=lambda row: row[0])) + "\n")
    print(f"{len(new)} kernels: {len(rows)} differ from {options.stored}, {worse} of them for the worse.")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
