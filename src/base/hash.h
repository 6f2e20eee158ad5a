// Hashes of content, for cache keys and fingerprints. They are not cryptographic.
#pragma once
#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace moetune {

/// 128-bit FNV-1a (Fowler, Noll, Vo) of several pieces of text. The length of each piece is hashed after it, so that
/// the same text cut into other pieces has another hash.
class Hash {
 public:
  Hash& add(std::string_view piece) {
    for (const char c : piece) byte(static_cast<unsigned char>(c));
    for (uint64_t length = piece.size(), i = 0; i < 8; ++i) byte(static_cast<unsigned char>(length >> (8 * i)));
    return *this;
  }
  /// 32 hexadecimal digits.
  std::string hex() const {
    return fmt::format("{:016x}{:016x}", static_cast<uint64_t>(state_ >> 64), static_cast<uint64_t>(state_));
  }

 private:
  __extension__ using Wide = unsigned __int128;
  void byte(unsigned char c) { state_ = (state_ ^ c) * kPrime; }
  static constexpr Wide kPrime = (Wide{1} << 88) + 0x13b;
  Wide state_ = (Wide{0x6c62272e07bb0142} << 64) + 0x62b821756295c58d;
};

}  // namespace moetune
