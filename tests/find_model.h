// A model that has one kind of expert layers, or the first kind of it.
#pragma once
#include <string>

#include "workload/model.h"

namespace moetune {

inline Model find_model(const std::string& name) { return find_models(name).front(); }

}  // namespace moetune
