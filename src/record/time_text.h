// Measured times and their ratios as text, with their uncertainty: the same in every command and file for people.
#pragma once
#include <string>

#include "record/table/table.h"

namespace moetune {

/// "12.3 µs ± 1.2 %": the half-width of the interval over the median. "9.87 µs to 31.2 µs" where the interval is wider
/// than kUncertainTime: no single number is claimed then.
std::string time_text(const Estimate& time);

/// "1.35x (1.31 to 1.39)", or "1.35x ± 3.0 %" without `interval`: how much faster the winner is than a rival; "?" for
/// null. "0.52x to 31.48x" where the interval is wider than kUncertainRatio.
std::string speedup_text(const Rival* rival, bool interval = true);

/// "1.35x", "1.35x (1.31 to 1.39)"; "0.52x to 31.48x" where the interval is wider than kUncertainRatio.
std::string factor_text(double factor);
std::string factor_text(const Estimate& factor);

/// "1.35x ± 3.0 %", or "0.52x to 31.48x" where the interval is wider than kUncertainRatio.
std::string ratio_text(const Estimate& factor);

}  // namespace moetune
