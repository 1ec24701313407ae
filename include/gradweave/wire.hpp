/// @file
/// Values as bytes, for the few messages that are no payload: little-endian numbers and texts behind their length.
/// Reading never trusts what it reads: whatever is cut short or claims too much makes the reader fail, and stay failed.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gradweave {

class byte_writer {
 public:
  template <std::unsigned_integral Number>
  void number(Number value) {
    for (std::size_t i = 0; i < sizeof value; ++i) {
      bytes_.push_back(static_cast<std::byte>(value >> (8 * i) & 0xff));
    }
  }

  /// At most `bytes_max` bytes of it; what is longer is cut.
  void text(std::string_view value, std::size_t bytes_max) {
    value = value.substr(0, bytes_max);
    number(static_cast<std::uint32_t>(value.size()));
    for (const char c : value) {
      bytes_.push_back(static_cast<std::byte>(c));
    }
  }

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

class byte_reader {
 public:
  explicit byte_reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  /// 0 once the reader has failed.
  template <std::unsigned_integral Number>
  Number number() {
    if (bytes_.size() < sizeof(Number)) {
      failed_ = true;
    }
    if (failed_) {
      return 0;
    }
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < sizeof(Number); ++i) {
      value |= static_cast<std::uint64_t>(bytes_[i]) << (8 * i);
    }
    bytes_ = bytes_.subspan(sizeof(Number));
    return static_cast<Number>(value);
  }

  /// Fails where it is longer than `bytes_max`, so that a length which somebody claims costs nothing.
  std::string text(std::size_t bytes_max) {
    const std::size_t length = number<std::uint32_t>();
    failed_ = failed_ || length > bytes_max || length > bytes_.size();
    if (failed_) {
      return {};
    }
    std::string value(length, '\0');
    for (std::size_t i = 0; i < length; ++i) {
      value[i] = static_cast<char>(bytes_[i]);
    }
    bytes_ = bytes_.subspan(length);
    return value;
  }

  bool failed() const { return failed_; }
  /// Everything was read, and nothing was wrong with it.
  bool complete() const { return !failed_ && bytes_.empty(); }

 private:
  std::span<const std::byte> bytes_;
  bool failed_ = false;
};

}  // namespace gradweave
