// The words that options take, for completions. `moetune list` tells what they mean.
#pragma once
#include <string>
#include <vector>

namespace moetune {

std::vector<std::string> device_words();  // without looking for devices
std::vector<std::string> format_words();  // of export
std::vector<std::string> model_words();   // without aliases
std::vector<std::string> routing_words();
std::vector<std::string> space_words();
std::vector<std::string> suite_words();
std::vector<std::string> variant_words();

}  // namespace moetune
