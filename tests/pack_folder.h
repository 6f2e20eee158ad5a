// A small kernel pack: its manifest as JSON that tests change, and a folder with it and its files.
#pragma once
#include <string>

#include "base/json.h"
#include "loader/moetune/sha256.h"
#include "temporary_folder.h"

namespace moetune {

inline Json pack_file(const std::string& arch, const std::string& bytes, int registers = 40) {
  return {{"arch", arch},
          {"bytes", bytes.size()},
          {"sha256", moetune_kernels::Sha256::hex(bytes)},
          {"registers", registers}};
}

/// The variant `toy`: Y = X W^T in bf16, with six combinations of knobs of which block_m=64 fast=yes was not compiled.
/// rows are sorted into blocks of block_m by a step that prepares.
inline Json toy_manifest() {
  return Json::parse(R"({
    "schema": "moetune.pack/1",
    "variant": "toy",
    "summary": "kernels of a test",
    "knobs": [
      {"name": "block_m", "help": "rows of a tile", "values": [16, 32, 64], "default": 32},
      {"name": "fast", "help": "or slow", "values": ["no", "yes"], "default": "yes"}
    ],
    "computes": [{"op": "fwd", "dtype": "bf16", "fusion": "plain", "weighting": "none"}],
    "rules": [
      {"zero": "k % 8", "reason": "k must be a multiple of 8"},
      {"zero": "max(block_m - n, 0)", "reason": "n must be at least block_m"}
    ],
    "files": {},
    "binaries": [
      {"files": {"sm_90a": "slow.cubin"}, "entry": "slow", "threads": 64, "shared_bytes": 1024},
      {"files": {"sm_90a": "fast.cubin", "sm_80": "fast.ptx"}, "entry": "fast", "threads": 128, "shared_bytes": 200000,
       "scratch_bytes": 512, "trailing": [{"pointer": "scratch"}, {"pointer": "null"}]}
    ],
    "candidates": [[16, "no", 0], [32, "no", 0], [64, "no", 0], [16, "yes", 1], [32, "yes", 1]],
    "operands": [
      {"name": "x", "dtype": "bf16", "shape": ["rows", "k"], "access": "read"},
      {"name": "w", "dtype": "bf16", "shape": ["experts * n", "k"], "access": "read"},
      {"name": "y", "dtype": "bf16", "shape": ["rows", "n"], "access": "write"},
      {"name": "m_sizes", "dtype": "int32", "shape": ["experts"], "access": "read"}
    ],
    "buffers": [
      {"name": "order", "bytes": "(rows + experts * block_m) * 4", "zeroed": false},
      {"name": "scratch", "bytes": "blocks * scratch_bytes", "zeroed": false},
      {"name": "done", "bytes": "4", "zeroed": true}
    ],
    "launches": [
      {"fill": {"pointer": "order", "byte": 255, "bytes": "(rows + experts * block_m) * 4"}},
      {"cubin": {"sm_90a": "order.cubin", "sm_80": "order.ptx"}, "entry": "put_in_order", "threads": 256, "shared_bytes": 0,
       "cluster": 1, "most_per_processor": null, "cooperative": false, "grid": "experts",
       "arguments": [{"pointer": "order"}, {"pointer": "m_sizes"}, {"int32": "block_m"}]},
      {"cubin": "candidate", "cooperative": false,
       "grid": "(rows / block_m + min(experts, rows)) * ceil_div(n, 64)",
       "arguments": [
         {"struct": {"size": 48, "alignment": 8, "fields": [
           {"name": "x", "offset": 0, "pointer": "x"}, {"name": "w", "offset": 8, "pointer": "w"},
           {"name": "y", "offset": 16, "pointer": "y"}, {"name": "n", "offset": 24, "int64": "n"},
           {"name": "fast", "offset": 32, "int32": "fast"}, {"name": "held", "offset": 36, "int32": "held"}]}},
         {"pointer": "order"}, {"pointer": "done"}]}
    ]
  })");
}

/// Writes the files that a manifest of toy_manifest() lacks, and the manifest, into `folder`.
inline void write_toy_pack(const TemporaryFolder& folder, Json manifest = toy_manifest()) {
  for (const char* name : {"slow.cubin", "fast.cubin", "order.cubin", "fast.ptx", "order.ptx"}) {
    const std::string bytes = std::string("the bytes of ") + name;
    folder.write(name, bytes);
    if (manifest["files"].is_object() && !manifest["files"].contains(name))
      manifest["files"][name] = pack_file(std::string(name).ends_with("ptx") ? "sm_80" : "sm_90a", bytes);
  }
  folder.write("pack.json", manifest.dump(1));
}

}  // namespace moetune
