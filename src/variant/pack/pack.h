// A kernel pack: a folder of kernels made elsewhere, with a manifest, pack.json, that says what they compute, which
// knobs they have and how each candidate is launched (configs/schema/pack.json). Not how they reach a device.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "runtime/formula.h"
#include "variant/candidate.h"
#include "variant/variant.h"
#include "workload/product/product.h"

namespace moetune {

/// A cubin, or PTX where its name ends with ".ptx".
struct PackFile {
  std::string arch;  // "sm_90a"
  int64_t bytes = 0;
  std::string sha256;
  int registers = 0;  // a thread; 0 = unknown
  int spill_bytes = 0;
};

/// A compiled kernel of candidates: those that differ in launch values alone share it.
struct PackBinary {
  std::map<std::string, std::string> files;  // architecture -> name of a file
  std::string entry;
  int threads = 0;  // a block
  int cluster = 1;
  int64_t shared_bytes = 0;   // dynamic, a block
  int64_t scratch_bytes = 0;  // of device memory a block: `scratch_bytes` in formulas
  Json trailing;              // arguments after those of the launch
};

struct PackComputation {
  Op op = Op::fwd;
  std::string format = "bf16";  // Format::word
  std::string fusion;           // as text(Fusion) spells it
  Weighting weighting = Weighting::none;
  std::string when = {};  // a formula that is not 0 where it applies; empty = everywhere
};

/// A formula over n, k, m, experts, top_k and the knobs that must be 0; otherwise the sentence says why not.
struct PackRule {
  std::string zero, reason;
};

struct Pack {
  std::filesystem::path folder;
  std::string hash;  // of the manifest, 12 digits
  std::string variant, summary;
  std::vector<Knob> knobs;
  std::vector<int> fallback;  // a value for each knob
  std::vector<PackComputation> computes;
  std::vector<PackRule> rules;
  std::map<std::string, PackFile> files;
  std::vector<PackBinary> binaries;
  std::map<std::vector<int>, std::vector<size_t>> candidates;  // values of the knobs -> binary of each computation
  Json operands, buffers, launches;                            // as in pack.json, checked
  std::vector<std::string> cells = {};                         // ids of those that an exported kernel serves
};

/// The manifest of a pack. Throws Exit::request, with the place, for one that cannot be launched. Looks at no other
/// file.
Pack pack_from_json(const JsonAt& json);

/// Reads DIR/pack.json, and all files that it names: Exit::request for one that is missing or differs from the
/// manifest.
Pack load_pack(const std::filesystem::path& folder);

/// Whether a folder holds a pack.json, an export's manifest.json, or subfolders that do.
bool holds_packs(const std::filesystem::path& folder);

/// All of them: each kernel of an export is a pack with one candidate, whose knobs are the exported winner's. Kernels
/// that take a second launch or give gradients of gates are left out: their names are added to `left_out`.
/// Errors as of load_pack and read_manifest.
std::vector<Pack> load_packs(const std::filesystem::path& folder, std::vector<std::string>& left_out);

/// The manifest of a pack with this kernel of an export alone. `files` describes the export's cubins.
Json pack_of_exported(const JsonAt& kernel, const JsonAt& files);

/// Throws Exit::request, as load_pack does, for a file beside a manifest that is missing or differs from it.
void require_files_of_pack(const JsonAt& json, const std::filesystem::path& manifest);

/// A file's bytes. Exit::request unless size and SHA-256 are those of the manifest.
std::string read_pack_file(const Pack& pack, const std::string& name);

/// The file among `files` (architecture -> name) that runs on a compute capability, or null: a cubin before PTX, then
/// the one for the newest architecture.
const std::string* file_for(const Pack& pack, const std::map<std::string, std::string>& files, int capability);

inline constexpr size_t kNoBinary = SIZE_MAX;  // of a computation, where none was compiled

/// The binary with which a candidate of these values computes the shape, or null where none was compiled. `sizes` are
/// those of a launch, as far as they are known: what depends on others is taken to apply.
const PackBinary* binary_of(const Pack& pack, const std::vector<int>& values, const Shape& shape,
                            const Sizes& sizes = {});

/// Whether a launch of the manifest belongs to the time of its candidates.
bool is_timed(const JsonAt& launch);

/// How weights apply for a shape that the pack computes.
Weighting weighting_of(const Pack& pack, const Shape& shape);

/// The variant that stands for a pack in a catalog.
Variant pack_variant(std::shared_ptr<const Pack> pack);

}  // namespace moetune
