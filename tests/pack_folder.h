// A small kernel pack: its manifest as JSON that tests change, and a folder with it and its files.
#pragma once
#include <string>

#include "base/json.h"
#include "temporary_folder.h"

namespace moetune {

/// The variant `toy`: Y = X W^T in bf16, with six combinations of knobs of which block_m=64 fast=yes was not compiled.
/// Rows are put in order by a step that prepares.
inline Json toy_manifest() { return read_json(MOETUNE_SOURCE_DIR "/tests/cli/files/packs/pack-toy.json"); }

/// Writes a manifest, and the files of toy_manifest(), into `folder`.
inline void write_toy_pack(const TemporaryFolder& folder, const Json& manifest = toy_manifest()) {
  const Json toy = toy_manifest();
  for (const auto& [name, file] : toy["files"].items()) folder.write(name, "the bytes of " + name);
  folder.write("pack.json", manifest.dump(1));
}

}  // namespace moetune
