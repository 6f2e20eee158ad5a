// How far a right result on random inputs may stray from its reference. Not what is compared.
#pragma once
#include <cstdint>
#include <map>
#include <vector>

#include "backend/cpu/thread_pool.h"
#include "workload/product.h"

namespace moetune {

/// Largest errors that a right result on random inputs can have.
struct Tolerance {
  double normalised_error = 0;
  double ulps = 0;
};
/// Of elements of a result whose errors add up from `terms` products (see result_terms), at most.
Tolerance tolerance(const Product& product, const Operand& result, int64_t terms);

/// The limits of results whose errors add up from the same number of products.
struct Scope {
  Tolerance limit;
  double squares = 0;  // sum of theirs
  int64_t elements = 0;
  float floor = 0;  // an ulp is that of a value no smaller: the rms of these results
};

struct Scopes {
  std::vector<int64_t> terms;  // [result_rows]
  std::map<int64_t, Scope> by_terms;

  const Scope& of(int64_t row) const { return by_terms.at(terms[static_cast<size_t>(row)]); }
  double squares() const {
    double sum = 0;
    for (const auto& [count, scope] : by_terms) sum += scope.squares;
    return sum;
  }
  int64_t most_terms() const { return by_terms.empty() ? 0 : by_terms.rbegin()->first; }
};

/// `wanted` [result_rows, columns] floats. Results that have terms count as no smaller than `least_rms` in root mean
/// square.
Scopes scopes_of(const Product& product, const Operand& result, const float* wanted, double least_rms,
                 ThreadPool& pool);

}  // namespace moetune
