// Forgetting what was compiled first.
#include "backend/cuda/compile/kept_units.h"

#include <algorithm>
#include <set>
#include <utility>

namespace moetune {

std::vector<CompileResult> KeptUnits::compile(const std::vector<std::string>& units) {
  std::set<std::string> lacking;
  for (const std::string& unit : units)
    if (!units_.contains(unit)) lacking.insert(unit);
  const std::vector<std::string> missing(lacking.begin(), lacking.end());
  std::vector<CompiledUnit> compiled = compile_units(missing, options_);
  for (size_t i = 0; i < missing.size(); ++i) {
    compiled[i].log = {};
    units_[missing[i]] = std::move(compiled[i]);
    oldest_first_.push_back(missing[i]);
  }
  std::vector<CompileResult> results;
  for (const std::string& unit : units) results.push_back(units_.at(unit).result);
  for (; units_.size() > std::max(most_, missing.size()); oldest_first_.pop_front())
    units_.erase(oldest_first_.front());
  return results;
}

const CompiledUnit& KeptUnits::get(const std::string& unit) {
  if (!units_.contains(unit)) compile({unit});
  return units_.at(unit);
}

}  // namespace moetune
