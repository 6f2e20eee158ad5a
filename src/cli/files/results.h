// For `validate`: readers of results that commands write as JSON and no command reads. Their parts are read as in files
// that commands read.
#pragma once
#include "base/json.h"

namespace moetune {

// Each throws Exit::request, with the place, for a document that is not such a result.
void read_bench(const JsonAt& json);
void read_check(const JsonAt& json);
void read_compile(const JsonAt& json);
void read_diff(const JsonAt& json);
void read_doctor(const JsonAt& json);
void read_list(const JsonAt& json);
void read_lookup(const JsonAt& json);
void read_plan(const JsonAt& json);
void read_replay(const JsonAt& json);
void read_validate(const JsonAt& json);
void read_verify(const JsonAt& json);

}  // namespace moetune
