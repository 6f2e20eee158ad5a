// The manifest of exported kernels: everything that another program must know to launch the cubins beside it.
// configs/schema/kernels.json describes each field. Nothing is compiled or written here.
#pragma once
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "record/table/table.h"
#include "variant/variant.h"

namespace moetune {

/// The name of a candidate's kernel for a computation, "wgmma-5f2c1a3b4d5e": equal where the same kernel is launched in
/// the same way. Its cubin for sm_90a is NAME.sm_90a.cubin. Not for cpu candidates.
std::string kernel_name(const Candidate& candidate, const Shape& shape);
std::string cubin_name(std::string_view stem, std::string_view arch);

/// A file of the export.
struct CubinFile {
  std::string arch;  // "sm_90a"
  std::string name;  // in the folder
  std::string bytes;
  int registers = 0;
};

/// One kernel; the same candidate has one for each different computation.
struct ExportedKernel {
  std::string name;  // "wgmma-5f2c1a3b4d5e"
  Shape shape;       // of a cell that it serves: op, dtype and fusion are those of all its cells
  Candidate candidate;
  LaunchPlan plan;
  std::string unit;                    // text
  std::vector<CubinFile> cubins = {};  // one an architecture
};

/// The kernel that serves a cell or a robust choice.
struct ServedCell {
  Cell cell;
  double skew = 0;  // realised rows of the largest expert over the mean
  std::string arch;
  std::string kernel;
  double seconds = 0;  // measured; 0 = the untuned default of an architecture that the table is not of
};
struct ServedRange {
  Shape shape;
  TokenRange tokens;
  std::string arch;
  std::string kernel;
  double worst_regret = 0;
};

/// Kernels around those of the variants: sorting rows by expert (entries route_int32 and route_int64), and the last
/// pass of results that are made of fp32 sums or of the rows of slots (invert, sum_slots, weigh_rows of finish_unit).
struct ServiceCubins {
  std::vector<CubinFile> route;
  std::vector<std::pair<Dtype, CubinFile>> finish;  // a dtype and an architecture
  // The pass that reorders W, of a format and an architecture.
  std::vector<std::pair<Format, CubinFile>> reorder;
};

struct KernelExport {
  std::vector<ExportedKernel> kernels;
  std::vector<ServedCell> cells;
  std::vector<ServedRange> ranges;
  ServiceCubins services;
  bool of_other_kernels = false;  // the table's times were measured with other kernels than these
};

/// What an export launches for a winner: libmoetune makes no arrays of pointers, so that addressing is base.
Candidate launchable(const Candidate& winner);

/// The part of a shape that a caller asks for: equal for all cells whose kernels may replace one another.
Json asked_json(const Shape& shape);

Json kernel_manifest(const KernelExport& exported, const TunedTable& table);

/// require_manifest, and the candidates that it names.
void require_kernel_manifest(const JsonAt& json, const Catalog& catalog);

/// Throws Exit::request if a cubin beside a manifest, or a file that manifest.sha256 names, is missing or was changed.
void require_files_of_manifest(const JsonAt& json, const std::filesystem::path& manifest);

}  // namespace moetune
