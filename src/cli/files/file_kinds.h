// The kinds of files that moetune writes and reads, one for each schema in configs/schema.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "base/json.h"
#include "variant/catalog.h"

namespace moetune {

struct FileKind {
  std::string_view name;        // "table": of "moetune.table/1" and of configs/schema/table.json
  int version = 1;              // the number behind the slash
  std::string_view written_by;  // a command, or "you"
  std::string_view holds;
  /// Checks a document against its schema and what that cannot say; null where the schema says all. Of a journal: its
  /// header.
  void (*read)(const JsonAt& json, const Catalog& catalog) = nullptr;
};

/// read(0), which takes top_k from a recording; where that gives neither top_k nor tokens, read(1): the layer of a
/// sweep may have any top_k. Throws the error of read(0) where both fail.
void with_open_top_k(const std::function<void(int64_t top_k)>& read);

/// All kinds, in the order of their names.
std::span<const FileKind> file_kinds();

/// The kind that "moetune.table/1" names, of any number; null for any other text.
const FileKind* find_kind(std::string_view schema);

}  // namespace moetune
