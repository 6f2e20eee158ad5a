// SHA-256 (FIPS 180-4), of files that a manifest names, and of content for cache keys and fingerprints.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace moetune {

class Sha256 {
 public:
  /// 64 lower-case hexadecimal digits.
  static std::string hex(std::string_view bytes) {
    Sha256 hash;
    const std::size_t whole = bytes.size() / 64 * 64;
    for (std::size_t at = 0; at < whole; at += 64) hash.add_block(bytes.substr(at, 64));
    std::string end(bytes.substr(whole));  // then a one, zeros, and the length in bits
    end += '\x80';
    while (end.size() % 64 != 56) end += '\0';
    for (int shift = 56; shift >= 0; shift -= 8) end += static_cast<char>((std::uint64_t{bytes.size()} * 8) >> shift);
    for (std::size_t at = 0; at < end.size(); at += 64) hash.add_block(std::string_view(end).substr(at, 64));
    return hash.text();
  }

 private:
  static std::uint32_t rotated(std::uint32_t word, int bits) { return (word >> bits) | (word << (32 - bits)); }

  void add_block(std::string_view block) {
    std::array<std::uint32_t, 64> w{};
    for (std::size_t i = 0; i < 64; ++i) w[i / 4] = (w[i / 4] << 8) | static_cast<unsigned char>(block[i]);
    for (std::size_t i = 16; i < 64; ++i) {
      const std::uint32_t a = w[i - 15], b = w[i - 2];
      w[i] = w[i - 16] + (rotated(a, 7) ^ rotated(a, 18) ^ (a >> 3)) + w[i - 7] +
             (rotated(b, 17) ^ rotated(b, 19) ^ (b >> 10));
    }
    std::array<std::uint32_t, 8> s = state_;
    for (std::size_t i = 0; i < 64; ++i) {
      const std::uint32_t choice = (s[4] & s[5]) ^ (~s[4] & s[6]);
      const std::uint32_t majority = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
      const std::uint32_t one =
          s[7] + (rotated(s[4], 6) ^ rotated(s[4], 11) ^ rotated(s[4], 25)) + choice + kRound[i] + w[i];
      const std::uint32_t two = (rotated(s[0], 2) ^ rotated(s[0], 13) ^ rotated(s[0], 22)) + majority;
      s = {one + two, s[0], s[1], s[2], s[3] + one, s[4], s[5], s[6]};
    }
    for (std::size_t i = 0; i < 8; ++i) state_[i] += s[i];
  }

  std::string text() const {
    std::string digits;
    for (const std::uint32_t word : state_)
      for (int shift = 28; shift >= 0; shift -= 4) digits += "0123456789abcdef"[(word >> shift) & 15];
    return digits;
  }

  static constexpr std::array<std::uint32_t, 64> kRound = {
      0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
      0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
      0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
      0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
      0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
      0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
      0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
      0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
  std::array<std::uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                         0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
};

/// A hash of several pieces of text. The same text cut into other pieces has another hash.
class Hash {
 public:
  Hash& add(std::string_view piece) {
    text_ += piece;
    for (int shift = 0; shift < 64; shift += 8) text_ += static_cast<char>(std::uint64_t{piece.size()} >> shift);
    return *this;
  }
  /// The first 32 hexadecimal digits of SHA-256.
  std::string hex() const { return Sha256::hex(text_).substr(0, 32); }

 private:
  std::string text_;
};

}  // namespace moetune
