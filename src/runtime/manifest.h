// The manifest of exported kernels (configs/schema/kernels.json): read and checked with the files beside it, by
// programs that launch the kernels and by `moetune validate`.
#pragma once
#include <filesystem>
#include <string>
#include <string_view>

#include "base/json.h"

namespace moetune {

/// The version of the manifest's meaning; other versions are refused.
constexpr int kKernelAbi = 1;

/// A line of manifest.sha256, which sha256sum reads. The first one is of manifest.json; the others are of the library,
/// the modules and what else lies beside it.
std::string digest_line(std::string_view name, std::string_view text);

/// Throws Exit::request if a file that manifest.sha256 names is missing or has another digest.
void require_digests(const std::filesystem::path& folder);

/// Reads FOLDER/manifest.json. Throws Exit::request if it is missing, or if manifest.sha256 has another digest.
Json read_manifest(const std::filesystem::path& folder);

/// Throws Exit::request, with the place, for a manifest whose kernels cannot be launched: fields that are missing or of
/// another kind, formulas that cannot be read, and names of kernels, files, operands or buffers that don't exist.
void require_manifest(const JsonAt& manifest);

/// The bytes of a cubin in the folder. Throws Exit::request if they are not those that `files` describes.
std::string read_cubin(const std::filesystem::path& folder, const JsonAt& files, const std::string& name);

}  // namespace moetune
