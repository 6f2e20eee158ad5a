// The activation of a model's experts, by the fields of its config.json.
#pragma once
#include "workload/model.h"
#include "workload/model/fields.h"

namespace moetune {

/// Sets `gated` and `activation`, with a note if no field names the activation.
void read_activation(const Scopes& scopes, const JsonAt& config, Model& model);

}  // namespace moetune
