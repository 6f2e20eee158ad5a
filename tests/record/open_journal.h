// Journals as `tune` opens them: a new one, and one that goes on.
#pragma once
#include "record/journal/journal.h"

namespace moetune {

inline Journal create_journal(const std::filesystem::path& path, const JournalHeader& header) {
  Journal journal = Journal::claim(path);
  journal.begin(header);
  return journal;
}

inline Journal reopen_journal(const std::filesystem::path& path) {
  Journal journal = Journal::claim(path);
  journal.go_on();
  return journal;
}

}  // namespace moetune
