// What stands in for work that takes time.
#pragma once
#include <chrono>
#include <thread>

namespace moetune {

inline void sleep_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

}  // namespace moetune
