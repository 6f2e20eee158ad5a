// The kinds of files that moetune writes and reads, one for each schema in configs/schema.
#pragma once
#include <span>
#include <string_view>

#include "base/json.h"

namespace moetune {

struct FileKind {
  std::string_view name;        // "table": of "moetune.table/1" and of configs/schema/table.json
  int version = 1;              // the number behind the slash
  std::string_view written_by;  // a command, or "you"
  std::string_view holds;
  /// Throws Exit::request, with the place, for a document that is not of this kind. Of a journal: its header.
  void (*read)(const JsonAt& json) = nullptr;
};

/// All kinds, in the order of their names.
std::span<const FileKind> file_kinds();

/// The kind that "moetune.table/1" names, whatever the number; null for any other text.
const FileKind* find_kind(std::string_view schema);

}  // namespace moetune
