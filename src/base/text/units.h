// Numbers as people write and read them.
#pragma once
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moetune {

std::string format_time(double seconds);  // "12.3 µs", "4.56 ms", "7.8 s", "3 min 20 s", "2 h 5 min"
std::string format_bytes(double bytes);   // "1.88 GB" (powers of ten), "512 B"

/// "1 cell", "3 cells".
std::string counted(std::integral auto count, std::string_view one) {
  return std::to_string(count) + ' ' + std::string(one) + (count == 1 ? "" : "s");
}

/// "90s", "5m", "1h", "1h30m", "250ms", "45" (seconds) to seconds. Exit::request otherwise; for
/// negative ones too, and for zero unless it may be.
double parse_duration(std::string_view text, bool may_be_zero = false);

/// An integer with nothing around it, within [low, high]. `what` names it in the error.
int64_t parse_integer(std::string_view text, std::string_view what, int64_t low, int64_t high);

/// A finite decimal number with nothing around it.
double parse_number(std::string_view text, std::string_view what);

/// "5%" or "0.05" is 0.05; over 0 and at most 1.
double parse_share(std::string_view text, std::string_view what);

/// Pieces between separators, white space around each removed; empty pieces kept. "" gives no pieces.
std::vector<std::string> split(std::string_view text, char separator);

/// Lists and ranges of integers: "1,16,64-4096*4" is 1 16 64 256 1024 4096; "1-4" counts by one, "1-9+4" by four.
/// At most 10,000 values, each within [low, high]; duplicates dropped, order kept.
std::vector<int64_t> parse_integers(std::string_view text, std::string_view what, int64_t low, int64_t high);

}  // namespace moetune
