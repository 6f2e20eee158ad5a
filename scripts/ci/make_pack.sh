#!/usr/bin/env bash
# Makes the folder pack, with its pack.json, from this checkout: an example of BUILD in the workflows beside it. Copy it to
# your repository. As it stands it packs moetune's own Triton kernel; for yours add --kernel FILE.py, which
# `pack_triton.py --template` begins for you, and the sizes that are compiled in (--gemm, --size).
set -euo pipefail
clone=$(dirname "$(realpath "$(command -v moetune)")")/../.. # moetune lies in build/release of its clone
python3 "$clone/scripts/pack_triton.py" -o pack --arch "${ARCH:-sm_90a}"
