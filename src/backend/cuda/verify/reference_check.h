// References that a GPU computed, checked on sampled elements against sums on the host.
#pragma once
#include "workload/product.h"

namespace moetune {

/// Each compares sampled elements on the device with sums in double: equal for integer inputs, within 1e-4 of the root
/// sum of squares of the terms for random ones. Exit::machine where one differs. `sums` are those before a last pass:
/// fp32 [owned_rows of D, N].
void check_sums(const Product& product, Values values, const float* sums);

/// `result` is fp32 [tokens, N], the sums of a token's slots.
void check_slot_sums(const Product& product, Values values, const float* sums, const float* result);

/// `dweights` are fp32 [slots], the row dots of sums and X.
void check_dweights(const Product& product, Values values, const float* sums, const float* dweights);

}  // namespace moetune
