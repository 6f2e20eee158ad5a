// Text that a page holds in fewer bytes until its script (report.js) unpacks it.
#pragma once
#include <string>
#include <string_view>

namespace moetune {

/// UTF-8 `text` with repetitions replaced by copies: "~", the length less 8 in two digits, how far back in three; a
/// digit of base 60 is a character from 'A' on, and "~~" is "~". Holds no "</script", if `text` holds none.
std::string packed(std::string_view text);

}  // namespace moetune
