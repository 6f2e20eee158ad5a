// The words that options take: for completions (`moetune list` tells what they mean), and of --arch as names.
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

/// --arch, each architecture once: sm_90a of "sm_90,sm_90a". Exit::request for an unknown one.
std::vector<std::string> arch_names(const std::vector<std::string>& given,
                                    const std::vector<std::string>& otherwise = {});

}  // namespace moetune
