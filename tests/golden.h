// Texts that are kept in files: what a format looks like is read there, and any change of it shows in a diff.
#pragma once
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/system/file.h"

namespace moetune {

/// Compares with tests/<name>, such as "record/golden/table.md"; MOETUNE_UPDATE_GOLDEN=1 writes it anew.
inline void expect_golden(const std::string& name, const std::string& text) {
  const std::filesystem::path path = std::filesystem::path(MOETUNE_SOURCE_DIR) / "tests" / name;
  if (const char* update = std::getenv("MOETUNE_UPDATE_GOLDEN"); update && *update == '1') write_atomic(path, text);
  EXPECT_EQ(read_text(path), text) << "golden file " << path;
}

}  // namespace moetune
