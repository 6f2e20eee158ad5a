#!/usr/bin/env python3
"""Makes a recording that moetune reads of a .pt file that SGLang's expert
distribution recorder dumped.

    scripts/convert_recording.py recorder_1.pt --top-k 8 -o loads.json
    moetune tune --model qwen3-30b-a3b --routing trace:loads.json#20

Rows of several passes are added up. --tokens says of how many tokens, where
some of their choices were not recorded. Needs torch. Exit 0: written. 1: the
file has no logical_count. 3: no torch.
"""
import argparse
import json
import sys


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("-o", "--output", default="-", help="a .json file [standard output]")
    parser.add_argument("--top-k", type=int)
    parser.add_argument("--tokens", type=int)
    options = parser.parse_args()
    try:
        import torch
    except ImportError:
        print("convert_recording.py: no torch in this Python", file=sys.stderr)
        return 3
    dump = torch.load(options.file, map_location="cpu", weights_only=True)
    counts = dump.get("logical_count") if isinstance(dump, dict) else dump
    if not isinstance(counts, torch.Tensor) or counts.dim() < 2:
        print(f"{options.file}: no tensor logical_count of [passes, layers, experts] or [layers, experts]",
              file=sys.stderr)
        return 1
    layers = counts.reshape(-1, *counts.shape[-2:]).sum(0).tolist()
    known = {"top_k": options.top_k, "tokens": options.tokens}
    text = json.dumps({**{key: value for key, value in known.items() if value}, "logical_count": layers}) + "\n"
    if options.output == "-":
        sys.stdout.write(text)
    else:
        with open(options.output, "w", encoding="utf-8") as file:
            file.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
